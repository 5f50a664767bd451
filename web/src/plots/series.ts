// What a run has over time, smoothing, and how many points of it are drawn.
import { bytes, duration, exact, percent, short } from "../axis";
import type { Run } from "../state";
import { measured, metricText, metricTick } from "./metric";

type Column = readonly (number | null)[];

export interface Series {
  key: string;
  label: (metric: string) => string;
  of: "curve" | "epochs"; // where its x comes from
  values: (run: Run, metric: string) => Column; // the metric: of those by one alone
  low?: (run: Run) => Column; // of a band
  high?: (run: Run) => Column;
  noisy?: boolean; // smoothed at first
  byMetric?: boolean; // only runs that have the metric have it in common
  text: (metric: string, v: number | null) => string;
  tick: (metric: string, v: number) => string;
  bytes?: number; // as of an axis
}

const plain = {
  text: (_: string, v: number | null): string => exact(v),
  tick: (_: string, v: number): string => short(v),
};
const share = {
  text: (_: string, v: number | null): string => percent(v, 4),
  tick: (_: string, v: number): string => percent(v),
};
const metric = { text: metricText, tick: metricTick, byMetric: true };

export const allSeries: readonly Series[] = [
  { key: "loss", label: () => "training loss", of: "curve", values: (r) => r.curve.loss,
    low: (r) => r.curve.lossLow, high: (r) => r.curve.lossHigh, noisy: true, ...plain },
  { key: "test", label: (m) => `test ${m}`, of: "epochs", values: (r, m) => measured(r, m).test,
    ...metric },
  { key: "testFp32", label: (m) => `test ${m}, computed in fp32`, of: "epochs",
    values: (r, m) => {
      const { test, testFp32 } = measured(r, m);
      return testFp32.length ? testFp32 : test;
    }, ...metric },
  { key: "train", label: (m) => `training ${m}`, of: "epochs",
    values: (r, m) => measured(r, m).train, ...metric },
  { key: "testLoss", label: () => "test loss", of: "epochs", values: (r) => r.epochs.testLoss,
    ...plain },
  { key: "trainLoss", label: () => "training loss, mean of an epoch", of: "epochs",
    values: (r) => r.epochs.trainLoss, ...plain },
  { key: "lr", label: () => "learning rate", of: "curve", values: (r) => r.curve.lr, ...plain },
  { key: "scale", label: () => "loss scale", of: "curve", values: (r) => r.curve.scale, ...plain },
  { key: "cancelled", label: () => "updates that rounding cancelled", of: "curve",
    values: (r) => r.curve.cancelled, noisy: true, ...share },
  { key: "lowRatio", label: () => "elements stored low", of: "epochs",
    values: (r) => r.epochs.lowRatio, ...share },
  { key: "speed", label: () => "examples per second", of: "epochs",
    values: (r) => r.epochs.examplesPerSecond, ...plain },
  { key: "seconds", label: () => "seconds an epoch", of: "epochs",
    values: (r) => r.epochs.seconds, text: (_, v) => duration(v), tick: plain.tick },
  { key: "peak", label: () => "peak memory", of: "epochs", values: (r) => r.epochs.peakBytes,
    text: (_, v) => bytes(v), tick: (_, v) => bytes(v), bytes: 1 },
];

// Steps as epochs, by how many steps the run's epochs had; null: not known yet.
function stepsPerEpoch(run: Run): number | null {
  const n = run.epochs.epoch.length;
  if (n > 0) {
    const epoch = run.epochs.epoch[n - 1] as number;
    const step = run.epochs.step[n - 1] as number;
    if (epoch > 0 && step > 0) return step / epoch;
  }
  return run.totalSteps > 0 && run.totalEpochs > 0 ? run.totalSteps / run.totalEpochs : null;
}

// The x of each value; empty: none is known.
export function positions(run: Run, of: Series["of"], by: "step" | "epoch"): number[] {
  if (of === "epochs") return by === "step" ? run.epochs.step : run.epochs.epoch;
  if (by === "step") return run.curve.step;
  const steps = stepsPerEpoch(run);
  return steps === null ? [] : run.curve.step.map((s) => s / steps);
}

// A step as a position.
export function positionOf(run: Run, step: number, by: "step" | "epoch"): number {
  const steps = by === "step" ? 1 : stepsPerEpoch(run);
  return steps === null ? NaN : step / steps;
}

// Exponential moving average. The first values are divided by the weights that they have so far,
// so the line does not start at zero. What is not finite is passed over and stays in its place.
export function smooth(values: Column, weight: number): number[] {
  let sum = 0;
  let norm = 0;
  return values.map((v) => {
    if (v === null || !Number.isFinite(v)) return v === null ? NaN : v;
    sum = weight * sum + (1 - weight) * v;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

// Points of a line, x ascending; y is NaN where it has a gap.
export interface Points {
  x: number[];
  y: number[];
}

// The first index whose x is not below the value.
export function lowerBound(xs: readonly number[], value: number): number {
  let lo = 0;
  let hi = xs.length;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if ((xs[middle] as number) < value) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}

// At most two points a column of pixels: the least and the largest value there, in their order.
// The picture is the same as with all points. From one point before lo to one after hi, so that
// the line goes on to the border. `ok`: whether a value has a place on the axis.
export function decimate(
  xs: readonly number[],
  ys: Column,
  lo: number,
  hi: number,
  columns: number,
  ok: (v: number) => boolean,
): Points {
  const from = Math.max(0, lowerBound(xs, lo) - 1);
  let to = lowerBound(xs, hi);
  while (to < xs.length && xs[to] === hi) to++;
  to = Math.min(xs.length, to + 1, ys.length);
  const result: Points = { x: [], y: [] };
  const usable = (i: number): number => {
    const v = ys[i];
    return v !== null && v !== undefined && Number.isFinite(v) && ok(v) ? v : NaN;
  };
  if (to - from <= 2 * columns) {
    for (let i = from; i < to; i++) {
      result.x.push(xs[i] as number);
      result.y.push(usable(i));
    }
    return result;
  }
  const perColumn = (hi - lo) / columns;
  const columnOf = (x: number): number =>
    Math.max(-1, Math.min(columns, Math.floor((x - lo) / perColumn)));
  let i = from;
  while (i < to) {
    const column = columnOf(xs[i] as number);
    let least = -1;
    let largest = -1;
    const first = i;
    for (; i < to && columnOf(xs[i] as number) === column; i++) {
      const v = usable(i);
      if (Number.isNaN(v)) continue;
      if (least < 0 || v < usable(least)) least = i;
      if (largest < 0 || v > usable(largest)) largest = i;
    }
    const picked = least < 0 ? [first]
      : least === largest ? [least] : [Math.min(least, largest), Math.max(least, largest)];
    for (const p of picked) {
      result.x.push(xs[p] as number);
      result.y.push(usable(p));
    }
  }
  return result;
}
