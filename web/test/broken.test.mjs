// Damaged, unfinished and hostile runs: the page shows what there is, says what is wrong, and
// nothing else breaks.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import {
  appendFileSync, mkdirSync, readFileSync, renameSync, truncateSync, writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { changeLines, changeOption, changeRange, copy, readLines, readRanges } from "./files.mjs";
import {
  byRun, folder, items, launch, marks, open, report, rowsOf, runs, save, see, settled, table,
} from "./page.mjs";

const work = folder();
let browser;

before(async () => { browser = await launch(); });
after(() => browser?.close());

// The page of a folder, and what the program said of it.
async function pageOf(root) {
  const file = `${root}.html`;
  const said = await report(root, file);
  return { file, said, ...await open(browser, file) };
}

// A picture that a reader of XML takes, in which every place is one.
async function picture(tab, id) {
  const svg = (await save(tab, id, "SVG")).bytes.toString();
  const places = svg.replace(/<text.*?<\/text>|<title>.*?<\/title>/gs, "");
  assert(!/NaN|Infinity|undefined/.test(places), `${id}.svg has places that are none`);
  const found = await tab.evaluate((text) => {
    const read = new DOMParser().parseFromString(text, "image/svg+xml");
    const all = [...read.querySelectorAll("*")];
    return {
      error: read.querySelector("parsererror")?.textContent ?? "",
      elements: [...new Set(all.map((e) => e.localName))],
      attributes: [...new Set(all.flatMap((e) => e.getAttributeNames()))],
    };
  }, svg);
  assert.equal(found.error, "", id);
  const known = ["svg", "title", "rect", "circle", "path", "text", "g", "clipPath"];
  assert.deepEqual(found.elements.filter((e) => !known.includes(e)), [], id);
  assert.deepEqual(found.attributes.filter((a) => /^on|href/i.test(a)), [], id);
  return svg;
}

