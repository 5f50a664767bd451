// Scales, ticks, numbers as text, axes and legends. All plots share them, so that all look alike.
import type { Scene, Style, Theme } from "./scene";
import { textWidth } from "./text";

// From values to pixels along one direction.
export interface Scale {
  readonly lo: number;
  readonly hi: number;
  readonly log: boolean;
  readonly from: number; // the pixel of lo
  readonly to: number; // the pixel of hi
  px(value: number): number; // NaN where there is no place: NaN, or not positive on a log scale
  value(px: number): number;
  ticks(wanted: number): number[];
}

// A scale over lo..hi. Where that is one point, it gets some room around it.
export function scale(lo: number, hi: number, from: number, to: number, log = false): Scale {
  if (!Number.isFinite(lo) || !Number.isFinite(hi)) [lo, hi] = log ? [1, 10] : [0, 1];
  if (log && lo <= 0) lo = hi > 0 ? hi / 1000 : 1;
  if (log && hi <= lo) hi = lo * 10;
  if (hi <= lo) {
    const room = Math.abs(lo) > 0 ? Math.abs(lo) * 0.05 : 0.5;
    [lo, hi] = [lo - room, lo + room];
  }
  const a = log ? Math.log10(lo) : lo;
  const b = log ? Math.log10(hi) : hi;
  return {
    lo,
    hi,
    log,
    from,
    to,
    px(value) {
      if (log && !(value > 0)) return NaN;
      return from + (((log ? Math.log10(value) : value) - a) / (b - a)) * (to - from);
    },
    value(px) {
      const at = a + ((px - from) / (to - from)) * (b - a);
      return log ? 10 ** at : at;
    },
    ticks: (wanted) => (log ? logTicks(lo, hi, wanted) : ticks(lo, hi, wanted)),
  };
}

// Least and largest of the finite values; of the positive ones only, if `positive`.
// [NaN, NaN]: there is none.
export function extent(
  values: Iterable<number | null | undefined>,
  positive = false,
): [number, number] {
  let lo = Infinity;
  let hi = -Infinity;
  for (const v of values) {
    if (v === null || v === undefined || !Number.isFinite(v) || (positive && v <= 0)) continue;
    if (v < lo) lo = v;
    if (v > hi) hi = v;
  }
  return lo <= hi ? [lo, hi] : [NaN, NaN];
}

// The same with room at both ends, so that no mark touches the border.
export function padded(lo: number, hi: number, log = false, share = 0.06): [number, number] {
  if (log) {
    if (!(lo > 0)) return [lo, hi];
    const room = (hi / lo) ** share;
    return room > 1 ? [lo / room, hi * room] : [lo / 1.3, hi * 1.3];
  }
  const room = (hi - lo) * share;
  return [lo - room, hi + room];
}

// Round numbers (1, 2, 5 times a power of ten) in lo..hi, about `wanted` of them.
export function ticks(lo: number, hi: number, wanted: number): number[] {
  const span = hi - lo;
  if (!(span > 0) || wanted < 1) return [];
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  let step = power;
  for (const factor of [1, 2, 5, 10]) {
    step = factor * power;
    if (span / step <= wanted * 1.2) break;
  }
  const result: number[] = [];
  const first = Math.ceil(lo / step - 1e-9) + 0; // -0 would read as such
  for (let i = first; i * step <= hi + step * 1e-9 && result.length < 200; i++) {
    // The step is divided away where it can be: 3 * 0.1 is not 0.3.
    result.push(step < 1 ? i / Math.round(1 / step) : i * step);
  }
  return result.every(Number.isFinite) ? result : [];
}

