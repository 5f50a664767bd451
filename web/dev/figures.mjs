// Takes the pictures of the page that README.md and docs/report.md show: opens reports in a browser
// and photographs parts of them.
//
//   node dev/figures.mjs ULP CLAIMS RUNS [OUT]
//
// ULP: the program. CLAIMS: a folder with the unpacked logs of bench/h200/claims.
// RUNS: tests/report/runs. OUT: docs/figures if not said. Packages are
// those beside this folder, or those of the build: ULP_WEB=build/release/parts/ulp/report/web.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const packages = process.env.ULP_WEB ?? web;
const { chromium } = createRequire(join(packages, "package.json"))("playwright-core");
const [ulp, claims, runs, out = join(web, "..", "docs", "figures")] = process.argv.slice(2);
if (!runs) throw new Error("usage: node dev/figures.mjs ULP CLAIMS RUNS [OUT]");

const mostBytes = 400_000; // in a repository a picture stays for ever

// What is photographed: these plots, one below the other, as a reader with this window sees them.
const figures = [
  { name: "overview", of: claims, width: 1400, plots: ["runs", "tradeoff", "lowratio"], log: true },
  { name: "detail", of: runs, width: 1200, run: "all-low-seed0", tensors: "*.out",
    plots: ["heat", "memory"] },
  { name: "dark", of: runs, width: 1400, scheme: "dark", run: "all-low-seed0",
    plots: ["curves", "curves-metric", "overflow", "histograms", "network"] },
  { name: "narrow", of: runs, width: 400, run: "all-low-seed0", plots: ["tradeoff", "memory"] },
];

const work = mkdtempSync(join(tmpdir(), "ulp-figures-"));
const browser = await chromium.launch({
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

// A report each, of what a reader would name: its title shows no folder of this machine.
const pages = new Map();
function pageOf(folder) {
  if (!pages.has(folder)) {
    const page = join(work, `${pages.size}.html`);
    execFileSync(ulp, ["report", ".", "--out", page], { cwd: folder, stdio: ["ignore", 2, 2] });
    pages.set(folder, page);
  }
  return pages.get(folder);
}

async function take({ name, of, width, scheme = "light", run, tensors, log, plots }) {
  const context = await browser.newContext({
    colorScheme: scheme, viewport: { width, height: 900 }, deviceScaleFactor: 1,
  });
  const tab = await context.newPage();
  await tab.goto(`file://${pageOf(of)}`);
  await tab.waitForSelector("main");
  if (run) await tab.selectOption("select[data-control=focus]", run);
  // Nothing but the plots, in this order, and a table of so many rows as a picture needs.
  await tab.evaluate((ids) => {
    for (const item of document.querySelectorAll("section.item")) {
      if (!ids.includes(item.id)) item.remove();
    }
    for (const group of document.querySelectorAll("section.group")) {
      if (!group.querySelector("section.item")) group.remove();
    }
    const rows = document.querySelector("#runs .rows");
    if (rows) rows.style.maxHeight = "260px";
    document.querySelector("header.page").style.position = "static";
  }, plots);
  if (log) await tab.check("#tradeoff input[data-control=log]");
  if (tensors) await tab.fill("#heat input[data-control=heat-name]", tensors);
  for (const id of plots) {
    await tab.evaluate((i) => document.getElementById(i).scrollIntoView(), id);
    await tab.waitForTimeout(300);
  }
  // No control is about to be used.
  await tab.evaluate(() => {
    document.activeElement?.blur();
    scrollTo(0, 0);
  });
  await tab.waitForTimeout(200);
  const { x, y, width: w, height } = await tab.locator("main").boundingBox();
  const path = join(out, `report-${name}.png`);
  await tab.screenshot({ path, fullPage: true, clip: { x, y, width: w, height } });
  await context.close();
  const { size } = statSync(path);
  console.log(`${path}: ${Math.round(w)} x ${Math.round(height)}, ${(size / 1024).toFixed(0)} KiB`);
  if (size > mostBytes) throw new Error(`${path} is larger than ${mostBytes} bytes`);
}

try {
  mkdirSync(out, { recursive: true });
  for (const figure of figures) await take(figure);
} finally {
  await browser.close();
  rmSync(work, { recursive: true, force: true });
}
