// Numbers of the document (those that the store has decoded), and words around them.
import { exact, short } from "../axis";

// What may be missing.
export type Value = number | null | undefined;

// NaN stands for "none" too: what draws skips both.
export function value(x: Value): number {
  return x ?? NaN;
}

// The larger of two, where NaN beats everything and none loses to everything.
export function worse(a: Value, b: Value): number | null {
  if (a === null || a === undefined) return b ?? null;
  if (b === null || b === undefined) return a;
  if (Number.isNaN(a)) return a;
  return Number.isNaN(b) || b > a ? b : a;
}

// A share of a tensor's elements: 0.0104 (1.04%).
export function share(x: Value): string {
  if (x === null || x === undefined) return "not recorded";
  const percent = Number((100 * x).toPrecision(3));
  return x > 0 && Number.isFinite(x) ? `${exact(x)} (${percent}%)` : exact(x);
}

// 2^-9.2, for largest magnitudes.
export function power(x: Value): string {
  const log = Math.log2(value(x));
  return Number.isFinite(log) ? `2^${Number(log.toFixed(2))}` : exact(x);
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;
}

// First index whose entry is not below x; sorted.length if there is none.
export function lowerBound(sorted: ArrayLike<number>, x: number): number {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The index whose entry is nearest to x; -1 if there is none.
export function nearest(sorted: ArrayLike<number>, x: number): number {
  if (sorted.length === 0) return -1;
  const above = lowerBound(sorted, x);
  if (above === 0) return 0;
  if (above === sorted.length) return above - 1;
  return x - sorted[above - 1] <= sorted[above] - x ? above - 1 : above;
}

// Elements as on an axis: 1.05M.
export function elements(n: number): string {
  return `${exact(n)} elements${n >= 10_000 ? ` (${short(n)})` : ""}`;
}

// About as many rows as legend() of axis.ts makes of these labels: a plot's height must be known
// before there is a scene to measure with.
export function legendRows(labels: readonly string[], width: number): number {
  let used = 0, rows = labels.length > 0 ? 1 : 0;
  for (const label of labels) {
    const w = 36 + Math.min(260, 6.6 * label.length);
    if (used > 0 && used + w - 14 > width) {
      rows++;
      used = 0;
    }
    used += w;
  }
  return rows;
}
