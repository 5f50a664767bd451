// The page while runs go on: news come by themselves, what the reader has chosen stays, and a server
// that goes or comes back is said.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { copy, readLines } from "./files.mjs";
import {
  byRun, draws, folder, hover, launch, open, rowsOf, runs, save, see, settled, table, ulp,
} from "./page.mjs";

const work = folder();
const patience = { timeout: 120_000 }; // ulp watch takes what others leave of the machine
const children = new Set();
let browser;

before(async () => { browser = await launch(); });
after(() => browser?.close());
afterEach(async () => {
  for (const child of children) child.kill("SIGKILL");
  // A test that fails leaves its page open, and that would take time from the next one.
  await Promise.all(browser.contexts().map((context) => context.close()));
});

function start(...args) {
  const env = { ...process.env, OMP_NUM_THREADS: "1" };
  const child = spawn(ulp, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  children.add(child);
  child.once("close", () => children.delete(child));
  return child;
}

// Ends a process of these tests and returns its exit code.
const ended = (child, signal) => new Promise((done) => {
  child.once("close", done);
  child.kill(signal);
});

// A `ulp watch` that listens.
async function watch(root, ...args) {
  const child = start("watch", root, ...args);
  const line = await new Promise((ready, failed) => {
    child.stdout.once("data", (text) => ready(`${text}`));
    child.once("close", () => failed(new Error("ulp watch ended")));
  });
  const address = new URL(line.trim());
  // What listens everywhere is asked here.
  if (address.hostname === "0.0.0.0") address.hostname = "127.0.0.1";
  return { child, address: address.href, port: address.port };
}

// Slow enough to be looked at: some ten steps a second. Each of them is one point of a curve.
function train(root, name) {
  const child = start("train", "--data", "synthetic", "--image-shape", "3x16x16", "--model", "resnet8",
    "--subset", "1024", "--batch", "128", "--epochs", "400", "--optimizer", "adam", "--policy", "size:0.5",
    "--lo", "fp(4,3,7)", "--promote", "0.002", "--threads", "1", "--out", join(root, name));
  child.stdout.resume();
  return child;
}

// Copies of runs that are done.
function make(name, ...of) {
  const root = join(work, name);
  mkdirSync(root);
  for (const run of of) copy(join(runs, run), join(root, run));
  return root;
}

// Opens the page of a server. `asked`: answers to its questions for the document, by their status.
async function openWatched(address, prepare = () => {}) {
  const asked = { 200: 0, 304: 0, failed: 0, any: 0 };
  const page = await open(browser, address);
  const { tab } = page;
  const of = (r) => r.url().endsWith("/document.json");
  tab.on("request", (r) => { if (of(r)) asked.any++; });
  tab.on("response", (r) => { if (of(r)) asked[r.status()]++; });
  tab.on("requestfailed", (r) => { if (of(r)) asked.failed++; });
  await prepare(tab);
  // A page that loads again forgets it.
  await tab.evaluate(() => { window.sameAsBefore = true; });
  return { ...page, asked };
}

// Nothing odd has happened to the page, and it was not loaded again.
async function isSound({ tab, wrong }) {
  assert.deepEqual(wrong, []);
  assert(await tab.evaluate(() => window.sameAsBefore === true), "it was not loaded again");
}

async function until(what, so) {
  const end = Date.now() + patience.timeout;
  for (;;) {
    const found = await so();
    if (found) return found;
    assert(Date.now() < end, `never: ${what}`);
    await new Promise((later) => setTimeout(later, 100));
  }
}

const statusOf = (tab) => tab.textContent("header .live");
const lost = (tab) => tab.waitForSelector("header .live.lost", patience);
const found = (tab) => tab.waitForSelector("header .live:not(.lost)", patience);
const shownRuns = (tab) =>
  tab.$$eval("#runs tr[data-run]", (all) => all.map((r) => r.dataset.run));
const selectedRuns = (tab) =>
  tab.$$eval("#runs tr[aria-selected=true]", (all) => all.map((r) => r.dataset.run));
const stepsOf = async (tab, run) => Number(byRun(await table(tab, "runs")).get(run).steps);

// Steps of a run as its log has them.
const stepLines = (root, run) => {
  const text = readFileSync(join(root, run, "metrics.jsonl"), "utf8");
  return text.split("\n").slice(0, -1).map((l) => JSON.parse(l)).filter((l) => l.event === "step");
};

test("a run that trains appears and goes on by itself", async () => {
  const root = make("appears", "fp32-seed0");
  const server = await watch(root);
  const page = await openWatched(server.address);
  const { tab } = page;
  assert.equal(await statusOf(tab), "live");
  assert.deepEqual(await shownRuns(tab), ["fp32-seed0"]);
  const run = train(root, "now");
  await tab.waitForSelector('#runs tr[data-run="now"].running', patience);
  await tab.selectOption("select[data-control=focus]", "now");
  await see(tab, "curves");
  let before = { steps: 0, heat: 0, draws: 0 };
  for (let i = 0; i < 3; i++) {
    const now = await until("more steps", async () => {
      const curve = rowsOf(await table(tab, "curves")).filter((r) => r.run === "now");
      return curve.length > before.steps && { curve, steps: curve.length };
    });
    const wanted = stepLines(root, "now").slice(0, now.steps);
    assert.deepEqual(now.curve.map((r) => [Number(r.step), Number(r["training loss"])]),
                     wanted.map((l) => [l.step, l.loss]));
    now.draws = await draws(tab, "curves");
    assert(now.draws > before.draws, "the curves are drawn again");
    before = { ...before, ...now };
  }
  // The plots of one run too.
  const last = async () => Math.max(...rowsOf(await table(tab, "heat")).map((r) => Number(r.step)));
  await see(tab, "heat");
  const heat = await until("ranges", last);
  const pictures = await draws(tab, "heat");
  await until("later ranges", async () => (await last()) > heat);
  await until("another picture", async () => (await draws(tab, "heat")) > pictures);
  // It ends, and so does the news.
  await ended(run, "SIGINT");
  await tab.waitForSelector('#runs tr[data-run="now"].stopped', patience);
  assert.equal(await stepsOf(tab, "now"), stepLines(root, "now").length);
  const same = page.asked[304];
  await until("an answer that nothing is new", async () => page.asked[304] > same);
  await settled(tab);
  const still = await draws(tab, "heat");
  const news = page.asked[200];
  await until("three more", async () => page.asked[304] > same + 3);
  await settled(tab);
  assert.deepEqual([page.asked[200], await draws(tab, "heat")], [news, still],
                   "nothing is drawn where nothing is new");
  await isSound(page);
  await page.context.close();
  assert.equal(await ended(server.child, "SIGINT"), 0);
});

// All that the reader has chosen, by hand or with the mouse.
const choices = async (tab) => ({
  controls: await tab.$$eval("select, input", (all) => all.map((e) =>
    `${e.closest("section")?.id} ${e.dataset.control ?? e.id}: ${e.value} ${e.checked}`)),
  selected: await selectedRuns(tab),
  order: await tab.$$eval("#runs th", (all) => all.map((e) => e.getAttribute("aria-sort"))),
  rows: await shownRuns(tab),
  theme: await tab.getAttribute("html", "data-theme"),
  tensor: await tab.textContent("[data-control=heat-words]"),
  zoomed: (await table(tab, "curves")).map((r) => r.slice(0, 2).join(" ")),
  compared: await tab.$$eval("#difference thead th", (all) => all.map((e) => e.textContent)),
});

test("what the reader has chosen stays while news come", async () => {
  const root = make("chosen", "all-low-seed0", "half-seed0", "fp32-seed0");
  const server = await watch(root);
  const run = train(root, "now");
  const page = await openWatched(server.address);
  const { tab } = page;
  await until("forty steps", async () =>
    (await shownRuns(tab)).includes("now") && (await stepsOf(tab, "now")) > 40);
  // The filter, an order, runs, a theme.
  await tab.fill("#filter", "policy:size");
  await until("the filter", async () => (await shownRuns(tab)).length === 3);
  await tab.click("#runs th button:text-is('run')");
  await tab.click("#runs th button:text-is('run')");
  await tab.click('#runs tr[data-run="half-seed0"] td');
  await tab.click('#runs tr[data-run="now"] td', { modifiers: ["Control"] });
  await tab.click("#theme");
  await tab.selectOption("select[data-control=second]", "all-low-seed0");
  // Controls of plots.
  await tab.selectOption("#tradeoff select[data-control=memory]", "peak");
  await tab.check("#curves input[data-control=log]");
  await tab.$eval("#curves input[data-control=smooth]", (input) => {
    input.value = "0.5";
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  // A tensor at a step, and a part of the curves.
  await tab.selectOption("select[data-control=focus]", "half-seed0");
  const cell = await hover(tab, "heat", ["conv1.out"]);
  await tab.mouse.click(cell.x, cell.y);
  await see(tab, "curves");
  const { x, y, width, height } = await tab.locator("#curves .stage").boundingBox();
  await tab.mouse.move(x + width * 0.4, y + height / 3);
  await tab.mouse.down();
  await tab.mouse.move(x + width * 0.6, y + height / 3, { steps: 4 });
  await tab.mouse.up();
  await settled(tab);
  const chosen = await choices(tab);
  assert.deepEqual(chosen.selected, ["now", "half-seed0"]);
  assert.deepEqual(chosen.rows, ["now", "half-seed0", "all-low-seed0"]);
  assert.deepEqual(chosen.compared.slice(1, 3), ["half-seed0", "all-low-seed0"]);
  assert.match(chosen.tensor, /^conv1\.out: /);
  const all = stepLines(root, "now").length + stepLines(root, "half-seed0").length;
  assert(chosen.zoomed.length > 3 && chosen.zoomed.length < all / 2, "a part of the curves");
  const place = () => tab.$eval("#curves", (s) => s.getBoundingClientRect().top);
  const steps = await stepsOf(tab, "now");

  // Buttons scroll to themselves, so none is pressed between the two places.
  await see(tab, "curves");
  const at = await place();
  const news = page.asked[200];
  await until("three times news", () => page.asked[200] >= news + 3);
  await settled(tab);
  const now = await place();
  assert(Math.abs(now - at) < 1, `what the reader looks at stays at ${at}, and is at ${now}`);
  assert(await stepsOf(tab, "now") > steps, "there were news");
  assert.deepEqual(await choices(tab), chosen);

  // A drag that is in the reader's hand is not taken away by news.
  await see(tab, "curves");
  await tab.dblclick("#curves .stage", { position: { x: width / 2, y: height / 3 } });
  await until("all of the curves", async () => (await table(tab, "curves")).length > chosen.zoomed.length);
  await tab.mouse.move(x + width * 0.2, y + height / 3);
  await tab.mouse.down();
  await tab.mouse.move(x + width * 0.5, y + height / 3, { steps: 4 });
  const before = page.asked[200];
  await until("news", async () => page.asked[200] >= before + 2);
  assert(await tab.$eval("#curves .u-select", (e) => e.offsetWidth > 50), "the rectangle is there");
  await tab.mouse.up();
  await settled(tab);
  const part = (await table(tab, "curves")).length;
  assert(part > 3 && part < stepLines(root, "now").length, "it zooms");

  // The run that was chosen ends: it stays chosen.
  await ended(run, "SIGINT");
  await tab.waitForSelector('#runs tr[data-run="now"].stopped', patience);
  assert.deepEqual((await selectedRuns(tab)).sort(), ["half-seed0", "now"]);
  await isSound(page);
  await page.context.close();
});

// The browser itself writes a line for each question that nobody answers. It is all that is said.
function onlyLost(wrong, why) {
  assert(wrong.length > 0);
  for (const said of wrong) assert.match(said, why);
  wrong.length = 0;
}

test("a server that ends is said, and one that comes back is found", async () => {
  const root = make("ends", "half-seed0");
  const server = await watch(root);
  const page = await openWatched(server.address);
  const { tab, wrong } = page;
  await isSound(page);
  assert.equal(await ended(server.child, "SIGINT"), 0);
  await lost(tab);
  assert.equal(await statusOf(tab), "connection lost");
  assert(await tab.isVisible("header .live"));
  // What there is can be used.
  await tab.click('#runs tr[data-run="half-seed0"] td');
  await settled(tab);
  assert.deepEqual(await selectedRuns(tab), ["half-seed0"]);
  assert.equal((await table(tab, "curves")).length, 25);
  assert((await save(tab, "curves", "PNG")).bytes.length > 1000);

  copy(join(runs, "half-seed1"), join(root, "half-seed1"));
  const again = await watch(root, "--port", server.port);
  await found(tab);
  await until("the run that is new", async () => (await shownRuns(tab)).includes("half-seed1"));
  assert.deepEqual(await selectedRuns(tab), ["half-seed0"]);
  onlyLost(wrong, /^console: Failed to load resource: net::ERR_CONNECTION_REFUSED$/);
  // From then on it is as live as before.
  const log = join(root, "half-seed1", "metrics.jsonl");
  const lines = readLines(log).filter((l) => l.event !== "done");
  writeFileSync(log, lines.map((l) => `${JSON.stringify(l)}\n`).join(""));
  await tab.waitForSelector('#runs tr[data-run="half-seed1"].stopped', patience);
  await isSound(page);
  await page.context.close();
  await ended(again.child, "SIGINT");
});

test("a server that answers nothing is said", async () => {
  const root = make("silent", "half-seed0");
  const server = await watch(root);
  const page = await openWatched(server.address);
  const { tab } = page;
  server.child.kill("SIGSTOP");
  await lost(tab);
  server.child.kill("SIGCONT");
  await found(tab);
  copy(join(runs, "half-seed1"), join(root, "half-seed1"));
  await until("the run that is new", async () => (await shownRuns(tab)).includes("half-seed1"));
  await isSound(page);
  await page.context.close();
});

test("under a random word: live with it, and lost when the word is another", async () => {
  const root = make("word", "half-seed0");
  const server = await watch(root, "--bind", "0.0.0.0");
  assert.match(new URL(server.address).pathname, /^\/[\w-]{22}\/$/);
  const page = await openWatched(server.address);
  const { tab, wrong } = page;
  copy(join(runs, "half-seed1"), join(root, "half-seed1"));
  await until("the run that is new", async () => (await shownRuns(tab)).includes("half-seed1"));
  await isSound(page);
  await ended(server.child, "SIGINT");
  await lost(tab);
  const again = await watch(root, "--bind", "0.0.0.0", "--port", server.port);
  assert.notEqual(again.address, server.address);
  const refused = page.asked[404] ?? 0;
  page.asked[404] = refused;
  await until("a refusal", async () => page.asked[404] > refused);
  await settled(tab);
  assert.equal(await statusOf(tab), "connection lost");
  assert.deepEqual(await shownRuns(tab), ["half-seed0", "half-seed1"]);
  onlyLost(wrong, /^console: Failed to load resource: (net::ERR_CONNECTION_REFUSED|.* 404 .*)$/);
  await page.context.close();
});

test("a page that nobody looks at asks nothing, and at once when somebody does", async () => {
  const root = make("hidden", "half-seed0");
  const server = await watch(root);
  const page = await openWatched(server.address);
  const { tab, asked } = page;
  const hide = (hidden) => tab.evaluate((value) => {
    Object.defineProperty(document, "hidden", { value, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await until("a question", async () => asked.any > 0);
  await hide(true);
  await tab.waitForTimeout(2_500);
  const before = asked.any;
  await tab.waitForTimeout(6_000);
  assert.equal(asked.any, before);
  await hide(false);
  await until("a question", async () => asked.any > before);
  await isSound(page);
  await page.context.close();
});

test("what comes later is text, whatever it is named", async () => {
  const root = make("hostile", "half-seed0");
  const server = await watch(root);
  const page = await openWatched(server.address);
  const { tab } = page;
  const names = [
    `"><img src=x onerror='window.hostile=1'>`,
    "<script>window.hostile=2<\u2215script>",
    "]]>&lt;&amp;'\"`${window.hostile=3}`",
  ];
  for (const name of names) copy(join(runs, "all-low-seed0"), join(root, name));
  const note = '<b onclick="window.hostile=4">x</b><script>window.hostile=5</script>';
  appendFileSync(join(root, names[0], "metrics.jsonl"), `${note}\n`);
  await until("the runs", async () => (await shownRuns(tab)).length === 4);
  assert.deepEqual((await shownRuns(tab)).sort(), ["half-seed0", ...names].sort());
  for (const name of names) {
    await tab.selectOption("select[data-control=focus]", name);
    for (const id of ["curves", "heat", "network"]) await see(tab, id);
  }
  const made = await tab.evaluate(() => ({
    hostile: window.hostile ?? null,
    elements: document.querySelectorAll("img, iframe, object, embed, form, svg, b").length,
    scripts: document.scripts.length,
  }));
  assert.deepEqual(made, { hostile: null, elements: 0, scripts: 2 });
  await isSound(page);
  await page.context.close();
});