// Whole numbers only: steps, epochs.
export function wholeTicks(lo: number, hi: number, wanted: number): number[] {
  return [...new Set(ticks(lo, hi, Math.min(wanted, Math.max(1, hi - lo))).map(Math.round))]
    .filter((t) => t >= lo && t <= hi);
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

// The largest unit of which there is one in so many bytes, as a power of 1024.
function unitOf(most: number): number {
  const power = Math.floor(Math.log(Math.max(Math.abs(most), 1)) / Math.log(1024) + 1e-9);
  return Math.min(units.length - 1, power);
}

// Round numbers of KiB, MiB, ...: of the unit that the axis has.
export function byteTicks(lo: number, hi: number, wanted: number): number[] {
  const unit = 1024 ** unitOf(hi);
  return ticks(lo / unit, hi / unit, wanted).map((t) => t * unit);
}

// On a logarithmic axis powers of two, which are round in every unit.
export function byteLogTicks(lo: number, hi: number, wanted: number): number[] {
  const first = Math.ceil(Math.log2(lo) - 1e-9), last = Math.floor(Math.log2(hi) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, wanted)));
  const result: number[] = [];
  for (let p = first; p <= last; p++) if (p % every === 0) result.push(2 ** p);
  return result.length >= 2 ? result : byteTicks(lo, hi, wanted).filter((t) => t > 0);
}

// A tick in the unit of an axis that ends at hi: 0.2 MiB where others are 0.8 MiB and 1 MiB.
export function byteTick(v: number, hi: number): string {
  const unit = unitOf(hi);
  return v === 0 ? "0" : `${trimmed(v / 1024 ** unit, 4)} ${units[unit]}`;
}

// Powers of ten; with 2 and 5 times them where the range is short.
export function logTicks(lo: number, hi: number, wanted: number): number[] {
  if (!(lo > 0) || !(hi > lo)) return [];
  const first = Math.floor(Math.log10(lo) + 1e-9);
  const last = Math.ceil(Math.log10(hi) - 1e-9);
  const decades = Math.log10(hi / lo);
  if (decades < 0.5) return ticks(lo, hi, wanted).filter((t) => t > 0);
  const factors = decades * 3 <= wanted + 1 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / Math.max(1, wanted)));
  const result: number[] = [];
  for (let p = first; p <= last; p++) {
    if (factors.length === 1 && p % every !== 0) continue;
    for (const f of factors) {
      const t = f * 10 ** p;
      if (t >= lo * (1 - 1e-9) && t <= hi * (1 + 1e-9)) result.push(t);
    }
  }
  return result.length >= 2 ? result : ticks(lo, hi, wanted).filter((t) => t > 0);
}

function special(v: number | null | undefined): string | null {
  if (v === null || v === undefined) return "–";
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "∞" : "−∞";
  return null;
}

function trimmed(v: number, digits: number): string {
  return String(Number(v.toPrecision(digits))).replace(/^-/, "−");
}

// For an axis or a table: 1.2k, 3.4M, 0.012, 1.5e-6.
export function short(v: number | null | undefined, digits = 3): string {
  const name = special(v);
  if (name !== null) return name;
  const x = v as number;
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size < 1e-3) return x.toExponential(Math.max(0, digits - 2)).replace(/^-/, "−");
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= limit) return trimmed(x / limit, digits) + unit;
  }
  return trimmed(x, digits);
}

// For a tooltip: up to six digits.
export function exact(v: number | null | undefined): string {
  const name = special(v);
  if (name !== null) return name;
  const x = v as number;
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x.toLocaleString("en-US");
  return Math.abs(x) < 1e-4 ? x.toExponential(3) : String(Number(x.toPrecision(6)));
}

export function bytes(v: number | null | undefined, digits = 3): string {
  const name = special(v);
  if (name !== null) return name;
  let x = v as number;
  let unit = 0;
  while (Math.abs(x) >= 1024 && unit + 1 < units.length) {
    x /= 1024;
    unit++;
  }
  // 1000 to 1023 of a unit have four digits before the point.
  const text = trimmed(x, Math.abs(x) >= 1000 ? 4 : digits);
  return `${text} ${units[unit]}`;
}

