// Many runs and long ones: the page opens, all is drawn, and how much is drawn depends on the pixels
// and not on the runs.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { readLines } from "./files.mjs";
import { copyRun, makeRuns } from "./many.mjs";
import { draws, folder, items, launch, marks, open, report, save, see, settled, table } from "./page.mjs";

const work = folder();
let browser;

before(async () => { browser = await launch(); });
after(() => browser?.close());

async function pageOf(root, options) {
  const file = `${root}.html`;
  await report(root, file);
  return { file, ...await open(browser, file, options) };
}

// Looks at all plots. `lines`: how many curves there are at most.
async function drawn({ tab, wrong }, lines) {
  for (const id of await items(tab, "section.plot")) {
    await see(tab, id);
    if (await tab.$(`#${id}.without-data`)) {
      assert.notEqual(await tab.textContent(`#${id} > .nothing`), "", id);
      continue;
    }
    const { width, height } = await tab.locator(`#${id} .stage`).boundingBox();
    const count = await marks(tab, id);
    // A curve: the line and the smoothed one, and of few runs the ends of buckets; each with the
    // least and the largest value of every column.
    const each = lines > 6 ? 2 : 4;
    const most = /curves/.test(id) ? lines * each * 2 * width : (width * height) / 4;
    assert(count > 0 && count < most, `${id}: ${count} marks in ${width} x ${height} pixels`);
  }
  assert.deepEqual(wrong, []);
}

async function focus(tab, run) {
  await tab.selectOption("select[data-control=focus]", run);
  await settled(tab);
}

test("1,000 runs", async () => {
  const root = join(work, "thousand");
  copyRun(root, 1000);
  const page = await pageOf(root);
  const { tab } = page;
  assert.equal(await tab.textContent("#runs .status"), "1000 runs");
  const rows = () => tab.$$eval("#runs tr[data-run]", (r) => r.map((e) => e.dataset.run));
  assert((await rows()).length < 100, "only the rows in view are there");
  await tab.$eval("#runs .rows", (box) => box.scrollTo(0, box.scrollHeight));
  await settled(tab);
  assert.equal((await rows()).at(-1), "copy-0999");
  assert.equal((await table(tab, "runs")).length, 1001);
  await drawn(page, 40);
  assert.equal(await marks(tab, "tradeoff"), 1001, "every run and their mean");
  await see(tab, "curves");
  const curves = (await table(tab, "curves")).slice(1);
  assert.equal(new Set(curves.map((r) => r[0])).size, 40);
  assert((await save(tab, "curves", "SVG")).bytes.includes("the first 40 of 1000 runs"));
  // What had no room is said to be left out, not to be missing.
  await focus(tab, "copy-0999");
  await see(tab, "heat");
  assert.match(await tab.textContent("#heat > .nothing"), /left out: the report has too many runs/);
  await tab.fill("#filter", "seed:737");
  await tab.waitForFunction(() =>
    document.querySelector("#runs .status").textContent === "1 of 1000 runs");
  await drawn(page, 2);
  await page.context.close();
});

test("200 runs of 200 epochs", async () => {
  const root = join(work, "many");
  makeRuns(root, 200, { epochs: 200, stepsPerEpoch: 10 });
  const page = await pageOf(root);
  const { tab } = page;
  await drawn(page, 40);
  await see(tab, "tradeoff");
  assert.equal(await marks(tab, "tradeoff"), 220);
  // A run that is not among the first is drawn once it is chosen, from all its steps.
  const run = "lr019-seed9";
  await tab.$eval("#runs .rows", (box) => box.scrollTo(0, box.scrollHeight));
  await settled(tab);
  await tab.click(`#runs tr[data-run="${run}"] td`);
  await settled(tab);
  await see(tab, "curves");
  const found = (await table(tab, "curves")).slice(1);
  const steps = readLines(join(root, run, "metrics.jsonl")).filter((l) => l.event === "step");
  assert.deepEqual(found.map(([id, step, loss]) => [id, Number(step), Number(loss)]),
                   steps.map((l) => [run, l.step, l.loss]));
  await drawn(page, 2);
  await page.context.close();
});

test("a run of 100,000 steps", async () => {
  const root = join(work, "long");
  makeRuns(root, 1, { epochs: 100, stepsPerEpoch: 1000 });
  const page = await pageOf(root);
  const { tab } = page;
  await drawn(page, 2);
  const wide = await marks(tab, "curves");
  // Each point is of so many steps, and of all of them.
  await see(tab, "curves");
  const [columns, ...found] = await table(tab, "curves");
  const at = (name) => columns.indexOf(name);
  const losses = readLines(join(root, "lr000-seed0", "metrics.jsonl"))
    .filter((l) => l.event === "step").map((l) => l.loss);
  const stride = Number(found[0][at("step")]);
  assert(found.length <= 4000 && found.length === Math.ceil(losses.length / stride));
  found.forEach((row, i) => {
    const of = losses.slice(i * stride, (i + 1) * stride);
    const mean = of.reduce((a, b) => a + b, 0) / of.length;
    assert.equal(Number(row[at("step")]), Math.min(losses.length, (i + 1) * stride));
    const far = Math.abs(Number(row[at("training loss")]) - mean);
    assert(far <= 2 ** -23 * mean, `bucket ${i}: ${row}, not ${mean}`);
    for (const [name, end] of [["lowest", Math.min(...of)], ["highest", Math.max(...of)]]) {
      assert.equal(Math.fround(Number(row[at(name)])), Math.fround(end), `bucket ${i}, ${name}`);
    }
  });
  // Zoomed in there are fewer steps; a narrow page has fewer columns.
  const before = await draws(tab, "curves");
  const { x, y, width, height } = await tab.locator("#curves .stage").boundingBox();
  await tab.mouse.move(x + width / 2, y + height / 3);
  await tab.mouse.down();
  await tab.mouse.move(x + width / 2 + 40, y + height / 3, { steps: 4 });
  await tab.mouse.up();
  await settled(tab);
  assert(await draws(tab, "curves") > before && await marks(tab, "curves") < wide / 3, "zoomed");
  const narrow = await open(browser, page.file, { viewport: { width: 400, height: 900 } });
  await drawn(narrow, 2);
  assert(await marks(narrow.tab, "curves") < (wide * 2) / 3, "narrow");
  await narrow.context.close();
  await page.context.close();
});
