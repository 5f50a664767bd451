// The runs of the tests and two copies of them in which single numbers are others, each as a page;
// and holding what a page saves to the files and to what was changed in them.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "./compare.mjs";
import { changeLines, changeOption, changeRange, copy, differences } from "./files.mjs";
import { folder, launch, open, report, runs, save, see, settled, table } from "./page.mjs";
import { leastSquares, metrics } from "./raw.mjs";

const work = folder();
// As the runs are; with numbers changed that training measured; with others that decide a plan.
export const roots = {
  asMade: runs, measured: join(work, "measured"), planned: join(work, "planned"),
};
export const pages = {};
export const names = readdirSync(runs, { withFileTypes: true })
  .filter((e) => e.isDirectory() && e.name !== "least-squares").map((e) => e.name).sort();
let browser;

// The promotion of the last step in which there was one.
export const promotion = metrics(join(runs, "all-low-seed0")).promote.at(-1);
// One that stays the largest of its tensor, so that the tensors that are drawn are the same.
export const overflown = { tensor: "layer1.0.add.out", step: 1, value: 0.0625 };
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
  changeLines(log("s2fp8-seed1"), line({ event: "epoch", epoch: 4 }, { train_loss: 0.625 }));
  changeLines(log("all-low-seed0"), line(promotion, { step: promotion.step + 1 }));
  changeRange(join(root, "half-seed0", "ranges.bin"), 24, "conv1.out", "amax", 1.625);
  const { tensor, step, value } = overflown;
  changeRange(join(root, "all-low-seed1", "ranges.bin"), step, tensor, "overflow", value);
  const more = (counts) => counts.map((c, i) => (i === 3 ? c + 1000 : c));
  changeLines(join(root, "all-low-seed0", "histograms.jsonl"),
              line({ step: 24, tensor: "conv1.out" }, ({ counts }) => ({ counts: more(counts) })));
  changeLines(join(root, "s2fp8-seed0", "histograms.jsonl"),
              line({ event: "shift", step: 12, tensor: "conv1.out" }, { mu: -0.8125 }));
  changeWindow(root, free, "loss", (v) => v * 1.0009765625);
  changeWindow(root, still, "cancelled", (v) => v + 1);
  changeLines(join(root, "step.json"), line({ policy: "fp32" }, ({ kernels }) =>
    ({ kernels: kernels.map((k) => (k.op === "relu" ? { ...k, ms: 0.0625 } : k)) })));
}

function changePlanned(root) {
  copy(runs, root);
  changeOption(join(root, "all-low-seed0", "config.toml"), "batch", 64);
  changeLines(join(root, "step.json"), line({ policy: "size:1" }, { ms: 1.25 }));
}

export async function begin() {
  changeMeasured(roots.measured);
  changePlanned(roots.planned);
  browser = await launch();
  await Promise.all(Object.entries(roots).map(async ([name, root]) => {
    const file = join(work, `${name}.html`);
    await report(root, file);
    pages[name] = await open(browser, file);
  }));
}

export const end = () => browser?.close();

export async function choose(tab, control, value) {
  await tab.selectOption(`select[data-control=${control}]`, value);
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

// What a plot saves equals the files, as made and in the copy `to`. Between the two exactly the
// cells of `moved` differ. `keys` cells tell rows apart. `pick`: only this of the table; `picture`:
// whether the shapes differ too.
export async function moves(
  id, to, { show, keys, check, pick = (rows) => rows, picture = true, moved }) {
  const found = {};
  for (const name of ["asMade", to]) {
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
  const { asMade } = found;
  const now = differences(asMade.rows, found[to].rows, keys);
  const wanted = moved(asMade.rows);
  const place = (d) => `${d.key}: ${d.column}`;
  assert(wanted.length > 0);
  assert.deepEqual(now.map(place).sort(), wanted.map(place).sort());
  for (const w of wanted.filter((d) => "to" in d)) {
    const d = now.find((n) => place(n) === place(w));
    assert.deepEqual([d.from, d.to], [text(w.from), text(w.to)], place(w));
  }
  if (asMade.drawn) {
    assert.equal(asMade.shapes !== found[to].shapes, picture, `the picture of ${id} moves`);
  }
}
