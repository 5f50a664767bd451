// What the page is given: the document that ulp/report writes (ulp/report/document.h) and nothing
// else. Both sides keep to this file. Columns instead of rows: a document may hold 200 runs.

// A measured number. JSON has no NaN and no infinities; null: there is none.
export type Num = number | "nan" | "inf" | "-inf" | null;

export interface Report {
  version: 1;
  title: string; // the folders that were named
  made: string; // UTC, as 2026-01-31T12:00:00Z
  ulp: string; // version of the program
  live: boolean; // served by `ulp watch`: the document is asked for again while runs go on
  runs: Run[];
  plans: Plan[]; // of distinct configurations; runs refer to them
  benches: Bench[];
  leastSquares: LeastSquares[];
  notes: string[]; // what could not be read or was left out, and why
}

// running: somebody holds the folder's lock. stopped: begun, and nobody trains it now.
export type RunState = "running" | "stopped" | "done" | "diverged" | "failed" | "empty";

export interface Run {
  id: string; // its folder below what was named; unique
  state: RunState;
  notes: string[]; // of this run: a torn line, a file that cannot be read, why it failed
  settings: Record<string, string>; // every option by its name in config.toml, as text
  group: string; // equal for runs that differ in nothing but the seed
  label: string; // short: what distinguishes the group from the other groups of the report
  seed: string;
  metric: string; // "acc", "bpc", ...: the one that it is judged by, the task's first
  higherIsBetter: boolean;
  steps: number; // completed
  totalSteps: number; // 0: unknown
  totalEpochs: number; // 0: unknown
  changed: string; // when a file of it last changed, UTC
  summary: Summary;
  epochs: Epochs;
  curve: Curve;
  promotions: Promotions;
  heat: Heat | null; // null: no tensor is narrow, nothing was recorded
  histograms: Histogram[];
  shifted: Shifted[]; // of S2FP8 tensors
  doctor: Doctor | null;
  plan: number; // in Report.plans; -1: it could not be planned, see notes
}

export interface Summary {
  best: Num; // test value of the metric in the best epoch, in the run's formats
  bestFp32: Num; // the same weights computed in fp32
  last: Num;
  trainLoss: Num; // of the last epoch
  aggregateBits: Num; // planned, at the start: bits of all tensors, live or not
  aggregateBitsEnd: Num; // with the promotions that happened
  peakBytes: Num; // the allocator's high-water mark; while there is none the plan's
  plannedPeakBytes: Num; // before the first step
  lowPlanned: Num; // share of elements stored low when the run began
  lowLast: Num; // in the last epoch
  lowMean: Num; // over epochs
  promotions: number;
  skipped: number; // steps
  seconds: Num;
}

// One entry an epoch.
export interface Epochs {
  epoch: number[];
  step: number[]; // completed after it
  trainLoss: Num[];
  testLoss: Num[];
  train: Num[]; // the metric
  test: Num[];
  testFp32: Num[]; // empty if all of it is fp32
  lowRatio: Num[];
  peakBytes: Num[];
  seconds: Num[];
  examplesPerSecond: Num[];
  others: OtherMetric[]; // metrics beside the one that the run is judged by
  best: number; // which of them is the best epoch, as training chooses it; -1: none
}

export interface OtherMetric {
  name: string;
  train: Num[];
  test: Num[];
  testFp32: Num[]; // empty if all of it is fp32
}

// Steps in buckets of `stride` steps, so that any run has a bounded number of them; stride 1: every
// step. step[i] is the last step of bucket i. NaN and infinities are left out of minima, maxima and
// means, unless a bucket has nothing else.
export interface Curve {
  stride: number;
  step: number[];
  loss: Num[]; // mean
  lossLow: Num[]; // least and largest; the same array contents as loss where stride is 1
  lossHigh: Num[];
  lr: Num[]; // at the bucket's last step
  scale: Num[]; // likewise
  cancelled: Num[]; // mean share of updates that rounding cancelled; empty: never above 0
  skipped: number[]; // steps in the bucket; empty: none ever
}

