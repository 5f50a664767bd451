// Colours of formats and of scales. A format has the same colour in every plot of every run: by its
// bits, wide ones cool and narrow ones warm, and shades of it by its exponent bits and its bias.
// Lightness changes along with the hue, so that eyes that miss a hue still tell neighbours apart.
import type { Theme } from "../scene";
import { parseStorage, type Format } from "./formats";

export type Rgb = [number, number, number];

export function css([r, g, b]: Rgb): string {
  return `rgb(${Math.round(r)},${Math.round(g)},${Math.round(b)})`;
}

export function mix(a: Rgb, b: Rgb, t: number): Rgb {
  return [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t];
}

const white: Rgb = [255, 255, 255], black: Rgb = [0, 0, 0];

// Least bits, colour on a light page, colour on a dark one.
const classes: [number, Rgb, Rgb][] = [
  [32, [16, 58, 115], [64, 112, 184]],
  [17, [0, 92, 140], [20, 130, 190]],
  [16, [64, 156, 216], [110, 190, 240]],
  [9, [0, 140, 110], [0, 130, 80]],
  [7, [232, 160, 20], [240, 176, 50]],
  [5, [200, 80, 10], [225, 100, 30]],
  [1, [128, 20, 40], [170, 50, 75]],
];

// By how much white is in the shade of a format with so many more exponent bits than usual.
const lighter: [number[], number[]] = [[0, 0.34, 0.5], [0, 0.3, 0.44]];

// What formats turn to whose range is shifted to smaller numbers, wide ones and narrow ones.
const shifted: Record<"wide" | "narrow", [Rgb, Rgb]> = {
  wide: [[70, 40, 150], [120, 60, 220]],
  narrow: [[156, 48, 140], [172, 48, 132]],
};

const unknown: [Rgb, Rgb] = [[150, 150, 150], [120, 120, 120]];

export function formatRgb(name: string, dark: boolean): Rgb {
  const { bits, element, adapts } = parseStorage(name);
  if (bits === 0) return unknown[dark ? 1 : 0];
  const found = classes.find(([least]) => bits >= least)!;
  const base = found[dark ? 2 : 1];
  // fp(5,2,0) beside fp(4,3,4): more range is a lighter shade. What adapts is a darker one.
  if (adapts) return mix(base, black, dark ? 0.25 : 0.35);
  if (bits > 16 || bits < 7) return base;
  const usual = bits >= 9 ? 6 : 4;
  const shade = Math.max(-2, Math.min(2, (element?.exp ?? usual) - usual));
  const shaded = shade < 0 ? mix(base, black, -0.22 * shade)
    : mix(base, white, lighter[dark ? 1 : 0][shade] ?? 0);
  // Half of the turn after three powers of two: fp(4,3,7) stands between fp(4,3,4) and fp(4,3,12).
  const turn = 0.62 * (1 - 2 ** (-shiftOf(element) / 3));
  return mix(shaded, shifted[bits >= 9 ? "wide" : "narrow"][dark ? 1 : 0], turn);
}

// By how many powers of two a range lies below the usual one. Of fp(4,3,b) that is fp(4,3,4), which
// e4m3 is about too.
function shiftOf(element: Format | null): number {
  if (!element) return 0;
  const extra = element.bias - (2 ** (element.exp - 1) - 1);
  return Math.max(0, extra - (element.exp === 4 && element.man === 3 ? 4 : 0));
}

export function formatColour(name: string, dark: boolean): string {
  return css(formatRgb(name, dark));
}

// For legends: widest first.
export function sortFormats(names: Iterable<string>): string[] {
  return [...new Set(names)].sort((a, b) => {
    const left = parseStorage(a), right = parseStorage(b);
    return right.bits - left.bits || (right.element?.exp ?? 0) - (left.element?.exp ?? 0) ||
      (a < b ? -1 : a > b ? 1 : 0);
  });
}

function ramp(stops: Rgb[], t: number): Rgb {
  const at = Math.max(0, Math.min(1, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  return mix(stops[i], stops[i + 1], at - i);
}

// The further from the background, the more: light to dark red on a light page, dark to bright on a
// dark one. Overflow is warm and underflow cool.
const warm: Rgb[] = [[254, 224, 160], [250, 160, 70], [220, 70, 40], [110, 0, 40]];
const warmDark: Rgb[] = [[75, 35, 30], [160, 50, 35], [240, 120, 30], [255, 235, 150]];
const cool: Rgb[] = [[200, 228, 240], [110, 180, 215], [40, 105, 175], [20, 30, 95]];
const coolDark: Rgb[] = [[28, 45, 75], [35, 85, 150], [70, 160, 215], [200, 240, 255]];

export const levels = 32;

// Steps of a scale, not a continuum: neighbouring cells of one colour are drawn as one rectangle.
function stepped(t: number): number {
  return Math.round(Math.max(0, Math.min(1, t)) * (levels - 1)) / (levels - 1);
}

export function shareColour(t: number, which: "overflow" | "underflow", dark: boolean): string {
  const stops = which === "overflow" ? (dark ? warmDark : warm) : (dark ? coolDark : cool);
  return css(ramp(stops, stepped(t)));
}

// t from -1 (far below the largest number) over 0 (at it) to 1 (far beyond).
export function divergingColour(t: number, dark: boolean): string {
  const middle: Rgb = dark ? [52, 52, 56] : [244, 244, 240];
  const side = t < 0 ? (dark ? coolDark : cool) : (dark ? warmDark : warm);
  const x = stepped(Math.abs(t));
  // Room that is not used is no alarm, so its side stays paler. Beyond, the first step is seen.
  if (t < 0) return css(mix(middle, ramp(side, 0.75 * x), Math.min(1, 4 * x)));
  return css(mix(middle, ramp(side, x), t > 0 ? Math.min(1, 0.5 + 4 * x) : 0));
}

// Text over a colour, which is rgb(...) or #rrggbb.
export function inkOn(colour: string): string {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : (colour.match(/\d+/g) ?? []).map(Number);
  const [r = 0, g = 0, b = 0] = parts;
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#101418" : "#ffffff";
}

// What memory is used for: six of the theme's series, the same in each plot.
export const uses = [
  "weights", "optimizer", "activations", "gradients", "workspace", "snapshot",
] as const;

export function useColour(use: string, theme: Theme): string {
  const i = (uses as readonly string[]).indexOf(use);
  return theme.series[(i < 0 ? uses.length : i) % theme.series.length];
}
