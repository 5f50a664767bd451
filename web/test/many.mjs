// Many and long runs, made up from a real one: the same files, with as many lines as wanted.
// Nobody would train them for a test.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { changeOption, repeatRanges } from "./files.mjs";
import { runs } from "./page.mjs";

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

// metrics.jsonl as training writes it: a line for each step and each epoch, and one at the end.
function log(seed, epochs, stepsPerEpoch) {
  const noise = random(seed);
  const all = epochs * stepsPerEpoch;
  const level = 0.4 + 0.3 * noise();
  const lines = [];
  let best = 0;
  for (let step = 1; step <= all; step++) {
    const loss = level + 2 * Math.exp(-6 * step / all) + 0.2 * noise();
    const lr = 0.01 * (1 + Math.cos((Math.PI * step) / all));
    const scale = 65536 * 2 ** Math.floor((8 * step) / all);
    const skipped = noise() < 0.001;
    lines.push({ event: "step", step, loss, lr, scale, skipped, cancelled: 0.1 * noise() });
    if (step % stepsPerEpoch !== 0) continue;
    const acc = 1 - 0.3 * loss;
    best = Math.max(best, acc);
    lines.push({
      event: "epoch", epoch: step / stepsPerEpoch, train_loss: loss, train_acc: acc + 0.01,
      test_loss: loss + 0.1, test_acc: acc, test_acc_fp32: acc + 0.002, low_ratio: 0.71,
      peak_bytes: 781952, seconds: 3 + noise(), examples_per_second: 24000 + 1000 * noise(),
    });
  }
  lines.push({
    event: "done", best_test_acc: best, final_test_acc: best, peak_bytes: 781952,
    planned_peak_bytes: 781952, rss_start_bytes: 22376448, rss_peak_bytes: 29458432, seconds: 700,
  });
  return lines.map((l) => `${JSON.stringify(l)}\n`).join("");
}

// The steps that training keeps ranges of: all at first, then every so many.
function recorded(steps) {
  const every = Math.max(1, Math.ceil((steps - 256) / 4096));
  return Array.from({ length: steps }, (_, i) => i + 1)
    .filter((s) => s <= 256 || s % every === 0 || s === steps);
}

// `count` runs in `root`, ten seeds of each configuration. Configurations differ in an option on
// which no plan depends.
export function makeRuns(root, count, { epochs, stepsPerEpoch }) {
  const from = join(runs, "all-low-seed0");
  mkdirSync(root, { recursive: true });
  for (let i = 0; i < count; i++) {
    const [group, seed] = [Math.floor(i / 10), i % 10];
    const name = `lr${String(group).padStart(3, "0")}-seed${seed}`;
    const folder = join(root, name);
    mkdirSync(folder);
    const config = join(folder, "config.toml");
    cpSync(join(from, "config.toml"), config);
    const lr = Number((0.001 * (1 + group)).toPrecision(4));
    for (const [option, value] of [
      ["seed", seed], ["lr", lr], ["epochs", epochs], ["out", JSON.stringify(name)],
    ]) changeOption(config, option, value);
    writeFileSync(join(folder, "metrics.jsonl"), log(i, epochs, stepsPerEpoch));
    const ranges = join(folder, "ranges.bin");
    cpSync(join(from, "ranges.bin"), ranges);
    // Copies of one file are enough where there are many.
    if (count === 1) repeatRanges(ranges, recorded(epochs * stepsPerEpoch));
  }
}

// `count` copies of one small run under other names and seeds.
export function copyRun(root, count) {
  const from = join(runs, "all-low-seed1");
  mkdirSync(root, { recursive: true });
  const files = ["config.toml", "metrics.jsonl", "ranges.bin"]
    .map((name) => [name, readFileSync(join(from, name))]);
  for (let i = 0; i < count; i++) {
    const folder = join(root, `copy-${String(i).padStart(4, "0")}`);
    mkdirSync(folder);
    for (const [name, bytes] of files) writeFileSync(join(folder, name), bytes);
    changeOption(join(folder, "config.toml"), "seed", i);
  }
}
