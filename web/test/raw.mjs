// What the files of a run say, read without the program's reader: what the page shows is compared
// with it.
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { readRanges } from "./files.mjs";
import { run, ulp } from "./page.mjs";

const odd = { nan: NaN, inf: Infinity, "-inf": -Infinity };

// JSON has no NaN: training writes it as text.
export const number = (v) => (typeof v === "string" ? odd[v] : v ?? null);

export const sum = (all) => all.reduce((a, b) => a + b, 0);

const mean = (all) => (all.length ? sum(all) / all.length : null);

// Lines of metrics.jsonl by event. What was cut off while it was written is no line.
export function metrics(folder) {
  const found = { step: [], epoch: [], promote: [], done: [], diverged: [] };
  for (const text of readFileSync(join(folder, "metrics.jsonl"), "utf8").split("\n").slice(0, -1)) {
    const line = JSON.parse(text);
    found[line.event].push(line);
  }
  return found;
}

// Options as text, by name.
export function settings(folder) {
  const text = readFileSync(join(folder, "config.toml"), "utf8");
  const all = text.matchAll(/^(\w+) = (.*)$/gm);
  return new Map([...all].map(([, name, v]) => [name, v.startsWith('"') ? JSON.parse(v) : v]));
}

const planned = new Map();

// What `ulp plan` says of a run's configuration.
export function plan(folder) {
  const file = join(folder, "config.toml");
  const key = readFileSync(file, "utf8");
  if (!planned.has(key)) {
    const made = run(ulp, ["plan", "--config", file, "--json"]);
    planned.set(key, made.then(({ stdout }) => JSON.parse(stdout)));
  }
  return planned.get(key);
}

// Bits of an element.
export function bitsOf(format) {
  const parts = /^fp\((\d+),(\d+),\d+\)$/.exec(format);
  if (parts) return 1 + Number(parts[1]) + Number(parts[2]);
  return { fp32: 32, fp16: 16, bf16: 16, s2fp8: 8 }[format] ?? NaN;
}

// The numbers of a run in the table.
export async function summary(folder) {
  const { step, epoch, promote, done, diverged } = metrics(folder);
  const options = settings(folder);
  const p = await plan(folder);
  const last = epoch.at(-1);
  const tests = epoch.map((e) => e.test_acc);
  const best = tests.indexOf(Math.max(...tests));
  const elements = new Map(p.tensors.map((t) => [t.name, t.elements]));
  const grown = promote.map((e) => elements.get(e.tensor) * (bitsOf(e.to) - bitsOf(e.from)));
  const peaks = [...epoch, ...done].map((e) => e.peak_bytes);
  const low = epoch.map((e) => e.low_ratio);
  return {
    run: basename(folder),
    seed: options.get("seed"),
    state: done.length ? "done" : diverged.length ? "diverged" : "stopped",
    steps: step.length,
    totalSteps: options.get("epochs") * Math.ceil(options.get("subset") / options.get("batch")),
    best: epoch[best]?.test_acc ?? null,
    bestFp32: epoch[best] ? epoch[best].test_acc_fp32 ?? epoch[best].test_acc : null,
    last: last?.test_acc ?? null,
    trainLoss: number(last?.train_loss),
    testLoss: number(last?.test_loss),
    aggregate: p.aggregate_bits,
    aggregateEnd: p.aggregate_bits + sum(grown),
    peak: peaks.length ? Math.max(...peaks) : p.peak_bytes,
    plannedPeak: done[0]?.planned_peak_bytes ?? p.peak_bytes,
    lowPlanned: p.low_ratio_percent / 100,
    lowLast: last?.low_ratio ?? null,
    lowMean: mean(low),
    promotions: promote.length,
    skipped: step.filter((s) => s.skipped).length,
    seconds: epoch.length ? sum(epoch.map((e) => e.seconds)) : null,
  };
}

export const summaries = (root, names) => Promise.all(names.map((n) => summary(join(root, n))));

// Steps completed when the epoch ended: those whose lines stand before its line.
export function stepsBefore(folder, epoch) {
  let steps = 0;
  for (const text of readFileSync(join(folder, "metrics.jsonl"), "utf8").split("\n")) {
    if (text.startsWith('{"event":"step"')) steps++;
    if (text.startsWith(`{"event":"epoch","epoch":${epoch},`)) return steps;
  }
  throw new Error(`${folder} has no epoch ${epoch}`);
}

// Exponential mean in its closed form: the weights of the values so far, divided by their sum.
export function smoothed(values, weight) {
  return values.map((_, i) => {
    let top = 0;
    let bottom = 0;
    for (let k = 0; k <= i; k++) {
      if (!Number.isFinite(values[k])) continue;
      const w = weight ** values.slice(k + 1, i + 1).filter(Number.isFinite).length;
      top += w * values[k];
      bottom += w;
    }
    return Number.isFinite(values[i]) ? top / bottom : values[i];
  });
}

// The format of each narrow tensor while a step runs: what a step promotes changes the next one.
export function formatsDuring(folder) {
  const { tensors } = readRanges(join(folder, "ranges.bin"));
  const start = new Map(tensors.map((t) => [t.name, t.format]));
  const { promote } = metrics(folder);
  return (tensor, step) =>
    promote.filter((e) => e.tensor === tensor && e.step < step).at(-1)?.to ?? start.get(tensor);
}

// Rows of least-squares.csv by variant and step: the value of the seed in the middle.
export function leastSquares(folder) {
  const [head, ...rows] = readFileSync(join(folder, "least-squares.csv"), "utf8").trim().split("\n")
    .map((l) => l.split(","));
  const of = (row, name) => Number(row[head.indexOf(name)]);
  const found = new Map();
  for (const row of rows) {
    const key = `${row[0]},${of(row, "step")}`;
    if (!found.has(key)) found.set(key, { variant: row[0], step: of(row, "step"), seeds: [] });
    found.get(key).seeds.push({
      seed: row[1], loss: of(row, "loss"), cancelled: of(row, "cancelled") / of(row, "updates"),
    });
  }
  const middle = (seeds, name) =>
    [...seeds].sort((a, b) => a[name] - b[name])[(seeds.length - 1) / 2][name];
  return [...found.values()].map((w) => ({
    ...w, loss: middle(w.seeds, "loss"), cancelled: middle(w.seeds, "cancelled"),
  }));
}
