// The runs of the tests and copies of them in which single numbers are others, each as a page; and
// holding what a page saves to the files and to what was changed in them.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "./compare.mjs";
import { changeLines, changeOption, changeRange, copy, differences } from "./files.mjs";
import { folder, launch, open, report, runs, save, see, settled, table } from "./page.mjs";
import { leastSquares, metrics } from "./raw.mjs";

const work = folder();
const kinds = ["measured", "planned", "judged", "otherwise"];
// As the runs are; with numbers changed that training measured; with others that decide a plan.
// Judged: tasks measure more than one metric; otherwise: with numbers of those changed.
export const roots = {
  asMade: runs, ...Object.fromEntries(kinds.map((kind) => [kind, join(work, kind)])),
};
export const pages = {};
export const names = readdirSync(runs, { withFileTypes: true })
  .filter((e) => e.isDirectory() && e.name !== "least-squares").map((e) => e.name).sort();
let browser;

// The promotion of the last step in which there was one.
export const promotion = metrics(join(runs, "all-low-seed0")).promote.at(-1);
// Another one, which becomes one of the gradient.
export const regraded = metrics(join(runs, "all-low-seed0")).promote.at(-2);
// One that stays the largest of its tensor, so that the tensors that are drawn are the same.
export const overflown = { tensor: "layer1.0.add.out", step: 1, value: 0.0625 };
// A promotion that goes further.
export const further = { ...metrics(join(runs, "half-seed0")).promote[1], to: "fp32" };
// More than any other run takes, and less than planned.
export const morePeak = 2_097_152;
export const lessPlanned = 524_288;
// Of conv1.out.
export const shifts = [[12, "mu", -0.8125], [6, "m", 2.25], [18, "alpha", 4.125], [24, "beta", 3.75]];
// Windows of two variants.
const windows = leastSquares(join(runs, "least-squares"));
export const free = windows.find((w) => w.variant === "fp32" && w.step === 97);
export const still = windows.find((w) => w.variant === "all nearest" && w.step === 2000);

// For changeLines: the line that has these members gets those.
const line = (of, change) => (l) => {
  if (!Object.entries(of).every(([k, v]) => l[k] === v)) return false;
  Object.assign(l, typeof change === "function" ? change(l) : change);
  return true;
};

// A number of the seed in the middle, whose number is the median before and after.
function changeWindow(root, { variant, step, seeds, ...median }, column, change) {
  const path = join(root, "least-squares", "least-squares.csv");
  const { seed } = seeds.find((s) => s[column] === median[column]);
  const rows = readFileSync(path, "utf8").split("\n");
  const at = rows.findIndex((r) => r.startsWith(`${variant},${seed},${step},`));
  const cells = rows[at].split(",");
  const i = rows[0].split(",").indexOf(column);
  cells[i] = String(change(Number(cells[i])));
  rows[at] = cells.join(",");
  writeFileSync(path, rows.join("\n"));
}

function changeMeasured(root) {
  copy(runs, root);
  const log = (run) => join(root, run, "metrics.jsonl");
  changeLines(log("half-seed0"), line({ event: "step", step: 7 }, { loss: 2.5 }));
  changeLines(log("half-seed0"), line({ event: "epoch", epoch: 4 }, { low_ratio: 0.375 }));
  changeLines(log("half-seed1"), line({ event: "epoch", epoch: 2 }, { test_acc: 0.9375 }));
  changeLines(log("half-seed0"), line({ event: "step", step: 8 }, { cancelled: 0.4375 }));
  changeLines(log("all-low-seed1"), line({ event: "step", step: 5 }, { lr: 0.0078125 }));
  changeLines(log("all-low-seed1"), line({ event: "step", step: 6 }, { scale: 4096 }));
  changeLines(log("all-low-seed1"), line({ event: "done" }, { peak_bytes: morePeak }));
  changeLines(log("half-seed0"), line({ event: "done" }, { planned_peak_bytes: lessPlanned }));
  changeLines(log("half-seed0"), line({ event: "promote", step: further.step }, { to: further.to }));
  changeLines(log("s2fp8-seed1"), line({ event: "epoch", epoch: 4 }, { train_loss: 0.625 }));
  changeLines(log("s2fp8-seed0"), line({ event: "epoch", epoch: 4 }, { test_loss: 0.3125 }));
  changeLines(log("all-low-seed0"), line(promotion, { step: promotion.step + 1 }));
  changeLines(log("all-low-seed0"), line({ event: "promote", tensor: regraded.tensor },
                                         { tensor: `${regraded.tensor}.grad` }));
  const ranges = join(root, "half-seed0", "ranges.bin");
  changeRange(ranges, 24, "conv1.out", "amax", 1.625);
  changeRange(ranges, 3, "bn1.out", "overflow", 0.125);
  changeRange(ranges, 10, "conv1.weight", "underflow", 0.25);
  const { tensor, step, value } = overflown;
  changeRange(join(root, "all-low-seed1", "ranges.bin"), step, tensor, "overflow", value);
  const more = (counts) => counts.map((c, i) => (i === 3 ? c + 1000 : c));
  changeLines(join(root, "all-low-seed0", "histograms.jsonl"),
              line({ step: 24, tensor: "conv1.out" }, ({ counts }) => ({ counts: more(counts) })));
  for (const [step, column, value] of shifts) {
    changeLines(join(root, "s2fp8-seed0", "histograms.jsonl"),
                line({ event: "shift", step, tensor: "conv1.out" }, { [column]: value }));
  }
  changeWindow(root, free, "loss", (v) => v * 1.0009765625);
  changeWindow(root, still, "cancelled", (v) => v + 1);
  changeLines(join(root, "step.json"), line({ policy: "fp32" }, ({ kernels }) =>
    ({ kernels: kernels.map((k) => (k.op === "relu" ? { ...k, ms: 0.03125 } : k)) })));
}

