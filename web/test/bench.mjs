// How long reports of few, many and long runs take to make and to open. Nothing is asserted: the
// times are those of this machine. Each is the median of three.
import { statSync } from "node:fs";
import { join } from "node:path";
import { copyRun, makeRuns } from "./many.mjs";
import { folder, launch, open, report, runs } from "./page.mjs";

const work = folder();
const [many, long, thousand] = ["many", "long", "thousand"].map((name) => join(work, name));
const cases = [
  ["10 runs", runs, () => {}],
  ["200 runs of 200 epochs, 20 steps each", many,
   () => makeRuns(many, 200, { epochs: 200, stepsPerEpoch: 20 })],
  ["1 run of 100,000 steps", long, () => makeRuns(long, 1, { epochs: 100, stepsPerEpoch: 1000 })],
  ["1,000 runs of 24 steps", thousand, () => copyRun(thousand, 1000)],
];

const median = (values) => [...values].sort((a, b) => a - b)[(values.length - 1) / 2];

async function seconds(what) {
  const begin = performance.now();
  await what();
  return (performance.now() - begin) / 1e3;
}

// Whether the plots whose ids are named, or all of them, are drawn or say why they are not.
const areDrawn = (ids) => {
  const all = ids.map((id) => document.getElementById(id));
  const plots = ids.length ? all : [...document.querySelectorAll("section.plot")];
  return plots.length > 0 && plots.every((s) => s?.dataset.draws !== undefined);
};

// Opens the page in a window so high that nothing is out of sight, or in a usual one.
async function opening(browser, file, height, ids) {
  const viewport = { width: 1400, height };
  let page;
  const time = await seconds(async () => {
    page = await open(browser, file, { viewport });
    await page.tab.waitForFunction(areDrawn, ids, { timeout: 60_000 });
  });
  const marks = await page.tab.$$eval("section.plot", (all) =>
    all.reduce((sum, s) => sum + Number(s.dataset.marks ?? 0), 0));
  await page.context.close();
  if (page.wrong.length) throw new Error(page.wrong.join("\n"));
  return { time, marks };
}

const browser = await launch();
const cells = (...all) => console.log(all.map((c, i) => (i ? c.padStart(13) : c.padEnd(40))).join(""));
cells("seconds", "ulp report", "first plot", "all drawn", "marks", "MiB");
for (const [name, root, make] of cases) {
  make();
  const file = join(work, "page.html");
  const made = [];
  const first = [];
  const all = [];
  for (let i = 0; i < 3; i++) {
    made.push(await seconds(() => report(root, file)));
    first.push((await opening(browser, file, 900, ["tradeoff"])).time);
    all.push(await opening(browser, file, 16_000, []));
  }
  cells(name, median(made).toFixed(2), median(first).toFixed(2),
        median(all.map((a) => a.time)).toFixed(2), String(all[0].marks),
        (statSync(file).size / 2 ** 20).toFixed(1));
}
await browser.close();
