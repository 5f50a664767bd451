// How values of the runs read: the metric, its direction, its unit.
import { exact, percent, short } from "../axis";
import type { Run, Store } from "../state";

// Shares of right answers read as percent. Anything else is a plain number.
const isShare = (metric: string): boolean => /^(acc|accuracy|top\d+)$/.test(metric);

export const metricText = (metric: string, v: number | null): string =>
  isShare(metric) ? percent(v, 4) : exact(v);

export const metricTick = (metric: string, v: number): string =>
  isShare(metric) ? percent(v) : short(v);

// Names, the most frequent first.
function byCount(names: readonly string[]): string[] {
  const count = new Map<string, number>();
  for (const name of names) count.set(name, (count.get(name) ?? 0) + 1);
  return [...count].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

// Metrics that the runs shown are judged by.
export const judging = (store: Store): string[] => byCount(store.runs().map((r) => r.metric));

// All metrics of the runs shown: those, then what else their tasks measure. One plot shows one of
// them: bits and accuracies have no common axis.
export function metrics(store: Store): string[] {
  const others = store.runs().flatMap((r) => r.epochs.others.map((o) => o.name));
  return [...new Set([...judging(store), ...byCount(others)])];
}

interface Measured {
  train: (number | null)[];
  test: (number | null)[];
  testFp32: (number | null)[];
}
const nothing: Measured = { train: [], test: [], testFp32: [] };

// What a run has of a metric over its epochs.
export const measured = (run: Run, metric: string): Measured =>
  (run.metric === metric ? run.epochs
    : run.epochs.others.find((o) => o.name === metric) ?? nothing);

export const hasMetric = (run: Run, metric: string): boolean =>
  run.metric === metric || run.epochs.others.some((o) => o.name === metric);

// In the epoch that the metric which the run is judged by makes the best.
export function inBestEpoch(run: Run, metric: string): number | null {
  if (run.metric === metric) return run.summary.best;
  return measured(run, metric).test[run.epochs.best] ?? null;
}

export function inBestEpochFp32(run: Run, metric: string): number | null {
  if (run.metric === metric) return run.summary.bestFp32;
  return measured(run, metric).testFp32[run.epochs.best] ?? inBestEpoch(run, metric);
}

export const finite = (v: number | null | undefined): v is number =>
  v !== null && v !== undefined && Number.isFinite(v);

// The name by which a run is spoken of in a tooltip.
export const runName = (run: Run): string =>
  run.state === "done" ? run.id : `${run.id} (${run.state})`;
