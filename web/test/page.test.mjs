// The page of real runs, used as a reader would use it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pngSize } from "./files.mjs";
import {
  cutLabels, documentOf, draws, folder, hover, items, launch, marks, open, parseCsv, report, runs,
  save, see, settled, tip,
} from "./page.mjs";

const work = folder();
const file = join(work, "report.html");
let browser;
let doc;
let page; // { tab, wrong, context }

before(async () => {
  await report(runs, file);
  doc = documentOf(file);
  browser = await launch();
  page = await open(browser, file);
});
after(() => browser?.close());

const plots = (tab) => items(tab, "section.plot");

// Shows one run in the plots of one run.
async function focus(tab, run) {
  await tab.selectOption("select[data-control=focus]", run);
  await settled(tab);
}

// Whatever the tests before have done.
async function fresh(tab) {
  await tab.fill("#filter", "");
  await settled(tab);
  await tab.waitForTimeout(150);
  const clear = tab.locator("#runs .bar button");
  if (await clear.isVisible()) await clear.click();
  await tab.selectOption("select[data-control=focus]", "all-low-seed0");
  await settled(tab);
}

test("every plot is drawn from the runs, and nothing is asked or complained of", async () => {
  const { tab, wrong } = page;
  const all = await plots(tab);
  assert.equal(all.length, 16);
  for (const id of all) {
    await see(tab, id);
    // What S2FP8 stores and what a run without narrow tensors has are of different runs.
    await focus(tab, id === "shifted" ? "s2fp8-seed0" : "all-low-seed0");
    await see(tab, id);
    assert.equal(await tab.$(`#${id}.without-data`), null, `${id} has data`);
    assert(await marks(tab, id) > 0, `${id} is drawn`);
    const { width, height } = await tab.locator(`#${id} .stage`).boundingBox();
    assert(await marks(tab, id) < width * height / 4, `${id}: marks are bounded by pixels`);
    // A canvas of one colour would be an empty picture.
    const colours = await tab.$eval(`#${id} .stage`, (stage) => {
      const canvas = [...stage.querySelectorAll("canvas")].find((c) => !c.hidden && c.width > 1);
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const words = new Uint32Array(data.buffer);
      return new Set(words).size;
    });
    assert(colours > 4, `${id}: ${colours} colours`);
  }
  await fresh(tab);
  for (const id of await items(tab, "section.panel")) {
    assert.equal(await tab.$(`#${id}.without-data`), null, `${id} has data`);
  }
  assert.deepEqual(wrong, []);
});

// What a tooltip of each plot says must be a number of the document.
const first = (run) => doc.runs.find((r) => r.id === run);
const text = (value) => String(Number(value.toPrecision(6)));
const spoken = {
  tradeoff: () => doc.runs.map((r) => `${Number((r.summary.best * 100).toPrecision(4))}%`),
  lowratio: () => doc.runs.map((r) => `${Number((r.summary.lowLast * 100).toPrecision(3))}%`),
  curves: () => doc.runs.flatMap((r) => r.curve.loss.filter(Number.isFinite).map(text)),
  "curves-metric": () =>
    doc.runs.flatMap((r) => r.epochs.test.map((v) => `${Number((v * 100).toPrecision(4))}%`)),
  heat: () => first("all-low-seed0").heat.tensors.map((t) => t.name),
  overflow: () => first("all-low-seed0").heat.tensors.map((t) => t.name),
  memory: () => doc.plans.flatMap((p) => (p.detail?.blocks ?? [])
    .map((b) => `${b.bytes.toLocaleString("en-US")} bytes`)),
  histograms: () => first("all-low-seed0").histograms.flatMap((h) =>
    h.counts.map((c) => `${c.toLocaleString("en-US")} of `)),
  shifted: () => first("s2fp8-seed0").shifted.flatMap((s) => s.mu.map((v) => `μ ${text(v)}`))
    .map((t) => t.replace("μ -", "μ -")),
  network: () => doc.plans.flatMap((p) => p.tensors.map((t) => `${t.name}: `)),
  "difference-memory": () => doc.plans.flatMap((p) => Object.values(p.use)
    .map((b) => `${b.toLocaleString("en-US")} bytes`)),
  "difference-curves": () => spoken.curves(),
  speed: () => doc.benches.flatMap((b) => b.kernels.map((k) => `${k.op}: ${k.kernel}`)),
  "speed-aggregate": () => doc.benches.map((b) => b.model),
  leastsquares: () => doc.leastSquares[0].variants.flatMap((v) => v.loss.map(text)),
  "leastsquares-cancelled": () => doc.leastSquares[0].variants.flatMap((v) =>
    v.cancelled.filter((c) => c !== null).map((c) => `${Number((c * 100).toPrecision(3))}%`)),
};

