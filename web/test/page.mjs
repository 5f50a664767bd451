// What the tests of the page share: making a report with the real program, opening it in a browser
// that notes everything it should not do, and using it as a reader would.
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

// Set by tests/report_page_test: the program, and the folder where the page's packages are.
export const ulp = process.env.ULP ?? missing("ULP");
const packages = process.env.ULP_WEB ?? missing("ULP_WEB");
const { chromium } = createRequire(join(packages, "package.json"))("playwright-core");

const here = dirname(fileURLToPath(import.meta.url));
export const runs = join(here, "..", "..", "tests", "report", "runs");

function missing(name) {
  throw new Error(`${name} is not set: these tests are started by tests/report_page_test`);
}

// A folder that is gone when the process ends.
export function folder() {
  const path = mkdtempSync(join(tmpdir(), "report-page-"));
  process.on("exit", () => rmSync(path, { recursive: true, force: true }));
  return path;
}

export const run = promisify(execFile);

// The page of what lies in a folder. The program's other output is what it notes.
export async function report(of, page) {
  const env = { ...process.env, OMP_NUM_THREADS: "1" };
  const { stdout, stderr } = await run(ulp, ["report", of, "--out", page], { env });
  return { stdout, stderr };
}

export const documentOf = (page) => {
  const text = readFileSync(page, "utf8");
  const found = /<script type="application\/json" id="document">(.*?)<\/script>/s.exec(text);
  return JSON.parse(found[1]);
};

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
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

// Labels of axes that an ellipsis cuts in a saved picture: numbers, and what stands in the middle of
// an axis. Names in legends and of rows may be cut.
export function cutLabels(svg) {
  return [...svg.matchAll(/<text ([^>]*)>([^<]*…[^<]*)<\/text>/g)]
    .filter(([, style, text]) => /^[−\d.]*…$/.test(text) ||
      (style.includes('text-anchor="middle"') && /font-size="1[12]"/.test(style)))
    .map(([, , text]) => text);
}

// A tab with the page, and everything that a page of this kind never does: write to the console,
// fail, ask for anything but itself, open a dialog or a window. `page`: a file or the address of a
// server, which may be asked for the document too.
export async function open(browser, page, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1400, height: 1000 },
    acceptDownloads: true,
    ...options,
  });
  context.setDefaultTimeout(10_000);
  const served = /^https?:/.test(page);
  const address = served ? page : `file://${page}`;
  const own = served ? [address, new URL("document.json", address).href] : [address];
  const wrong = [];
  const tab = await context.newPage();
  context.on("page", (other) => wrong.push(`window: ${other.url()}`));
  tab.on("console", (m) => wrong.push(`console: ${m.text()}`));
  tab.on("pageerror", (e) => wrong.push(`error: ${e.stack}`));
  tab.on("dialog", (d) => {
    wrong.push(`dialog: ${d.message()}`);
    return d.dismiss();
  });
  // Blobs are what it saves, and a picture in its own text is the empty icon.
  tab.on("request", (r) => {
    const url = r.url();
    if (!own.includes(url.split("#")[0]) && !/^(blob:|data:)/.test(url)) wrong.push(`asks: ${url}`);
  });
  await tab.goto(address);
  await tab.waitForSelector("main");
  return { tab, wrong, context };
}

export const items = (tab, what = "section.item") =>
  tab.$$eval(what, (all) => all.map((s) => s.id));

export const marks = (tab, id) => tab.$eval(`#${id}`, (s) => Number(s.dataset.marks ?? NaN));
export const draws = (tab, id) => tab.$eval(`#${id}`, (s) => Number(s.dataset.draws ?? 0));
export const tip = (tab, id) =>
  tab.$eval(`#${id} .tip`, (t) => (t.hidden ? "" : t.innerText));

// Waits until the page has drawn what the last action changed.
export const settled = (tab) =>
  tab.evaluate(
    () =>
      new Promise((done) =>
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))),
      ),
  );

// Scrolls to a plot; one that is far off the screen is not drawn.
export async function see(tab, id) {
  await tab.evaluate((i) => document.getElementById(i).scrollIntoView({ block: "center" }), id);
  await settled(tab);
}

// When the files of a tab came.
const saved = new WeakMap();

// Presses one of a plot's buttons and returns the file that it gives.
export async function save(tab, id, name) {
  const times = saved.get(tab) ?? [];
  saved.set(tab, times);
  // Chromium drops without a word what a page gives beyond ten files a second.
  const early = (times.at(-10) ?? 0) + 1000 - Date.now();
  if (early > 0) await tab.waitForTimeout(early);
  const [file] = await Promise.all([
    tab.waitForEvent("download", { timeout: 10_000 }),
    tab.click(`#${id} .buttons button:text-is("${name}")`),
  ]);
  times.push(Date.now());
  return { name: file.suggestedFilename(), bytes: readFileSync(await file.path()) };
}

// Rows of cells; the first row names the columns.
export function parseCsv(text) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') cell += text[++i];
      else quoted = false;
    } else if (c === '"' && cell === "") quoted = true;
    else if (c === ",") {
      row.push(cell);
      cell = "";
    } else if (c === "\r" && text[i + 1] === "\n") {
      rows.push([...row, cell]);
      row = [];
      cell = "";
      i++;
    } else if (c === "\n" || c === "\r" || c === '"') {
      throw new Error(`a stray ${JSON.stringify(c)} at ${i}`);
    } else cell += c;
  }
  if (quoted || row.length || cell) throw new Error("the last row does not end");
  return rows;
}

export async function table(tab, id) {
  const file = await save(tab, id, "CSV");
  return parseCsv(file.bytes.toString("utf8"));
}

// Rows of a table by the names of its columns.
export const rowsOf = (found) => {
  const [columns, ...rows] = found;
  return rows.map((r) => Object.fromEntries(columns.map((c, i) => [c, r[i]])));
};
export const byRun = (found) => new Map(rowsOf(found).map((r) => [r.run, r]));

// Brings the pointer over a mark: along rows of the picture until a tooltip has one of the texts.
// Returns what it says and the place in the window.
export async function hover(tab, id, texts) {
  await see(tab, id);
  const { found, seen } = await tab.evaluate(
    ([i, wanted]) => {
      const stage = document.querySelector(`#${i} .stage`);
      const at = stage.getBoundingClientRect();
      const tip = stage.querySelector(".tip");
      const seen = new Set();
      // The page's header lies over a plot that is higher than the window, and the real pointer
      // reaches neither what is below it nor what is below the window.
      const header = document.querySelector("header.page").getBoundingClientRect();
      const from = Math.max(at.top, header.bottom);
      const to = Math.min(at.bottom, innerHeight);
      // A click has whole coordinates, whatever those of the pointer are.
      for (let y = Math.ceil(from) + 4; y < to; y += 5) {
        for (let x = Math.ceil(at.left) + 4; x < at.right; x += 9) {
          const place = { clientX: x, clientY: y, bubbles: true };
          stage.dispatchEvent(new PointerEvent("pointermove", place));
          if (tip.hidden) continue;
          seen.add(tip.innerText);
          if (wanted.some((w) => tip.innerText.includes(w))) return { found: { x, y }, seen: [] };
        }
      }
      return { found: null, seen: [...seen].slice(0, 5) };
    },
    [id, texts],
  );
  if (!found) throw new Error(`${id}: no tooltip as wanted; some of them: ${JSON.stringify(seen)}`);
  // That was only to find it: now the real pointer.
  await tab.mouse.move(found.x - 1, found.y);
  await tab.mouse.move(found.x, found.y);
  await settled(tab);
  return { ...found, text: await tip(tab, id) };
}
