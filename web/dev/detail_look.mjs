// Pictures of every plot of one run, from the made-up document or from a file.
//
//   node dev/detail_look.mjs [FILE.json|-] [light|dark] [width] [QUERY] [CONTROL=VALUE ...]
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { makeDetail } from "./detail_fixture.mjs";

const [file = "-", scheme = "light", width = "1600", query = "", ...controls] =
  process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "out");
mkdirSync(out, { recursive: true });
const json = file === "-" ? JSON.stringify(makeDetail()) : readFileSync(file, "utf8");
const made = await build({
  entryPoints: [join(here, "detail_main.ts")], bundle: true, write: false, outdir: out,
  logLevel: "warning",
});
const text = (ending) => made.outputFiles.find((f) => f.path.endsWith(ending))?.text ?? "";
const page = join(out, "detail.html");
writeFileSync(page, `<!doctype html><meta charset="utf-8"><style>${text(".css")}</style>` +
  `<script type="application/json" id="document">${json.replace(/</g, "\\u003c")}</script>` +
  `<script type="module">${text(".js")}</script>`);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const tab = await browser.newPage({
  colorScheme: scheme, viewport: { width: Number(width), height: 2700 },
});
tab.on("console", (m) => console.log(`${m.type()}: ${m.text()}`));
tab.on("pageerror", (e) => console.log(e.stack));
const began = Date.now();
await tab.goto(`file://${page}?${query}`);
await tab.waitForSelector("section");
for (const control of controls) {
  const [name, value] = control.split("=");
  const input = tab.locator(`[data-control="${name}"]`);
  await input.evaluate((e, v) => {
    e.value = v;
    e.dispatchEvent(new Event("input", { bubbles: true }));
  }, value);
}
for (const id of await tab.$$eval("section", (all) => all.map((s) => s.id))) {
  const section = tab.locator(`#${id}`);
  await section.scrollIntoViewIfNeeded();
  await tab.waitForTimeout(150);
  await section.screenshot({ path: join(out, `detail-${id}.png`) });
  const { marks } = await section.evaluate((e) => e.dataset);
  console.log(id, marks ?? "", await section.evaluate((e) => `${e.scrollWidth}x${e.scrollHeight}`));
}
console.log(`${Date.now() - began} ms`);
await browser.close();
