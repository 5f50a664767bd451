import assert from "node:assert/strict";
import test from "node:test";
import { make } from "../../dev/fixture.mjs";
import type { Report, Run } from "../data";
import { Store } from "../state";
import { Tradeoff } from "./tradeoff";

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

// A report of configurations with up to three seeds each, on a coarse grid so that many are equal.
function made(seed: number, groups: number): Report {
  const next = random(seed);
  const report = make("small") as Report;
  const pattern = report.runs.find((r) => r.state === "done")!;
  report.runs = [];
  for (let g = 0; g < groups; g++) {
    const seeds = 1 + Math.floor(next() * 3);
    for (let s = 0; s < seeds; s++) {
      const run = structuredClone(pattern) as Run;
      run.id = `run ${g} ${s}`;
      run.group = run.label = `group ${g}`;
      run.state = next() < 0.1 ? "running" : "done";
      run.summary.aggregateBits = 8 * Math.floor(next() * 6 + 1);
      run.summary.best = Math.floor(next() * 8) / 8;
      report.runs.push(run);
    }
  }
  return report;
}

const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

test("the Pareto front is what nothing finished beats", () => {
  for (let seed = 0; seed < 60; seed++) {
    const report = made(seed, 12);
    const groups = new Map<string, Run[]>();
    for (const run of report.runs) groups.set(run.group, [...groups.get(run.group) ?? [], run]);
    const dots = [...groups].map(([label, runs]) => ({
      label,
      x: mean(runs.map((r) => r.summary.aggregateBits as number)),
      y: mean(runs.map((r) => r.summary.best as number)),
      done: runs.every((r) => r.state === "done"),
    }));
    const finished = dots.filter((d) => d.done);
    const beaten = (d: (typeof dots)[number]): boolean => finished.some((o) =>
      o.x <= d.x && o.y >= d.y && (o.x < d.x || o.y > d.y));
    const wanted = new Set(finished.filter((d) => !beaten(d)).map((d) => `${d.x} ${d.y}`));
    const { columns, rows } = new Tradeoff(new Store(report)).table();
    const [label, on] = [columns.indexOf("group"), columns.indexOf("group on the front")];
    const found = new Set(rows.filter((r) => r[on] === "yes").map((r) => r[label] as string));
    // Of equal ones any one stands for all.
    const places = dots.filter((d) => found.has(d.label)).map((d) => `${d.x} ${d.y}`);
    assert.equal(new Set(places).size, places.length);
    assert.deepEqual(places.sort(), [...wanted].sort(), `seed ${seed}`);
    for (const d of dots) if (!d.done) assert(!found.has(d.label));
  }
});