// Of bits: the aggregate is counted in bits and read in bytes.
export const bits = (v: number | null | undefined): string =>
  bytes(v === null || v === undefined ? v : v / 8);

export function percent(v: number | null | undefined, digits = 3): string {
  return special(v) ?? `${trimmed((v as number) * 100, digits)}%`;
}

export function duration(v: number | null | undefined): string {
  const name = special(v);
  if (name !== null) return name;
  const s = v as number;
  if (s === 0) return "0 s";
  if (s < 1e-3) return `${trimmed(s * 1e6, 3)} µs`;
  if (s < 1) return `${trimmed(s * 1e3, 3)} ms`;
  if (s < 100) return `${trimmed(s, 3)} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

// Room for the data after axes: labels at the left and below. Narrow screens get less.
export function plotBox(
  scene: { width: number; height: number },
  margin: { left?: number; right?: number; top?: number; bottom?: number } = {},
): Box {
  const left = margin.left ?? 70;
  const top = margin.top ?? 12;
  return {
    x: left,
    y: top,
    w: Math.max(20, scene.width - left - (margin.right ?? 18)),
    h: Math.max(20, scene.height - top - (margin.bottom ?? 46)),
  };
}

export const inside = (box: Box, x: number, y: number): boolean =>
  x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h;

export interface Axis {
  scale: Scale;
  label: string;
  format?: (v: number) => string; // short if not said
  ticks?: (lo: number, hi: number, wanted: number) => number[]; // the scale's if not said
  bytes?: number; // values are counted in so many to a byte, and read in one unit of bytes
  grid?: boolean; // yes if not said
}

function axisTicks(axis: Axis, wanted: number): number[] {
  const { scale: s, bytes: each } = axis;
  if (each && s.log) return byteLogTicks(s.lo / each, s.hi / each, wanted).map((t) => t * each);
  if (s.log) return s.ticks(wanted);
  if (each) return byteTicks(s.lo / each, s.hi / each, wanted).map((t) => t * each);
  return axis.ticks ? axis.ticks(s.lo, s.hi, wanted) : s.ticks(wanted);
}

// A logarithmic axis has no one unit: it may go from KiB to GiB.
function tickText({ scale: s, bytes: each, format }: Axis, v: number): string {
  if (each) return s.log ? bytes(v / each) : byteTick(v / each, s.hi / each);
  return (format ?? short)(v);
}

// Grid, ticks and labels around the box; the data is drawn after. Labels that would touch are left
// out. `left`: the room at the left of the box, where panels stand side by side.
export function axes(
  scene: Scene, theme: Theme, box: Box, x: Axis | null, y: Axis | null, left = box.x): void {
  const bottom = box.y + box.h;
  const right = box.x + box.w;
  if (y) {
    let above = Infinity;
    for (const t of axisTicks(y, Math.max(2, box.h / 45))) {
      const at = y.scale.px(t);
      if (!(at >= box.y - 0.5 && at <= bottom + 0.5)) continue;
      const on = Math.round(at) + 0.5;
      if (y.grid !== false) scene.line([box.x, on, right, on], { stroke: theme.grid });
      if (Math.abs(at - above) < 13) continue;
      above = at;
      // The label of the axis takes the outer part of the room.
      scene.text(box.x - 6, at, tickText(y, t), {
        align: "right", baseline: "middle", fill: theme.muted, size: 11,
        most: left - 6 - (y.label ? 16 : 2),
      });
    }
    scene.text(box.x - left + 13, box.y + box.h / 2, y.label, {
      align: "center", baseline: "middle", rotate: -90, fill: theme.text, most: scene.height - 8,
    });
  }
  if (x) {
    let free = -Infinity;
    for (const t of axisTicks(x, Math.max(2, box.w / 85))) {
      const at = x.scale.px(t);
      if (!(at >= box.x - 0.5 && at <= right + 0.5)) continue;
      const on = Math.round(at) + 0.5;
      if (x.grid !== false) scene.line([on, box.y, on, bottom], { stroke: theme.grid });
      const text = tickText(x, t);
      const half = scene.measure(text, 11) / 2;
      const middle = Math.min(at, scene.width - half - 2);
      if (middle - half < free) continue;
      free = middle + half + 6;
      scene.text(middle, bottom + 6, text, {
        align: "center", baseline: "top", fill: theme.muted, size: 11,
      });
    }
    scene.text(box.x + box.w / 2, bottom + 24, x.label, {
      align: "center", baseline: "top", fill: theme.text, most: box.w + box.x,
    });
  }
  scene.line([box.x + 0.5, box.y, box.x + 0.5, bottom + 0.5, right, bottom + 0.5],
             { stroke: theme.muted });
}

export interface LegendEntry {
  label: string;
  colour: string;
  mark?: "line" | "dot" | "rect"; // rect if not said
  shape?: number; // of a dot, see marker
  dash?: number[];
  outline?: string; // around a rect whose colour is that of the page
  faint?: boolean; // something else is selected
}

// A dot by number: circle, square, diamond. They tell groups apart when colours repeat.
export function marker(
  scene: Scene, x: number, y: number, r: number, shape: number, style: Style): void {
  if (shape % 3 === 0) scene.circle(x, y, r, style);
  else if (shape % 3 === 1) scene.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8, style);
  else {
    const d = r * 1.25;
    scene.polygon([x, y - d, x + d, y, x, y + d, x - d, y], style);
  }
}

const legendRow = 18;

// Where each entry goes, row by row.
function placed(measure: (text: string) => number, entries: readonly LegendEntry[], width: number):
  { at: { x: number; row: number }[]; rows: number; most: number } {
  const most = Math.max(40, Math.min(260, width - 22));
  const at: { x: number; row: number }[] = [];
  let x = 0;
  let row = 0;
  for (const e of entries) {
    const w = 22 + Math.min(most, measure(e.label));
    if (x > 0 && x + w > width) {
      x = 0;
      row++;
    }
    at.push({ x, row });
    x += w + 14;
  }
  return { at, rows: entries.length ? row + 1 : 0, most };
}

// The height that a legend of this width takes, known before there is a scene.
export function legendHeight(entries: readonly LegendEntry[], width: number): number {
  return placed((t) => textWidth(t, 11, false), entries, width).rows * legendRow;
}

// Entries in rows from (x, y), at most `width` wide. Returns the height that they take.
export function legend(
  scene: Scene,
  theme: Theme,
  entries: readonly LegendEntry[],
  x: number,
  y: number,
  width: number,
): number {
  const { at, rows, most } = placed((t) => scene.measure(t, 11), entries, width);
  entries.forEach((e, i) => {
    const place = at[i] ?? { x: 0, row: 0 };
    const left = x + place.x;
    const middle = y + place.row * legendRow + legendRow / 2;
    const alpha = e.faint ? 0.4 : 1;
    if (e.mark === "line") {
      const style = { stroke: e.colour, width: 2, alpha, dash: e.dash };
      scene.line([left, middle, left + 16, middle], style);
    } else if (e.mark === "dot") {
      marker(scene, left + 8, middle, 4.5, e.shape ?? 0, { fill: e.colour, alpha });
    } else {
      scene.rect(left + 2, middle - 5, 12, 10, { fill: e.colour, stroke: e.outline, alpha });
    }
    scene.text(left + 21, middle, e.label, {
      baseline: "middle", size: 11, most, fill: e.faint ? theme.muted : theme.text,
    });
  });
  return rows * legendRow;
}

// The first entries, and how many more there are.
export function most<T extends LegendEntry>(entries: readonly T[], count: number): LegendEntry[] {
  if (entries.length <= count) return [...entries];
  const rest = `and ${entries.length - count} more`;
  return [...entries.slice(0, count), { label: rest, colour: "transparent" }];
}