function changePlanned(root) {
  copy(runs, root);
  changeOption(join(root, "all-low-seed0", "config.toml"), "batch", 64);
  changeOption(join(root, "fp32-seed1", "config.toml"), "lr", 0.0078125);
  changeOption(join(root, "fp32-seed1", "config.toml"), "seed", 5);
  changeLines(join(root, "step.json"), line({ policy: "size:1" }, { ms: 1.25 }));
}

// Lines of epochs with another metric, made up from the one that is there.
function addMetrics(root) {
  copy(runs, root);
  for (const run of ["half-seed0", "half-seed1", "fp32-seed0", "fp32-seed1"]) {
    const path = join(root, run, "metrics.jsonl");
    const lines = readFileSync(path, "utf8").split("\n").map((text) => {
      if (!text.startsWith('{"event":"epoch"')) return text;
      const one = JSON.parse(text);
      const more = { train_auc: 0.5 + one.train_acc / 2, test_auc: 0.5 + one.test_acc / 2 };
      if (!run.startsWith("fp32")) more.test_auc_fp32 = more.test_auc + 0.0009765625;
      return JSON.stringify({ ...one, ...more });
    });
    writeFileSync(path, lines.join("\n"));
  }
}

// Of the last epochs of half-seed0 and fp32-seed1, which are their best.
export const changedMetrics = { test_auc: 0.984375, test_auc_fp32: 0.9921875, train_auc: 0.96875 };
export const changedLoss = 0.25;

function changeMetrics(root) {
  addMetrics(root);
  const log = (run) => join(root, run, "metrics.jsonl");
  changeLines(log("half-seed0"), line({ event: "epoch", epoch: 4 }, changedMetrics));
  changeLines(log("fp32-seed1"), line({ event: "epoch", epoch: 4 }, { test_loss: changedLoss }));
}

const makers = {
  asMade: () => {}, measured: changeMeasured, planned: changePlanned, judged: addMetrics,
  otherwise: changeMetrics,
};

// Opens these pages.
export const begin = (...wanted) => async () => {
  browser = await launch();
  await Promise.all(wanted.map(async (name) => {
    makers[name](roots[name]);
    const file = join(work, `${name}.html`);
    await report(roots[name], file);
    pages[name] = await open(browser, file);
  }));
};

export const end = () => browser?.close();

// `within`: a plot, where others have such a control too.
export async function choose(tab, control, value, within = "") {
  await tab.selectOption(`${within} select[data-control=${control}]`, value);
  await settled(tab);
}

export const focus = (run) => (tab) => choose(tab, "focus", run);

export const compare = (first, second) => async (tab) => {
  await choose(tab, "first", first);
  await choose(tab, "second", second);
};

export const atStep = (run, step) => async (tab) => {
  await focus(run)(tab);
  await tab.$eval("#network input[data-control=network-step]", (input, value) => {
    input.value = String(value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, step);
  await settled(tab);
};

// A cell that moves; with both values where it is a number of a file.
export const cell = (key, column, from, to) =>
  (to === undefined ? { key, column } : { key, column, from, to });

// What a plot saves equals the files, in `from` and in the copy `to`. Between the two exactly the
// cells of `moved` differ. `keys` cells tell rows apart. `pick`: only this of the table; `picture`:
// whether the shapes differ too.
export async function moves(
  id, to, { from = "asMade", show, keys, check, pick = (rows) => rows, picture = true, moved }) {
  const found = {};
  for (const name of [from, to]) {
    const { tab } = pages[name];
    await show?.(tab);
    await see(tab, id);
    const rows = await table(tab, id);
    await check(rows, roots[name]);
    const drawn = await tab.$(`#${id}.plot`) !== null;
    const svg = drawn ? (await save(tab, id, "SVG")).bytes.toString() : "";
    // Shapes alone: text may differ where nothing is drawn otherwise.
    found[name] = { drawn, rows: pick(rows), shapes: svg.replace(/<text.*?<\/text>/g, "") };
  }
  const before = found[from];
  const now = differences(before.rows, found[to].rows, keys);
  const wanted = moved(before.rows);
  const place = (d) => `${d.key}: ${d.column}`;
  assert(wanted.length > 0);
  assert.deepEqual(now.map(place).sort(), wanted.map(place).sort());
  for (const w of wanted.filter((d) => "to" in d)) {
    const d = now.find((n) => place(n) === place(w));
    assert.deepEqual([d.from, d.to], [text(w.from), text(w.to)], place(w));
  }
  if (before.drawn) {
    assert.equal(before.shapes !== found[to].shapes, picture, `the picture of ${id} moves`);
  }
}