test("hover gives numbers of the document", async () => {
  const { tab } = page;
  await fresh(tab);
  for (const id of await plots(tab)) {
    if (id === "shifted") await focus(tab, "s2fp8-seed0");
    assert(spoken[id], `${id}: nothing is known of its tooltip`);
    const numbers = [...new Set(spoken[id]())];
    const { text: said } = await hover(tab, id, numbers);
    assert(numbers.some((n) => said.includes(n)), `${id}: ${said}`);
    if (id === "shifted") await focus(tab, "all-low-seed0");
  }
});

test("a click in one plot is seen in the others", async () => {
  const { tab } = page;
  await fresh(tab);
  // A configuration: its runs are chosen in the table and drawn alone.
  await see(tab, "curves");
  const all = await marks(tab, "curves");
  const dot = await hover(tab, "tradeoff", ["mean of 2 seeds"]);
  await tab.mouse.click(dot.x, dot.y);
  await settled(tab);
  const chosen = await tab.$$eval("#runs tr[aria-selected=true] td:first-child", (c) =>
    c.map((e) => e.textContent.trim()));
  assert.equal(chosen.length, 2);
  assert.equal(new Set(chosen.map((c) => c.replace(/\d$/, ""))).size, 1, "of one configuration");
  await see(tab, "curves");
  assert(await marks(tab, "curves") < all / 3, "the curves are those of the chosen runs");
  const pair = await tab.$$eval("#difference thead th", (h) => h.map((e) => e.textContent));
  for (const run of chosen) assert(pair.includes(run), "the chosen runs are compared");

  // A tensor: a cell of the map chooses it in the plots of one run.
  await fresh(tab);
  await tab.selectOption("#heat select[data-control=heat-kind]", "weight");
  const cell = await hover(tab, "heat", ["conv1.weight"]);
  const tensor = cell.text.split("\n")[0];
  const before = {};
  for (const id of ["memory", "network", "overflow"]) before[id] = await draws(tab, id);
  await tab.mouse.click(cell.x, cell.y);
  await settled(tab);
  const words = await tab.textContent("[data-control=heat-words]");
  assert(words.includes(tensor), "the doctor's words");
  for (const id of ["memory", "network", "overflow"]) {
    await see(tab, id);
    assert(await draws(tab, id) > before[id], `${id} shows the chosen tensor`);
  }
  const legend = parseCsv((await save(tab, "overflow", "CSV")).bytes.toString());
  assert(legend.some((row) => row[0] === tensor), "it has a line of its own");
  await tab.selectOption("#heat select[data-control=heat-kind]", "all");
});

test("the filter leaves runs out everywhere", async () => {
  const { tab } = page;
  await fresh(tab);
  await tab.fill("#filter", "policy:size -seed:1");
  await tab.waitForTimeout(200);
  await settled(tab);
  const wanted = doc.runs.filter((r) => r.settings.policy.includes("size") && r.seed !== "1");
  const shown = await tab.$$eval("#runs tr[data-run]", (r) => r.map((e) => e.dataset.run));
  assert.deepEqual(shown.sort(), wanted.map((r) => r.id).sort());
  await see(tab, "curves");
  const rows = parseCsv((await save(tab, "curves", "CSV")).bytes.toString()).slice(1);
  const drawn = new Set(rows.map((r) => r[0]));
  const withCurves = wanted.filter((r) => r.curve.step.length).map((r) => r.id);
  assert.deepEqual([...drawn].sort(), withCurves.sort());
  await tab.fill("#filter", "nothing is like it");
  await tab.waitForTimeout(200);
  await settled(tab);
  assert(await tab.isVisible("#runs .nothing"));
  await fresh(tab);
});

