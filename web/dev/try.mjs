// Uses the page as a reader would, on made-up runs: hover, click, zoom, filter, keys, saving, paper,
// a live server that goes away. Ends with 1 where something is not as it should be.
//
//   node dev/try.mjs
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { make } from "./fixture.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "out");
mkdirSync(out, { recursive: true });
const template = readFileSync(join(here, "..", "dist", "report.html"), "utf8");
const pageOf = (document) =>
  template.replace("__DOCUMENT__", () => JSON.stringify(document).replace(/</g, "\\u003c"));

let failed = 0;
function expect(what, good, seen = "") {
  if (!good) failed++;
  console.log(`${good ? "ok  " : "BAD "} ${what}${good ? "" : `: ${JSON.stringify(seen)}`}`);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const said = [];
async function open(address, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1400, height: 1000 },
    acceptDownloads: true,
    ...options,
  });
  const tab = await context.newPage();
  tab.on("console", (m) => said.push(m.text()));
  tab.on("pageerror", (e) => said.push(String(e.stack)));
  tab.on("request", (r) => {
    if (address.startsWith("file:") && !/^(file|data|blob):/.test(r.url())) said.push(r.url());
  });
  await tab.goto(address);
  await tab.waitForSelector("#runs tr[data-run]");
  return tab;
}
async function see(tab, id) {
  await tab.evaluate((i) => document.getElementById(i).scrollIntoView({ block: "center" }), id);
  await tab.waitForTimeout(150);
}
const draws = (tab, id) => tab.$eval(`#${id}`, (s) => Number(s.dataset.draws));
const tip = (tab, id) => tab.$eval(`#${id} .tip`, (t) => (t.hidden ? "" : t.innerText));

writeFileSync(join(out, "try.html"), pageOf(make("small")));
const tab = await open(`file://${join(out, "try.html")}`);

// Selecting in the table reaches the plots.
await see(tab, "tradeoff");
const before = await draws(tab, "tradeoff");
await tab.click("#runs tr[data-row='4']");
await tab.waitForTimeout(150);
expect("the table selects", (await tab.$$("#runs tr[aria-selected='true']")).length === 1);
expect("the tradeoff is drawn again", (await draws(tab, "tradeoff")) > before);
await see(tab, "curves");
const one = Number(await tab.$eval("#curves", (s) => s.dataset.marks));
await tab.click("#runs .bar button");
await tab.waitForTimeout(200);
await see(tab, "curves");
const many = Number(await tab.$eval("#curves", (s) => s.dataset.marks));
expect("curves draw selected runs", one > 0 && many > 3 * one, [one, many]);

// Hover and keys on a curve.
const stage = tab.locator("#curves .stage");
let box = await stage.boundingBox();
let found = "";
for (let y = 20; y < box.height - 80 && !found; y += 6) {
  await tab.mouse.move(box.x + box.width / 2, box.y + y);
  found = await tip(tab, "curves");
}
expect("hover says run, step and value", /resnet8.*step \d+.*loss/s.test(found), found);
await stage.focus();
await tab.keyboard.press("ArrowRight");
const first = await tip(tab, "curves");
await tab.keyboard.press("ArrowRight");
const second = await tip(tab, "curves");
await tab.keyboard.press("ArrowDown");
const third = await tip(tab, "curves");
expect("arrows go along a line", first !== second && second !== third, [first, second, third]);
await tab.keyboard.press("Enter");
await tab.waitForTimeout(150);
expect("Enter selects", (await tab.$$("#runs tr[aria-selected='true']")).length === 1);
await tab.click("#runs .bar button");

// Zoom by dragging and back.
await see(tab, "curves");
box = await stage.boundingBox();
await tab.mouse.move(box.x + 200, box.y + 100);
await tab.mouse.down();
await tab.mouse.move(box.x + 350, box.y + 120, { steps: 5 });
await tab.mouse.up();
await tab.waitForTimeout(200);
process.on("uncaughtException", (e) => {
  console.log(e.message, said);
  process.exit(1);
});
const download = async (id, name) => {
  let file = null;
  // About one in a hundred downloads is not announced by the browser, whatever the page does.
  for (let turn = 0; turn < 3 && !file; turn++) {
    [file] = await Promise.all([
      tab.waitForEvent("download", { timeout: 3000 }).catch(() => null),
      tab.click(`#${id} .buttons button:text-is("${name}")`),
    ]);
  }
  return { name: file.suggestedFilename(), text: readFileSync(await file.path()) };
};
const zoomed = await download("curves", "CSV");
const steps = zoomed.text
  .toString()
  .trim()
  .split("\r\n")
  .slice(1)
  .map((l) => Number(l.split(",")[1]));
expect("a drag zooms", Math.min(...steps) > 10 && Math.max(...steps) < 12000, [
  Math.min(...steps),
  Math.max(...steps),
]);
expect("the zoom selects nothing", (await tab.$$("#runs tr[aria-selected='true']")).length === 0);
await tab.mouse.dblclick(box.x + 250, box.y + 150);
await tab.waitForTimeout(200);
const whole = (await download("curves", "CSV")).text.toString().trim().split("\r\n").length;
expect("a double click shows all", whole > steps.length + 100, [whole, steps.length]);

