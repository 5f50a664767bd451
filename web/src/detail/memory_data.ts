// Memory over a step as rectangles: what is too thin to see is merged with its neighbours.
import type { Block, PlanDetail } from "../data";

// Scales from steps and bytes to pixels. State lies below address 0 and may be compressed.
export interface MemoryScale {
  x(step: number): number;
  y(offset: number): number;
  offset(y: number): number;
  step(x: number): number;
}

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Extent {
  steps: number;
  low: number; // lowest address, 0 or below: the state
  high: number; // end of the arena
}

export function extentOf(detail: PlanDetail, arenaBytes: number): Extent {
  const extent = { steps: detail.steps.length, low: 0, high: arenaBytes };
  for (const block of detail.blocks) {
    extent.low = Math.min(extent.low, block.offset);
    extent.high = Math.max(extent.high, block.offset + block.bytes);
    extent.steps = Math.max(extent.steps, block.last + 1);
  }
  return extent;
}

// The part of the height that compressed state takes at most.
const compressedPart = 0.16;

export function memoryScale(extent: Extent, frame: Frame, compressed: boolean): MemoryScale {
  const state = -extent.low, total = state + extent.high;
  const natural = total > 0 ? state / total : 0;
  const part = compressed ? Math.min(natural, compressedPart) : natural;
  const below = part * frame.height, above = frame.height - below;
  const zero = frame.top + above;
  return {
    x: (step) => frame.left + (step / Math.max(1, extent.steps)) * frame.width,
    y: (offset) => {
      if (offset >= 0) return zero - (extent.high > 0 ? (offset / extent.high) * above : 0);
      return zero + (-offset / state) * below;
    },
    offset: (y) => {
      if (y <= zero) return above > 0 ? ((zero - y) / above) * extent.high : 0;
      return below > 0 ? -((y - zero) / below) * state : 0;
    },
    step: (x) => Math.floor(((x - frame.left) / frame.width) * Math.max(1, extent.steps)),
  };
}

export interface Mark {
  x: number;
  y: number;
  w: number;
  h: number;
  blocks: number[]; // what it stands for
  area: number; // bytes times steps of all of them
}

export function area(block: Block): number {
  return block.bytes * (block.last - block.first + 1);
}

// Thin marks are merged until there are no more than so many.
export const mostThin = 4000;

// One mark a block, except that blocks below `least` pixels in either direction are merged with
// those of the same colour that lie in the same pixel row and in about the same columns.
export function memoryMarks(
  blocks: Block[], scale: MemoryScale, colourOf: (block: Block) => string, least = 0.5,
): Mark[] {
  const marks: Mark[] = [], thin: Mark[] = [];
  blocks.forEach((block, i) => {
    const x = scale.x(block.first), w = scale.x(block.last + 1) - x;
    const y = scale.y(block.offset + block.bytes), h = scale.y(block.offset) - y;
    const mark = { x, y, w, h, blocks: [i], area: area(block) };
    (w >= least && h >= least ? marks : thin).push(mark);
  });
  let merged: Mark[] = [];
  for (let pixels = 1; pixels < 1e5; pixels *= 4) {
    merged = merge(thin, (mark) => colourOf(blocks[mark.blocks[0]]), pixels);
    if (merged.length <= mostThin) break;
  }
  return [...marks, ...merged];
}

function merge(marks: Mark[], colourOf: (mark: Mark) => string, pixels: number): Mark[] {
  const found = new Map<string, Mark>();
  for (const mark of marks) {
    const column = (x: number) => Math.floor(x / pixels);
    const place = `${Math.floor(mark.y)} ${column(mark.x)} ${column(mark.x + mark.w)}`;
    const key = `${colourOf(mark)} ${place}`;
    const other = found.get(key);
    if (!other) {
      found.set(key, { ...mark, blocks: [...mark.blocks] });
      continue;
    }
    const right = Math.max(other.x + other.w, mark.x + mark.w);
    const bottom = Math.max(other.y + other.h, mark.y + mark.h);
    other.x = Math.min(other.x, mark.x);
    other.y = Math.min(other.y, mark.y);
    other.w = right - other.x;
    other.h = bottom - other.y;
    other.blocks.push(...mark.blocks);
    other.area += mark.area;
  }
  return [...found.values()];
}

// The mark under a point; the smallest one if several overlap. Thin ones are reached within
// `slack` pixels, before what is not thin; but one that the point is on before its neighbours.
export function markAt(marks: Mark[], x: number, y: number, slack = 2): Mark | null {
  let best: Mark | null = null, size = Infinity, on = false;
  for (const mark of marks) {
    const reachX = mark.w < 2 * slack ? slack : 0, reachY = mark.h < 2 * slack ? slack : 0;
    const farX = Math.max(mark.x - x, x - mark.x - mark.w);
    const farY = Math.max(mark.y - y, y - mark.y - mark.h);
    if (farX > reachX || farY > reachY) continue;
    const thinOn = farX <= 0 && farY <= 0 && reachX + reachY > 0;
    if (thinOn === on ? mark.w * mark.h >= size : on) continue;
    best = mark;
    size = mark.w * mark.h;
    on = thinOn;
  }
  return best;
}

export interface Phase {
  name: string;
  first: number;
  end: number;
}

// Runs of steps of one phase.
export function phasesOf(detail: PlanDetail): Phase[] {
  const phases: Phase[] = [];
  detail.steps.forEach((step, i) => {
    const last = phases[phases.length - 1];
    if (last && last.name === step.phase) last.end = i + 1;
    else phases.push({ name: step.phase, first: i, end: i + 1 });
  });
  return phases;
}

// Bytes that are in use in each step, state included.
export function usedBytes(detail: PlanDetail, steps: number): Float64Array {
  const change = new Float64Array(steps + 1);
  for (const block of detail.blocks) {
    change[block.first] += block.bytes;
    change[Math.min(steps, block.last + 1)] -= block.bytes;
  }
  const used = new Float64Array(steps);
  let sum = 0;
  for (let i = 0; i < steps; i++) used[i] = sum += change[i];
  return used;
}
