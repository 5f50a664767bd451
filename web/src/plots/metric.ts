// How values of the runs read: the metric, its direction, its unit.
import { exact, percent, short } from "../axis";
import type { Run, Store } from "../state";

// Shares of right answers read as percent. Anything else is a plain number.
const isShare = (metric: string): boolean => /^(acc|accuracy|top\d+)$/.test(metric);

export const metricText = (metric: string, v: number | null): string =>
  isShare(metric) ? percent(v, 4) : exact(v);

export const metricTick = (metric: string, v: number): string =>
  isShare(metric) ? percent(v) : short(v);

// Metrics of the runs that are shown, the most frequent first. One plot shows one of them: bits
// and accuracies have no common axis.
export function metrics(store: Store): string[] {
  const count = new Map<string, number>();
  for (const run of store.runs()) count.set(run.metric, (count.get(run.metric) ?? 0) + 1);
  return [...count].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

export const finite = (v: number | null | undefined): v is number =>
  v !== null && v !== undefined && Number.isFinite(v);

// The name by which a run is spoken of in a tooltip.
export const runName = (run: Run): string =>
  run.state === "done" ? run.id : `${run.id} (${run.state})`;