test("the slider replays promotions", async () => {
  const { tab } = page;
  await fresh(tab);
  const run = first("all-low-seed0");
  const { step, tensor, from, to } = run.promotions;
  assert(step.length > 3);
  const formats = async (at) => {
    await see(tab, "network");
    await tab.$eval("#network input[data-control=network-step]", (input, value) => {
      input.value = String(value);
      input.dispatchEvent(new Event("input", { bubbles: true }));
    }, at);
    await settled(tab);
    const rows = parseCsv((await save(tab, "network", "CSV")).bytes.toString());
    const [name, format] = [rows[0].indexOf("tensor"), rows[0].indexOf("format")];
    return new Map(rows.slice(1).map((r) => [r[name], r[format]]));
  };
  const pictures = new Set();
  for (const at of [0, ...new Set(step)]) {
    const now = await formats(at);
    tensor.forEach((name, i) => {
      assert(now.has(name), `${name} is in the map`);
      assert.equal(now.get(name), step[i] <= at ? to[i] : from[i], `${name} after step ${at}`);
    });
    pictures.add((await save(tab, "network", "SVG")).bytes.toString());
  }
  assert(pictures.size > 2, "the picture changes");
  // Played, it comes to the end by itself.
  await tab.click("#network button[data-control=network-play]");
  await tab.waitForFunction((end) =>
    document.querySelector("#network input[data-control=network-step]").value === String(end),
    run.steps, { timeout: 20_000 });
  await fresh(tab);
});

test("every plot saves as SVG, PNG and CSV", async () => {
  const { tab, wrong } = page;
  await fresh(tab);
  for (const id of await plots(tab)) {
    if (id === "shifted") await focus(tab, "s2fp8-seed0");
    await see(tab, id);
    const svg = await save(tab, id, "SVG");
    assert.equal(svg.name, `${id}.svg`);
    const drawn = await tab.evaluate((text) => {
      const read = new DOMParser().parseFromString(text, "image/svg+xml");
      return read.querySelector("parsererror") ? -1
        : read.querySelectorAll("path,rect,circle,polygon,polyline").length;
    }, svg.bytes.toString("utf8"));
    assert(drawn > 5, `${id}.svg: ${drawn} shapes`);
    assert.deepEqual(cutLabels(svg.bytes.toString()), [], `${id}.svg: labels of axes are whole`);
    assert(!/NaN|Infinity|undefined/.test(svg.bytes.toString().replace(/<text.*?<\/text>/g, "")),
           `${id}.svg has places that are none`);
    const png = await save(tab, id, "PNG");
    assert.equal(png.name, `${id}.png`);
    const [w, h] = pngSize(png.bytes);
    const size = /width="(\d+)" height="(\d+)"/.exec(svg.bytes.toString());
    assert.deepEqual([w, h], [2 * size[1], 2 * size[2]], `${id}.png is as the SVG, twice as fine`);
    const rows = parseCsv((await save(tab, id, "CSV")).bytes.toString("utf8"));
    assert(rows.length > 1 && rows.every((r) => r.length === rows[0].length), `${id}.csv`);
    if (id === "shifted") await focus(tab, "all-low-seed0");
  }
  for (const id of ["runs", "difference"]) {
    const rows = parseCsv((await save(tab, id, "CSV")).bytes.toString("utf8"));
    assert(rows.length > 1 && rows.every((r) => r.length === rows[0].length), `${id}.csv`);
  }
  assert.deepEqual(wrong, []);
});

