// The heat map as numbers: which rows and columns are shown, and what each cell says.
import type { Kind } from "../data";
import type { Run } from "../state";
import { bitsOf } from "./formats";
import { lowerBound, value, worse } from "./numbers";
import { Replay } from "./replay";

export type Heat = NonNullable<Run["heat"]>;
export type Measure = "overflow" | "underflow" | "amax" | "format";

export const kinds: Kind[] = ["activation", "activation gradient", "weight", "weight gradient"];

export interface Filter {
  kind: Kind | "all";
  name: string; // part of the name; a star stands for anything
}

// Numbers of tensors that pass the filter, grouped by kind, in the order of the network.
export function select(heat: Heat, filter: Filter): number[] {
  const matches = matcher(filter.name);
  const wanted = (i: number) => {
    const tensor = heat.tensors[i];
    return (filter.kind === "all" || tensor.kind === filter.kind) && matches(tensor.name);
  };
  const all = heat.tensors.map((_, i) => i).filter(wanted);
  return kinds.flatMap((kind) => all.filter((i) => heat.tensors[i].kind === kind));
}

export function matcher(pattern: string): (name: string) => boolean {
  const text = pattern.trim().toLowerCase();
  if (!text.includes("*")) return (name) => name.toLowerCase().includes(text);
  const quoted = text.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  const whole = new RegExp(`^${quoted.join(".*")}$`);
  return (name) => whole.test(name.toLowerCase());
}

// Row r of the picture holds the tensors rows[r]; column c the buckets columns[c]..columns[c+1]-1.
export interface Grid {
  rows: number[][];
  columns: number[];
  merged: number; // tensors a row at most
}

export function makeGrid(
  tensors: number[], heat: Heat, mostRows: number, mostColumns: number,
): Grid {
  const rows: number[][] = [];
  const each = Math.max(1, Math.ceil(tensors.length / Math.max(1, mostRows)));
  // A row never mixes kinds: activations saturate where gradients flush.
  for (let i = 0; i < tensors.length;) {
    const kind = heat.tensors[tensors[i]].kind;
    const row: number[] = [];
    while (i < tensors.length && row.length < each && heat.tensors[tensors[i]].kind === kind) {
      row.push(tensors[i++]);
    }
    rows.push(row);
  }
  const buckets = heat.step.length;
  const width = Math.min(buckets, Math.max(1, Math.floor(mostColumns)));
  const columns = Array.from({ length: width + 1 }, (_, c) => Math.floor((c * buckets) / width));
  return { rows, columns, merged: each };
}

// The worst of a cell, and whose it is. `shade` is what the colour shows: a share, the powers of
// two between the largest magnitude and the largest number, or bits of the format.
export interface Cell {
  tensor: number;
  bucket: number;
  amount: number | null;
  format: string;
  shade: number; // NaN: nothing to show
}

export class HeatView {
  readonly heat: Heat;
  private readonly replay: Replay;

  constructor(run: Run, heat: Heat) {
    this.heat = heat;
    this.replay = new Replay(run, null);
  }

  format(tensor: number, bucket: number): string {
    return this.replay.during(this.heat.tensors[tensor].name, this.heat.step[bucket]);
  }

  formats(): string[] {
    return this.replay.formats();
  }

  // log2 of largest magnitude over largest number; NaN where the format adapts or nothing is known.
  room(tensor: number, bucket: number): number {
    const amax = this.heat.amax[tensor]?.[bucket];
    if (amax === null || amax === undefined || amax === 0) return NaN;
    if (!Number.isFinite(amax)) return Infinity; // NaN among them
    return Math.log2(amax) - value(this.heat.formats[this.format(tensor, bucket)]?.high);
  }

  private amount(measure: Measure, tensor: number, bucket: number): number | null {
    if (measure === "format") return bitsOf(this.format(tensor, bucket)) || null;
    return this.heat[measure][tensor]?.[bucket] ?? null;
  }

  private shade(measure: Measure, tensor: number, bucket: number): number {
    if (measure === "amax") return this.room(tensor, bucket);
    return value(this.amount(measure, tensor, bucket));
  }

  // Worst: the largest share, the least room, the narrowest format.
  cell(measure: Measure, tensors: number[], first: number, end: number): Cell {
    let best: Cell | null = null;
    for (const tensor of tensors) {
      for (let bucket = first; bucket < end; bucket++) {
        const shade = this.shade(measure, tensor, bucket);
        const better = !best || beats(measure, shade, best.shade);
        if (!better) continue;
        const amount = this.amount(measure, tensor, bucket);
        best = { tensor, bucket, amount, format: this.format(tensor, bucket), shade };
      }
    }
    return best!;
  }
}

function beats(measure: Measure, a: number, b: number): boolean {
  if (Number.isNaN(a)) return false;
  if (Number.isNaN(b)) return true;
  return measure === "format" ? a < b : a > b;
}

// Shares from 1e-6 to 1 on 0..1 by their logarithm; zero: below all of them.
export const leastShare = 1e-6;

export function shareShade(share: number): number {
  if (!(share > 0)) return -1;
  return Math.max(0, 1 + Math.log10(Math.min(1, share)) / 6);
}

// Powers of two about the largest number on -1..1: 40 below and 8 beyond are the ends.
export const roomBelow = 40, roomBeyond = 8;

export function roomShade(room: number): number {
  if (room < 0) return Math.max(-1, room / roomBelow);
  return Math.min(1, room / roomBeyond);
}

export interface Mark {
  row: number;
  column: number;
  promotion: number; // index into the run's promotions
}

export function promotionMarks(run: Run, heat: Heat, grid: Grid): Mark[] {
  const rowOf = new Map<string, number>();
  grid.rows.forEach((row, r) => row.forEach((i) => rowOf.set(heat.tensors[i].name, r)));
  const marks: Mark[] = [];
  run.promotions.tensor.forEach((name, promotion) => {
    const row = rowOf.get(name);
    if (row === undefined) return;
    marks.push({ row, column: columnOf(heat, grid, run.promotions.step[promotion]), promotion });
  });
  return marks;
}

// The column that holds a step; the last one for steps after all buckets.
export function columnOf(heat: Heat, grid: Grid, step: number): number {
  const bucket = Math.min(heat.step.length - 1, lowerBound(heat.step, step));
  const after = lowerBound(grid.columns, bucket + 1);
  return Math.min(grid.columns.length - 2, after - 1);
}

// Worst tensors first, by the largest overflow they ever had.
export function worstTensors(heat: Heat, count: number): number[] {
  const most = heat.overflow.map((row) => {
    const worst = row.reduce<number | null>((a, b) => worse(a, b), null);
    return Number.isNaN(worst) ? Infinity : value(worst);
  });
  const order = most.map((_, i) => i).filter((i) => most[i] > 0);
  order.sort((a, b) => most[b] - most[a] || a - b);
  return order.slice(0, count);
}
