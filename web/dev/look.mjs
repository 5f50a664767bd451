// Puts made-up documents into the page, opens it in a browser and takes pictures. Says what the
// console said, what was asked of the network and how long opening took.
//
//   node dev/look.mjs [small|big|thousand|hostile|empty|FILE.json] [light|dark] [width] [#id]
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { make } from "./fixture.mjs";

const [kind = "small", scheme = "light", width = "1600", only = ""] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "out");
mkdirSync(out, { recursive: true });

const name = kind.endsWith(".json") ? "file" : kind;
const json = kind.endsWith(".json") ? readFileSync(kind, "utf8") : JSON.stringify(make(kind));
const page = readFileSync(join(here, "..", "dist", "report.html"), "utf8");
const file = join(out, `${name}.html`);
writeFileSync(
  file,
  page.replace("__DOCUMENT__", () => json.replace(/</g, "\\u003c")),
);

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
const context = await browser.newContext({
  colorScheme: scheme,
  viewport: { width: Number(width), height: 1000 },
});
const tab = await context.newPage();
const said = [];
tab.on("console", (m) => said.push(`${m.type()}: ${m.text()}`));
tab.on("pageerror", (e) => said.push(`error: ${e.stack}`));
tab.on("request", (r) => {
  if (!r.url().startsWith("file:") && !r.url().startsWith("data:"))
    said.push(`request: ${r.url()}`);
});
const start = Date.now();
await tab.goto(`file://${file}`);
await tab.waitForSelector("main");
const opened = Date.now() - start;
const timing = await tab.evaluate(() => performance.getEntriesByType("navigation")[0].loadEventEnd);
// Off-screen plots draw when they come near.
const ids = await tab.$$eval("section.item", (all) => all.map((s) => s.id));
for (const id of ids) {
  await tab.evaluate((i) => document.getElementById(i)?.scrollIntoView(), id);
  await tab.waitForTimeout(60);
}
await tab.waitForTimeout(200);
// The header would lie over what a picture of one element shows.
if (only)
  await tab.evaluate(() => {
    document.querySelector("header.page").style.position = "static";
  });
const marks = await tab.$$eval("section.item", (all) =>
  all.map((s) => `${s.id}=${s.dataset.marks ?? "-"}`).join(" "),
);
const wide = await tab.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
const picture = join(out, `${name}-${scheme}-${width}${only.replace("#", "-")}.png`);
if (only) await tab.locator(only).first().screenshot({ path: picture });
else {
  await tab.evaluate(() => scrollTo(0, 0));
  await tab.screenshot({ path: picture, fullPage: true });
}
console.log(
  `${(json.length / 1e6).toFixed(1)} MB; opened ${opened} ms, load ${timing.toFixed(0)} ms; ` +
    `${wide > 0 ? `SCROLLS ${wide} px` : "no sideways scroll"}`,
);
console.log(marks);
for (const line of said) console.log(line);
console.log(picture);
await browser.close();
