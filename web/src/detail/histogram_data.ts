// Exponent histograms: which there are, and shares of elements out of counts.
import type { Histogram, Kind } from "../data";
import type { Range } from "./formats";

// All histograms of a tensor, by step. y is there for S2FP8 alone.
export interface Series {
  tensor: string;
  kind: Kind;
  format: string;
  steps: number[];
  x: Map<number, Histogram>;
  y: Map<number, Histogram>;
}

export function seriesOf(histograms: Histogram[]): Series[] {
  const byName = new Map<string, Series>();
  for (const histogram of histograms) {
    const { tensor, kind, format, step } = histogram;
    let series = byName.get(tensor);
    if (!series) {
      byName.set(tensor, series = { tensor, kind, format, steps: [], x: new Map(), y: new Map() });
    }
    series[histogram.of].set(step, histogram);
    if (!series.steps.includes(step)) series.steps.push(step);
  }
  for (const series of byName.values()) series.steps.sort((a, b) => a - b);
  return [...byName.values()];
}

export function stepsOf(all: Series[]): number[] {
  return [...new Set(all.flatMap((series) => series.steps))].sort((a, b) => a - b);
}

// The last histogram that is not after `step`; the first one before all of them.
export function stepFor(series: Series, step: number): number {
  let found = series.steps[0];
  for (const at of series.steps) if (at <= step) found = at;
  return found;
}

// All elements: those with an exponent, zeros, infinities and NaN.
export function total(histogram: Histogram): number {
  return histogram.counts.reduce((a, b) => a + b, 0) +
    histogram.zero + histogram.infinite + histogram.nan;
}

export interface Bar {
  exponent: number; // elements in [2^exponent, 2^(exponent + 1))
  count: number;
  share: number;
}

export function bars(histogram: Histogram): Bar[] {
  const all = total(histogram) || 1;
  return histogram.counts
    .map((count, i) => ({ exponent: histogram.lowest + i, count, share: count / all }))
    .filter((bar) => bar.count > 0);
}

// Shares of all elements below, within and beyond a format's numbers. A bin belongs to the side its
// lower end is on: the bin of the largest number counts as within.
export function sides(histogram: Histogram, range: Range) {
  const all = total(histogram) || 1;
  let below = 0, within = 0, beyond = 0;
  for (const bar of bars(histogram)) {
    if (bar.exponent > Math.floor(range.high)) beyond += bar.count;
    else if (bar.exponent < range.low) below += bar.count;
    else within += bar.count;
  }
  return { below: below / all, within: within / all, beyond: beyond / all };
}

// Exponents to show: all bars and the format's own range, with a margin, but no more than `most`
// beyond the bars on either side.
export function exponentSpan(histograms: Histogram[], own: Range | null, most = 12) {
  let low = Infinity, high = -Infinity;
  for (const histogram of histograms) {
    for (const bar of bars(histogram)) {
      low = Math.min(low, bar.exponent);
      high = Math.max(high, bar.exponent + 1);
    }
  }
  if (low > high) {
    low = own ? own.low : -8;
    high = own ? own.high : 8;
  }
  if (own) {
    low = Math.min(low, Math.max(own.low, low - most));
    high = Math.max(high, Math.min(own.high, high + most));
  }
  return { low: Math.floor(low) - 1, high: Math.ceil(high) + 1 };
}

// The smallest power of ten that is not above any share; the floor of a logarithmic axis.
export function shareFloor(histograms: Histogram[]): number {
  let least = 0.01;
  for (const histogram of histograms) {
    for (const bar of bars(histogram)) least = Math.min(least, bar.share);
  }
  return Math.max(1e-9, Number(`1e${Math.floor(Math.log10(least))}`));
}