// Looks at everything: what has data is drawn, what has none says why.
async function looksSound({ tab, wrong }) {
  for (const id of await items(tab)) {
    await see(tab, id);
    const why = await tab.$(`#${id}.without-data > .nothing`);
    if (why) {
      assert.notEqual(await why.textContent(), "", id);
    } else if (await tab.$(`#${id}.plot`)) {
      assert(await marks(tab, id) > 0, `${id} is drawn`);
      await picture(tab, id);
    }
  }
  const sideways = await tab.evaluate(() =>
    document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(sideways, 0, "no scrolling sideways");
  assert.deepEqual(wrong, []);
}

// What the page says is odd about a run, once it is selected.
async function notesOf(tab, run) {
  await tab.$$eval("#runs tr[data-run]", (all, id) =>
    all.find((r) => r.dataset.run === id).querySelector("td").click(), run);
  await settled(tab);
  const notes = await tab.$$eval("#runs .notes li", (all) => all.map((e) => e.textContent));
  await tab.click("#runs .bar button");
  await settled(tab);
  return notes.map((n) => n.slice(run.length + 2));
}

test("files that end within a line", async () => {
  const root = join(work, "cut");
  const cut = (name, of, file, at) => {
    copy(join(runs, of), join(root, name));
    const path = join(root, name, file);
    const text = readFileSync(path, "utf8");
    writeFileSync(path, text.slice(0, at(text)));
  };
  const log = "metrics.jsonl";
  const within = (start) => (text) => text.indexOf(start) + start.length;
  const torn = (line) => [`line ${line} of ${log} is torn: the run ended while it was written`];
  const wanted = {};
  const add = (name, steps, state, notes) => { wanted[name] = { steps, state, notes }; };
  const step = (n) => `{"event":"step","step":${n},"lo`;
  const line = (text, start) => text.slice(0, text.indexOf(start)).split("\n").length;
  const whole = readFileSync(join(runs, "half-seed0", log), "utf8");

  cut("in-a-step", "half-seed0", log, within(step(9)));
  add("in-a-step", 8, "stopped", torn(line(whole, step(9))));
  cut("in-an-epoch", "half-seed0", log, within('{"event":"epoch","epoch":2,"train'));
  add("in-an-epoch", 12, "stopped", torn(line(whole, '{"event":"epoch","epoch":2')));
  // The line is whole, only its end is missing.
  cut("at-the-end", "half-seed0", log, (t) => t.indexOf("\n", t.indexOf(step(9))));
  add("at-the-end", 9, "stopped", []);
  cut("in-the-first", "half-seed0", log, () => 25);
  add("in-the-first", 0, "empty", torn(1));
  cut("nothing", "half-seed0", log, () => 0);
  add("nothing", 0, "empty", []);
  // What was torn is followed by more, as after a full disk.
  cut("in-between", "half-seed0", log, (t) => t.length);
  writeFileSync(join(root, "in-between", log), whole.replace(/("step":9,"lo).*\n/, "$1"));
  add("in-between", 22, "done",
      [`line ${line(whole, step(9))} of ${log} is no JSON object, as every line of a run is`]);
  cut("histograms", "all-low-seed0", "histograms.jsonl", within('"step":24,"tensor":"conv1.out"'));
  add("histograms", 24, "done",
      ["line 17 of histograms.jsonl is torn: the run ended while it was written"]);
  copy(join(runs, "all-low-seed0"), join(root, "ranges"));
  const ranges = join(root, "ranges", "ranges.bin");
  truncateSync(ranges, readFileSync(ranges).length - 100);
  add("ranges", 24, "done", []);

  const page = await pageOf(root);
  const { tab } = page;
  const found = byRun(await table(tab, "runs"));
  assert.deepEqual([...found.keys()].sort(), Object.keys(wanted).sort());
  const curves = rowsOf(await table(tab, "curves"));
  for (const [name, { steps, state, notes }] of Object.entries(wanted)) {
    assert.deepEqual([found.get(name).steps, found.get(name).state],
                     [name === "in-between" ? "24" : `${steps}`, state], name);
    assert.equal(curves.filter((r) => r.run === name).length, steps, `${name}: steps drawn`);
    assert.deepEqual(await notesOf(tab, name), notes, name);
    const first = await tab.textContent(`#runs tr[data-run="${name}"] td`);
    assert.equal(first.includes("(!)"), notes.length > 0, `${name} is marked in the table`);
    for (const note of notes) assert(page.said.stderr.includes(`note: ${name}: ${note}`), name);
  }
  const focus = (name) => tab.selectOption("select[data-control=focus]", name);
  await focus("ranges");
  await see(tab, "heat");
  const heat = rowsOf(await table(tab, "heat"));
  assert.equal(Math.max(...heat.map((r) => Number(r.step))), 23, "the torn record is left out");
  await focus("histograms");
  await see(tab, "histograms");
  assert.equal(rowsOf(await table(tab, "histograms"))[0].step, "12", "the torn line is left out");
  for (const name of ["histograms", "in-a-step", "nothing"]) {
    await focus(name);
    await looksSound(page);
  }
  await page.context.close();
});

// Every loss of a run as it is where training is lost.
function lose(path, from) {
  const lines = readLines(path).map((l) => {
    if (l.event === "step" && l.step === from) return { ...l, loss: "inf" };
    if (l.event === "step" && l.step > from) return { ...l, loss: "nan" };
    if (l.event !== "epoch" || from > 6 * l.epoch) return l;
    return { ...l, train_loss: "nan", test_loss: "nan", test_acc: 0.1, test_acc_fp32: 0.1 };
  });
  writeFileSync(path, lines.map((l) => `${JSON.stringify(l)}\n`).join(""));
}

test("losses that are no numbers", async () => {
  const root = join(work, "lost");
  copy(join(runs, "diverged"), join(root, "diverged"));
  for (const [name, from] of [["always", 1], ["later", 8]]) {
    copy(join(runs, "all-low-seed0"), join(root, name));
    lose(join(root, name, "metrics.jsonl"), from);
    for (const step of [9, 10, 11]) {
      changeRange(join(root, name, "ranges.bin"), step, "conv1.out", "amax", NaN);
    }
    changeRange(join(root, name, "ranges.bin"), 12, "conv1.out", "amax", Infinity);
  }
  const page = await pageOf(root);
  const { tab } = page;
  const found = byRun(await table(tab, "runs"));
  assert.deepEqual(["diverged", "always", "later"].map((n) => found.get(n).state),
                   ["diverged", "done", "done"]);
  assert.deepEqual(["always", "later"].map((n) => found.get(n)["training loss"]), ["nan", "nan"]);
  const best = readLines(join(runs, "all-low-seed0", "metrics.jsonl"))
    .find((l) => l.event === "epoch").test_acc;
  assert.deepEqual(["always", "later"].map((n) => found.get(n).best), ["", `${best}`],
                   "an epoch without a loss is not the best");
  // Nor is its accuracy one that anybody should read as such.
  const lastOf = (run) => tab.textContent(`#runs tr[data-run="${run}"] td:nth-child(5)`);
  assert.deepEqual(await Promise.all(["diverged", "always", "later"].map(lastOf)),
                   ["–", "NaN", "NaN"]);
  const [why] = await notesOf(tab, "diverged");
  assert.match(why, /^diverged: no loss from step 2 to step 5 is finite; .*conv1\.out/);

  const losses = rowsOf(await table(tab, "curves")).filter((r) => r.run === "later")
    .map((r) => r["training loss"]);
  assert(losses.slice(0, 7).every((v) => Number(v) > 0));
  assert.deepEqual(losses.slice(7), ["inf", ...Array(16).fill("nan")]);
  // A cross where each run stops being finite.
  const warn = "#b3261e";
  await see(tab, "curves");
  const svg = (await save(tab, "curves", "SVG")).bytes.toString();
  assert.equal(svg.split(`stroke="${warn}"`).length - 1, 3, "crosses");

  await tab.selectOption("select[data-control=focus]", "later");
  await see(tab, "heat");
  const heat = rowsOf(await table(tab, "heat")).filter((r) => r.tensor === "conv1.out");
  assert.deepEqual(heat.slice(7, 13).map((r) => (Number(r.amax) > 0 ? "" : r.amax)),
                   ["", "nan", "nan", "nan", "inf", ""]);
  for (const measure of ["underflow", "amax", "format", "overflow"]) {
    await tab.selectOption("#heat select[data-control=heat-measure]", measure);
    await settled(tab);
    const colours = await picture(tab, "heat");
    if (measure === "amax") assert(colours.includes(`fill="${warn}"`), "NaN has a colour");
  }
  // Whatever is shown, whichever way.
  const all = await tab.$$eval("#curves select[data-control=series] option", (o) =>
    o.map((e) => e.value));
  assert(all.length > 10);
  for (const run of [[], ["always"]]) {
    for (const id of run) await tab.click(`#runs tr[data-run="${id}"] td`);
    for (const series of all) {
      await see(tab, "curves");
      await tab.selectOption("#curves select[data-control=series]", series);
      await tab.$eval("#curves input[data-control=log]", (e) => e.click());
      await settled(tab);
      await picture(tab, "curves");
    }
    await looksSound(page);
  }
  await page.context.close();
});

test("a run that goes on", async () => {
  const root = join(work, "going");
  const copied = join(root, "now");
  copy(join(runs, "half-seed0"), copied);
  const log = join(copied, "metrics.jsonl");
  const text = readFileSync(log, "utf8");
  writeFileSync(log, text.slice(0, text.indexOf('{"event":"step","step":16') + 40));
  copy(join(runs, "half-seed1"), join(root, "done"));
  // As training holds it.
  const child = spawn("flock", [join(copied, ".lock"), "sh", "-c", "echo held; cat"],
                      { stdio: ["pipe", "pipe", "inherit"] });
  try {
    await new Promise((held, failed) => {
      child.stdout.once("data", held);
      child.once("error", failed);
      child.once("exit", () => failed(new Error("flock ended")));
    });
    const page = await pageOf(root);
    const { now } = Object.fromEntries(byRun(await table(page.tab, "runs")));
    assert.deepEqual([now.state, now.steps, now["total steps"]], ["running", "15", "24"]);
    // The line that is being written is nothing odd.
    assert.deepEqual(await notesOf(page.tab, "now"), []);
    const cells = await page.tab.$$eval('#runs tr[data-run="now"] td', (c) =>
      c.map((e) => e.textContent.trim()));
    assert.deepEqual(cells.slice(0, 3), ["now", "running", "62.5%"]);
    const curve = rowsOf(await table(page.tab, "curves")).filter((r) => r.run === "now");
    assert.equal(curve.length, 15);
    await see(page.tab, "tradeoff");
    // Not of finished runs alone: hollow, and on no front.
    const dots = rowsOf(await table(page.tab, "tradeoff"));
    assert(dots.every((d) => d["group on the front"] === "no"));
    await page.tab.selectOption("select[data-control=focus]", "now");
    await looksSound(page);
    await page.context.close();
  } finally {
    const gone = new Promise((done) => child.once("close", done));
    child.stdin.end();
    await gone;
  }
  const page = await pageOf(root);
  assert.equal(byRun(await table(page.tab, "runs")).get("now").state, "stopped");
  assert.match((await notesOf(page.tab, "now"))[0], /is torn/);
  await page.context.close();
});

// Each would leave a mark if anything took it for more than text.
const attack = (n) =>
  `"'><img src=x onerror="window.hostile=${n}"></script><script>window.hostile=${n}</script>`;
const hostile = [
  // Folders within one another make a slash.
  "<script>window.hostile=1</script>",
  `"><img src=x onerror='window.hostile=2'>`,
  "<!--<script>",
  "]]>&lt;&amp;'\"`${window.hostile=3}`",
  "a\tb\u001b[31mred\u0007\u007f\r\nnext \u0001",
  "right \u202eleft\u2028line\u2029",
  "=HYPERLINK(\"#\")",
  "-1+1",
  "__proto__",
  "constructor",
  " ",
  "x".repeat(255),
  "𝒳\u0301 日本語",
];

test("hostile names and texts", async () => {
  const root = join(work, "hostile");
  mkdirSync(root);
  for (const [i, name] of hostile.entries()) {
    copy(join(runs, ["all-low-seed0", "s2fp8-seed0", "half-seed0"][i % 3]), join(root, name));
  }
  const [first, second] = hostile;
  // A name that is no UTF-8.
  copy(join(runs, "cut"), join(root, "raw"));
  const noText = Buffer.from([0xff, 0xfe]);
  renameSync(join(root, "raw"), Buffer.concat([Buffer.from(`${root}/raw `), noText]));
  // Text of the configuration, of errors, and of a configuration that cannot be read.
  for (const [i, option] of ["data_dir", "init", "histograms", "out"].entries()) {
    changeOption(join(root, second, "config.toml"), option, JSON.stringify(attack(10 + i)));
  }
  const failed = join(root, "failed");
  copy(join(runs, "half-seed1"), failed);
  const log = join(failed, "metrics.jsonl");
  const lines = readLines(log).filter((l) => l.event !== "done");
  writeFileSync(log, lines.map((l) => `${JSON.stringify(l)}\n`).join(""));
  writeFileSync(join(failed, "error.txt"), `first line\n${attack(20)}\u001b[31m\n`);
  appendFileSync(log, `{"event":"epoch","metric":${JSON.stringify(attack(21))}}\n${attack(22)}\n`);
  const unread = join(root, "unread");
  copy(join(runs, "fp32-seed0"), unread);
  changeOption(join(unread, "config.toml"), "policy", JSON.stringify(attack(23)));
  // Names of tensors, in every file that has some.
  const bad = attack(30);
  const tensors = join(root, first);
  const rename = (path) => writeFileSync(path, readFileSync(path, "utf8")
    .replaceAll('"tensor":"conv1.out"', `"tensor":${JSON.stringify(bad)}`));
  rename(join(tensors, "metrics.jsonl"));
  rename(join(tensors, "histograms.jsonl"));
  const ranges = join(tensors, "ranges.bin");
  const { bytes, records: [{ at }] } = readRanges(ranges);
  const head = JSON.parse(bytes.subarray(0, at).toString());
  head.tensors.find((t) => t.name === "conv1.out").name = bad;
  const begin = Buffer.from(`${JSON.stringify(head)}\n`);
  writeFileSync(ranges, Buffer.concat([begin, bytes.subarray(at)]));
  // Benchmarks and experiments.
  copy(join(runs, "step.json"), join(root, "step.json"));
  const bench = join(root, "step.json");
  changeLines(bench, (l) => l.policy === "fp32" && Object.assign(l, {
    device: attack(40),
    kernels: l.kernels.map((k) => ({ ...k, op: attack(41), kernel: attack(42) })),
  }));
  changeLines(bench, (l) => l.policy === "size:1" && Object.assign(l, { model: attack(43) }));
  const squares = join(root, second.replace("2", "50"));
  copy(join(runs, "least-squares"), squares);
  const csv = join(squares, "least-squares.csv");
  writeFileSync(csv, readFileSync(csv, "utf8").replace(/^fp32,/gm, `${attack(51)},`));

  const page = await pageOf(root);
  const { tab } = page;
  const text = readFileSync(page.file, "utf8");
  assert(!/<script>window|<img/.test(text), "markup in the file");
  assert.equal(text.split("<script").length - 1, 2, "scripts in the file");

  // The names as they are, but for what no text can hold.
  const ids = [...hostile, "raw \ufffd\ufffd", "failed", "unread"];
  const shown = await tab.$$eval("#runs tr[data-run]", (all) => all.map((r) => r.dataset.run));
  assert.deepEqual([...shown].sort(), [...ids].sort());
  const cells = await tab.$$eval("#runs tr[data-run] td:first-child", (all) =>
    all.map((c) => c.textContent.replace(/ \(!\)$/, "")));
  assert.deepEqual(cells, shown);
  const formula = (id) => (/^[=+\-@\t\r]/.test(id) ? `'${id}` : id);
  assert.deepEqual((await table(tab, "runs")).slice(1).map((r) => r[0]), shown.map(formula));

  const notes = await tab.$$eval(".report-notes li", (all) => all.map((e) => e.textContent));
  assert(notes.some((n) => n.includes(`unknown model '${attack(43)}'`)), notes.join("; "));
  const states = new Map(rowsOf(await table(tab, "runs")).map((r) => [r.run, r.state]));
  assert.equal(states.get("failed"), "failed");
  assert((await notesOf(tab, "failed")).includes(`it failed: ${attack(20)}\u001b[31m`));
  assert((await notesOf(tab, "unread")).some((n) => n.includes(attack(23))));
  await tab.selectOption("select[data-control=first]", second);
  await tab.selectOption("select[data-control=second]", first);
  await settled(tab);
  const settings = new Map((await table(tab, "difference")).slice(1).map((r) => [r[0], r[1]]));
  for (const [i, option] of ["data_dir", "init", "histograms"].entries()) {
    assert.equal(settings.get(option), attack(10 + i), option);
  }
  assert(!settings.has("out"), "where a run was written is no difference");
  for (const id of ids) {
    await tab.selectOption("select[data-control=focus]", id);
    for (const plot of ["heat", "network"]) await see(tab, plot);
  }
  await tab.selectOption("select[data-control=focus]", first);
  await looksSound(page);
  // Chosen in one plot, it is spoken of in the others.
  await see(tab, "histograms");
  await tab.selectOption("#histograms select[data-control=histogram-tensor]", bad);
  await settled(tab);
  assert.notEqual(await tab.textContent("[data-control=heat-words]"), "", "the doctor's words");
  for (const [plot, said] of [
    ["heat", bad], ["overflow", bad], ["histograms", bad], ["speed", attack(40)],
    ["leastsquares", attack(51)],
  ]) {
    await see(tab, plot);
    await picture(tab, plot);
    assert((await table(tab, plot)).some((r) => r[0].includes(said)), plot);
  }
  await tab.fill("#filter", "<script>window.hostile=1<");
  await tab.waitForTimeout(200);
  await settled(tab);
  assert.equal((await tab.$$("#runs tr[data-run]")).length, 1);

  const made = await tab.evaluate(() => ({
    hostile: window.hostile ?? null,
    elements: document.querySelectorAll("img, iframe, object, embed, form, base, svg").length,
    scripts: document.scripts.length,
    handlers: [...document.querySelectorAll("*")].flatMap((e) => e.getAttributeNames())
      .filter((a) => a.startsWith("on")),
  }));
  assert.deepEqual(made, { hostile: null, elements: 0, scripts: 2, handlers: [] });
  assert.deepEqual(page.wrong, []);
  await page.context.close();
});