test("the keyboard reaches every mark", async () => {
  const { tab } = page;
  await fresh(tab);
  for (const id of await plots(tab)) {
    if (id === "shifted") await focus(tab, "s2fp8-seed0");
    await see(tab, id);
    await tab.locator(`#${id} .stage`).focus();
    const said = new Set();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"]) {
      await tab.keyboard.press(key);
      const now = await tip(tab, id);
      assert(now !== "", `${id}: ${key} says something`);
      said.add(now);
    }
    assert(said.size > 1, `${id}: arrows move`);
    await tab.keyboard.press("Escape");
    assert.equal(await tip(tab, id), "", `${id}: Escape`);
    if (id === "shifted") await focus(tab, "all-low-seed0");
  }
  await see(tab, "tradeoff");
  await tab.locator("#tradeoff .stage").focus();
  await tab.keyboard.press("ArrowRight");
  await tab.keyboard.press("Enter");
  await settled(tab);
  assert((await tab.$$("#runs tr[aria-selected=true]")).length > 0, "Enter selects");
  await fresh(tab);
  await tab.focus("#runs .rows");
  await tab.keyboard.press("Home");
  await tab.keyboard.press("ArrowDown");
  await tab.keyboard.press("Enter");
  await settled(tab);
  assert.equal(await tab.getAttribute("#run-row-1", "aria-selected"), "true");
  await fresh(tab);
});

test("narrow and wide, light and dark", async () => {
  for (const width of [400, 1600]) {
    for (const colorScheme of ["light", "dark"]) {
      const viewport = { width, height: 900 };
      const { tab, wrong, context } = await open(browser, file, { viewport, colorScheme });
      assert.equal(await tab.getAttribute("html", "data-theme"), colorScheme);
      for (const id of await items(tab)) await see(tab, id);
      const sideways = await tab.evaluate(() =>
        document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(sideways, 0, `${width} pixels, ${colorScheme}: no scrolling sideways`);
      await focus(tab, "s2fp8-seed0"); // it has most plots
      for (const id of await plots(tab)) {
        if (await tab.$(`#${id}.without-data`)) continue;
        if (colorScheme === "light") {
          await see(tab, id);
          const svg = (await save(tab, id, "SVG")).bytes.toString();
          assert.deepEqual(cutLabels(svg), [], `${id} at ${width}: labels of axes are whole`);
        }
        assert(await marks(tab, id) > 0, `${id} at ${width}`);
        const inside = await tab.$eval(`#${id}`, (s) => s.scrollWidth <= s.clientWidth);
        assert(inside, `${id} stays in its frame at ${width}`);
      }
      const [r, g, b] = await tab.evaluate(() =>
        getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
      assert.equal(r + g + b < 200, colorScheme === "dark");
      assert.deepEqual(wrong, []);
      await context.close();
    }
  }
});

test("on paper it is light and whole, and as before afterwards", async () => {
  const { tab, wrong, context } = await open(browser, file, { colorScheme: "dark" });
  const pdf = await tab.pdf({ format: "A4", printBackground: true });
  assert(pdf.subarray(0, 5).toString() === "%PDF-" && pdf.length > 100_000);
  assert.equal(await tab.getAttribute("html", "data-theme"), "dark");
  // The same by hand, to see what paper gets.
  await tab.emulateMedia({ media: "print" });
  await tab.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  assert.equal(await tab.getAttribute("html", "data-theme"), "light");
  for (const id of await plots(tab)) {
    if (await tab.$(`#${id}.without-data`)) continue;
    assert(await marks(tab, id) > 0, `${id} on paper`);
    assert(await tab.isVisible(`#${id} .stage > canvas`), `${id} on paper`);
  }
  assert.equal((await tab.$$("#runs tr[data-run]")).length, doc.runs.length, "all runs on paper");
  assert(!await tab.isVisible("#filter"));
  await tab.evaluate(() => window.dispatchEvent(new Event("afterprint")));
  assert.equal(await tab.getAttribute("html", "data-theme"), "dark");
  assert.deepEqual(wrong, []);
  await context.close();
});

test("the page says what it is made of", async () => {
  const { tab } = page;
  const text = readFileSync(file, "utf8");
  // The licence of what it is bundled with, whole.
  const notice = text.slice(0, text.indexOf("<html"));
  for (const words of ["uPlot", "Copyright (c) 2022 Leon Sorokin", "The above copyright notice",
    "Permission is hereby granted", "SOFTWARE."]) assert(notice.includes(words), words);
  assert(!/https?:\/\/(?!www\.w3\.org\/)/.test(text.replace(/"document">.*?<\/script>/s, "")),
         "no address of anything in the page");
  assert.match(await tab.title(), /Ulp/);
  assert.equal((await tab.$$eval("#runs tr[data-run]", (r) => r.length)), doc.runs.length);
});
