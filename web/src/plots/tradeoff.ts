// Memory against quality, and how much of the low share was left at the end of training.
import { bits, bytes, exact, percent, short, ticks } from "../axis";
import { checkbox, select } from "../controls";
import type { Run, Store } from "../state";
import { GroupScatter, type Measure } from "./group_scatter";
import {
  hasMetric, inBestEpoch, inBestEpochFp32, judging, measured, metrics, metricText, metricTick,
} from "./metric";

const inBytes = { text: bytes, tick: (v: number): string => bytes(v), bytes: 1 };
// Counted in bits, read in bytes: a tick at a round number of MiB.
const inBits = { text: bits, tick: (v: number): string => bits(v), bytes: 8 };
const asShare = {
  text: (v: number | null): string => percent(v),
  tick: (v: number): string => percent(v),
  ticks,
};

const memory: Record<string, Measure> = {
  aggregate: {
    name: "aggregate at the start", label: "aggregate at the start: all tensors of a step",
    value: (r) => r.summary.aggregateBits, better: "less", ...inBits,
  },
  aggregateEnd: {
    name: "aggregate at the end", label: "aggregate at the end, with promotions",
    value: (r) => r.summary.aggregateBitsEnd, better: "less", ...inBits,
  },
  peak: {
    name: "peak", label: "peak memory of the run",
    value: (r) => r.summary.peakBytes, better: "less", ...inBytes,
  },
  planned: {
    name: "planned peak", label: "peak memory as planned",
    value: (r) => r.summary.plannedPeakBytes, better: "less", ...inBytes,
  },
  low: {
    name: "elements stored low", label: "elements stored low, mean over epochs",
    value: (r) => r.summary.lowMean, better: "more", ...asShare,
  },
};

const last = (values: readonly (number | null)[]): number | null =>
  values[values.length - 1] ?? null;

const qualities: [string, string, (r: Run, metric: string) => number | null][] = [
  ["best", "best", inBestEpoch],
  ["bestFp32", "best, computed in fp32", inBestEpochFp32],
  ["last", "last", (r, m) => last(measured(r, m).test)],
  ["trainLoss", "training loss", (r) => r.summary.trainLoss],
  ["testLoss", "test loss", (r) => last(r.epochs.testLoss)],
];

export class Tradeoff extends GroupScatter {
  readonly id = "tradeoff";
  readonly title = "Memory against quality";
  readonly about = "Each large dot is a configuration at the mean over its seeds, with bars over " +
    "their range. No finished configuration is better in both directions than one on the Pareto " +
    "front. Hollow: not all of its runs are done.";
  private memory = "aggregate";
  private quality = "best";
  private metric = "";
  private log = false;

  constructor(store: Store) {
    super(store);
  }

  private get loss(): boolean {
    return this.quality === "trainLoss" || this.quality === "testLoss";
  }

  // One metric at a time: bits and accuracies have no common axis. Losses of runs that are judged
  // by different metrics have none either.
  private offered(): string[] {
    return this.loss ? judging(this.store) : metrics(this.store);
  }

  private currentMetric(): string {
    const all = this.offered();
    return all.includes(this.metric) ? this.metric : all[0] ?? "";
  }

  protected override logX(): boolean {
    return this.log && this.memory !== "low";
  }

  protected override accepts(run: Run): boolean {
    const metric = this.currentMetric();
    return this.loss ? run.metric === metric : hasMetric(run, metric);
  }

  protected measures(): { x: Measure; y: Measure } {
    const metric = this.currentMetric();
    const { loss } = this;
    const [, text, value] = qualities.find(([k]) => k === this.quality) ?? qualities[0]!;
    // Of a metric that no run is judged by nobody has said which direction is better.
    const higher = this.store.doc.runs.find((r) => r.metric === metric)?.higherIsBetter;
    const better = loss || higher === false ? "less" : higher ? "more" : null;
    return {
      x: memory[this.memory] ?? memory.aggregate!,
      y: {
        name: loss ? text : `${text} ${metric}`,
        label: loss ? `${text}, last epoch` : `test ${metric}, ${text}`,
        value: (r) => value(r, metric),
        text: loss ? exact : (v) => metricText(metric, v),
        tick: loss ? (v) => short(v) : (v) => metricTick(metric, v),
        better,
      },
    };
  }

  controls(): HTMLElement[] {
    const options = (all: [string, string][]) => () =>
      all.map(([value, text]) => ({ value, text }));
    return [
      select("memory", "Memory", options(Object.entries(memory).map(([k, m]) => [k, m.name])),
             () => this.memory, (v) => { this.memory = v; }),
      select("quality", "Quality", options(qualities.map(([k, t]) => [k, t])),
             () => this.quality, (v) => { this.quality = v; }),
      select("metric", "Metric",
             () => this.offered().map((m) => ({ value: m, text: m })),
             () => this.currentMetric(), (v) => { this.metric = v; }),
      checkbox("log", "log memory", () => this.log, (v) => { this.log = v; }),
    ];
  }
}

export class LowRatio extends GroupScatter {
  readonly id = "lowratio";
  readonly title = "Low share at the start and at the end";
  readonly about = "The share of elements stored low as planned, against that of the last epoch. " +
    "Promotions take a run below the dashed line.";
  protected override readonly diagonal = true;

  constructor(store: Store) {
    super(store);
  }

  // All in fp32 says nothing here.
  protected override accepts(run: Run): boolean {
    return (run.summary.lowPlanned ?? 0) > 0;
  }

  protected measures(): { x: Measure; y: Measure } {
    return {
      x: { name: "planned", label: "elements stored low, as planned at the start",
           value: (r) => r.summary.lowPlanned, better: null, ...asShare },
      y: { name: "last epoch", label: "in the last epoch",
           value: (r) => r.summary.lowLast, better: null, ...asShare },
    };
  }

  override empty(): string {
    return super.empty() && "No run shown stores anything low.";
  }
}