// Saving, with a run that has something of everything.
await tab.click("#runs tr[data-row='10']");
for (const id of await tab.$$eval("section.plot:not(.without-data)", (all) =>
  all.map((s) => s.id),
)) {
  await see(tab, id);
  if (await tab.$(`#${id}.without-data`)) continue;
  const svg = await download(id, "SVG");
  const wellFormed = await tab.evaluate((text) => {
    const read = new DOMParser().parseFromString(text, "image/svg+xml");
    return (
      !read.querySelector("parsererror") && read.querySelectorAll("path,rect,circle").length > 3
    );
  }, svg.text.toString());
  const png = await download(id, "PNG");
  const table = await download(id, "CSV");
  writeFileSync(join(out, png.name), png.text);
  writeFileSync(join(out, svg.name), svg.text);
  expect(
    `${id} saves`,
    wellFormed &&
      svg.name === `${id}.svg` &&
      png.text.readUInt32BE(0) === 0x89504e47 &&
      table.text.toString().split("\r\n").length > 2,
    svg.name,
  );
}

// Filter, sort, keys in the table.
await tab.fill("#filter", "policy:size -seed:3");
await tab.waitForTimeout(400);
expect("the filter filters", (await tab.$$("#runs tr[data-run]")).length === 4);
await tab.fill("#filter", "nothing like it");
await tab.waitForTimeout(400);
expect("no run passes", await tab.isVisible("#runs .nothing"));
await tab.fill("#filter", "");
await tab.waitForTimeout(400);
await tab.click("#runs th button:text-is('peak')");
const peaks = await tab.$$eval("#runs tr[data-run] td:nth-child(7)", (t) =>
  t.map((c) => parseFloat(c.textContent)),
);
expect(
  "a head sorts",
  peaks.every((p, i) => i === 0 || p <= peaks[i - 1]),
  peaks,
);
await tab.focus("#runs .rows");
await tab.keyboard.press("Home");
await tab.keyboard.press("ArrowDown");
await tab.keyboard.press("ArrowDown");
await tab.keyboard.press("Enter");
await tab.waitForTimeout(100);
expect("keys select", (await tab.getAttribute("#run-row-2", "aria-selected")) === "true");

// The theme, and paper.
await tab.click("#theme");
await tab.waitForTimeout(200);
expect("dark", (await tab.getAttribute("html", "data-theme")) === "dark");
const pdf = await tab.pdf({ format: "A4" });
writeFileSync(join(out, "try.pdf"), pdf);
expect("paper", pdf.length > 50_000, pdf.length);
expect("dark again after printing", (await tab.getAttribute("html", "data-theme")) === "dark");

// Hostile names.
writeFileSync(join(out, "hostile.html"), pageOf(make("hostile")));
const evil = await open(`file://${join(out, "hostile.html")}`);
await evil.waitForTimeout(500);
expect(
  "markup stays text",
  (await evil.$$("img")).length === 0 &&
    (await evil.title()).startsWith("<img") &&
    (await evil.$$("script")).length === 2,
  await evil.title(),
);

// Live.
let current = make("small");
current.live = true;
let up = true;
let asked = 0;
const server = createServer((request, response) => {
  if (!up) return request.socket.destroy();
  if (request.url === "/secret/") {
    response.setHeader("Content-Type", "text/html; charset=utf-8");
    return response.end(pageOf(current));
  }
  if (request.url !== "/secret/document.json") return response.writeHead(404).end();
  asked++;
  const body = JSON.stringify(current);
  const tag = `"${createHash("sha256").update(body).digest("hex")}"`;
  if (request.headers["if-none-match"] === tag) return response.writeHead(304).end();
  response.writeHead(200, { ETag: tag, "Content-Type": "application/json" }).end(body);
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const live = await open(`http://127.0.0.1:${server.address().port}/secret/`);
await live.click("#runs tr[data-row='1']");
await see(live, "curves-metric");
await live.selectOption("#curves-metric select[data-control=series]", "testLoss");
const scrolled = await live.evaluate(() => scrollY);
current = make("small");
current.live = true;
current.runs[2].summary.best = 0.5;
await live.waitForTimeout(4500);
expect(
  "news arrive",
  (await live.textContent("#runs tr[data-row='2'] td:nth-child(4)")) === "50% acc",
);
expect(
  "selection, scroll and controls stay",
  (await live.getAttribute("#runs tr[data-row='1']", "aria-selected")) === "true" &&
    (await live.evaluate(() => scrollY)) === scrolled &&
    (await live.inputValue("#curves-metric select[data-control=series]")) === "testLoss",
  [scrolled, await live.evaluate(() => scrollY)],
);
const drawn = await draws(live, "curves-metric");
const was = asked;
await live.waitForTimeout(4500);
expect("nothing new, nothing drawn", (await draws(live, "curves-metric")) === drawn && asked > was);
const quiet = said.length;
up = false;
server.closeAllConnections();
await live.waitForTimeout(4500);
expect("connection lost is said", (await live.textContent(".live")) === "connection lost");
said.length = quiet; // the browser itself writes of requests that failed
up = true;
await live.waitForTimeout(9000);
expect("and found again", (await live.textContent(".live")) === "live");
said.length = quiet;
server.close();
server.closeAllConnections();

expect("the console says nothing and nobody is asked", said.length === 0, said);
await browser.close();
console.log(failed ? `${failed} failed` : "all good");
process.exit(failed ? 1 : 0);
