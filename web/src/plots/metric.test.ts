import assert from "node:assert/strict";
import test from "node:test";
import { make } from "../../dev/fixture.mjs";
import type { Report } from "../data";
import { Store } from "../state";
import { hasMetric, inBestEpoch, inBestEpochFp32, judging, measured, metrics } from "./metric";

type Runs = Report["runs"];

// Three runs of two epochs: what each is judged by, and what else it has.
const named = (...all: [string, ...string[]][]): Store => {
  const report = make("small") as Report;
  report.runs = report.runs.slice(0, all.length);
  all.forEach(([metric, ...others], i) => {
    const run = report.runs[i]!;
    run.metric = metric;
    run.epochs.others = others.map((name) => ({ name, train: [1, 2], test: [3, 4], testFp32: [] }));
  });
  return new Store(report);
};

const first = (change: (run: Runs[number]) => void): Store["doc"]["runs"][number] => {
  const report = make("small") as Report;
  change(report.runs[0]!);
  return new Store(report).doc.runs[0]!;
};

test("metrics: those that runs are judged by, then others, each by how many have them", () => {
  const store = named(["bpc", "auc", "acc"], ["acc", "auc"], ["acc"]);
  assert.deepEqual(judging(store), ["acc", "bpc"]);
  assert.deepEqual(metrics(store), ["acc", "bpc", "auc"]);
  // Of the runs that the filter lets through.
  store.setFilter(`-${store.doc.runs[0]!.id}`);
  assert.deepEqual(judging(store), ["acc"]);
  assert.deepEqual(metrics(store), ["acc", "auc"]);
  assert.deepEqual(metrics(named()), []);
});

test("what a run has of a metric: as the one it is judged by, as another, and nothing", () => {
  const run = first(({ epochs }) => {
    epochs.others = [{ name: "auc", train: [0.1, null], test: [0.2, "nan"], testFp32: [] }];
  });
  assert.equal(measured(run, run.metric), run.epochs);
  assert.deepEqual(measured(run, "auc").test, [0.2, NaN]);
  assert.deepEqual(measured(run, "bpc"), { train: [], test: [], testFp32: [] });
  assert.deepEqual([run.metric, "auc", "bpc"].map((m) => hasMetric(run, m)), [true, true, false]);
});

test("another metric counts in the epoch that training calls the best", () => {
  const of = (best: number, testFp32: number[]): [number | null, number | null] => {
    const run = first(({ epochs, summary }) => {
      epochs.best = best;
      epochs.others = [{ name: "auc", train: [], test: [0.9, 0.2, 0.3], testFp32 }];
      [summary.best, summary.bestFp32] = [0.75, 0.875];
    });
    assert.deepEqual([inBestEpoch(run, run.metric), inBestEpochFp32(run, run.metric)],
                     [0.75, 0.875]);
    assert.equal(inBestEpoch(run, "bpc"), null);
    assert.equal(inBestEpochFp32(run, "bpc"), null);
    return [inBestEpoch(run, "auc"), inBestEpochFp32(run, "auc")];
  };
  assert.deepEqual(of(1, [0.5, 0.6, 0.7]), [0.2, 0.6]);
  assert.deepEqual(of(2, []), [0.3, 0.3], "all of it is fp32");
  assert.deepEqual(of(-1, []), [null, null], "no epoch has been finite");
});