// One entry a promotion, by step.
export interface Promotions {
  step: number[];
  tensor: string[];
  from: string[];
  to: string[];
  ratio: Num[]; // overflow that caused it
}

export type Kind = "activation" | "activation gradient" | "weight" | "weight gradient";

// Narrow tensors by buckets of recorded steps: the largest value in each bucket.
export interface Heat {
  tensors: { name: string; kind: Kind; elements: number; format: string; high: string }[];
  step: number[]; // the last step of each bucket
  overflow: Num[][]; // [tensor][bucket]: share of its elements beyond the largest number
  underflow: Num[][]; // share flushed to zero
  amax: Num[][]; // largest magnitude before rounding; "nan" if there was a NaN
  // log2 of the largest and of the smallest positive number of each format that occurs; null: it
  // adapts to the tensor (s2fp8).
  formats: Record<string, { high: Num; low: Num }>;
  words: Record<string, string>; // by tensor: the doctor's sentence where it has one
}

// Inputs by floor(log2 |x|). `of` says of what: the tensor, or what S2FP8 makes of it.
export interface Histogram {
  tensor: string;
  kind: Kind;
  format: string;
  of: "x" | "y";
  step: number;
  lowest: number; // exponent of counts[0]
  counts: number[];
  zero: number;
  infinite: number;
  nan: number;
}

// The statistics of an S2FP8 tensor over time.
export interface Shifted {
  tensor: string;
  kind: Kind;
  step: number[];
  mu: Num[];
  m: Num[];
  alpha: Num[];
  beta: Num[];
}

export interface Doctor {
  sentence: string;
  text: string; // all of `ulp doctor DIR`
}

// What is known of a configuration without running it.
export interface Plan {
  model: string;
  device: string; // on which it was planned; the run may have been on another, see note
  note: string;
  stateBytes: number;
  arenaBytes: number;
  peakBytes: number;
  peakStep: number;
  aggregateBits: number;
  lowRatio: number;
  use: {
    weights: number;
    optimizer: number;
    activations: number;
    gradients: number;
    workspace: number;
    snapshot: number;
  };
  tensors: PlanTensor[]; // those that count, in graph order
  detail: PlanDetail | null; // null: left out, the report has too many plans
}

export interface PlanTensor {
  name: string;
  op: string; // of the node that makes it
  kind: Kind;
  elements: number;
  bits: number; // of an element, as it is stored at the start
  format: string;
  group: number;
  low: boolean;
}

export interface PlanDetail {
  // more: nodes that run as one with it
  steps: { node: string; op: string; kernel: string; phase: string; more: number }[];
  blocks: Block[]; // memory over the step
  nodes: MapNode[]; // forward
}

// A tensor's place: bytes [offset, offset + bytes) of the arena during steps first..last. State
// lies below the arena: its offset is negative, and it is there in all steps.
export interface Block {
  name: string;
  use: "weights" | "optimizer" | "activations" | "gradients" | "workspace" | "snapshot";
  format: string;
  offset: number;
  bytes: number;
  first: number;
  last: number;
}

export interface MapNode {
  name: string;
  op: string;
  out: string[]; // names of tensors
  in: number[]; // numbers of nodes
  weights: string[]; // names of the parameters it reads
}

// `ulp bench step --json`.
export interface Bench {
  id: string; // file
  model: string;
  policy: string;
  label: string; // the network, the policy, and what else is not as usual
  device: string;
  batch: number;
  seconds: number; // median of a step
  plannedBytes: number;
  aggregateBits: Num;
  kernels: { op: string; kernel: string; operands: string; seconds: number; calls: number }[];
}

// `ulp lab least-squares`: median over seeds.
export interface LeastSquares {
  id: string;
  title: string;
  variants: { name: string; step: number[]; loss: Num[]; excess: Num[]; cancelled: Num[] }[];
}
