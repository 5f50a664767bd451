// Makes dist/report.html: the page in one file, with a placeholder where the document goes.
//
// Script and style stand in the file, so it opens from a folder without a network. A content
// security policy allows these two by their hashes and no other script or style, so a run whose
// name is markup cannot do anything.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const placeholder = "__DOCUMENT__";

const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.ts"],
  outdir: "dist",
  bundle: true,
  format: "iife",
  minify: true,
  charset: "utf8",
  target: ["es2020"],
  legalComments: "none",
  write: false,
  logLevel: "warning",
});

function output(ending) {
  const file = result.outputFiles.find((f) => f.path.endsWith(ending));
  if (!file) throw new Error(`esbuild made no ${ending}`);
  return file.text.trim();
}

// What uPlot's licence asks of whoever passes it on: its notice goes along.
function notice() {
  const folder = join(here, "node_modules", "uplot");
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const text = readFileSync(join(folder, "LICENSE"), "utf8").trim().replace(/\r/g, "");
  if (!text.includes("Copyright (c)") || text.includes("--")) {
    throw new Error("the licence of uPlot is none that a comment can hold");
  }
  return `<!--\nCurves are drawn by uPlot ${version}.\n\n${text}\n-->`;
}

// A browser hashes what the element holds after parsing. Text that would end the element, or that
// parsing changes, must not be in there.
function checked(text, what) {
  for (const bad of ["</script", "</style", "<!--", "\r", "\0", placeholder]) {
    if (text.toLowerCase().includes(bad.toLowerCase())) {
      throw new Error(`the ${what} contains ${JSON.stringify(bad)}`);
    }
  }
  for (const evaluation of [/\beval\(/, /\bnew Function\(/]) {
    if (evaluation.test(text)) throw new Error(`the ${what} evaluates text: ${evaluation}`);
  }
  return text;
}

const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

const script = checked(output(".js"), "script");
const style = checked(output(".css"), "style");
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "img-src data: blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

const page = `<!doctype html>
${notice()}
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>Ulp report</title>
<style>${style}</style>
</head>
<body>
<noscript>This report needs JavaScript, which is switched off.</noscript>
<script type="application/json" id="document">${placeholder}</script>
<script>${script}</script>
</body>
</html>
`;
if (page.split(placeholder).length !== 2) throw new Error("the placeholder must occur once");

mkdirSync(join(here, "dist"), { recursive: true });
writeFileSync(join(here, "dist", "report.html"), page);
console.log(`dist/report.html: ${(Buffer.byteLength(page) / 1024).toFixed(0)} KiB`);
