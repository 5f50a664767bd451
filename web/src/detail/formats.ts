// What a format can hold, from its name. ulp/numeric/format.h and storage.h define the names; this
// reads them again, so that ranges can be drawn of formats that the run does not use.

export type Specials = "none" | "ieee" | "fn";

export interface Format {
  exp: number; // exponent bits
  man: number; // mantissa bits
  bias: number;
  specials: Specials;
  bits: number;
  largest: number;
  smallestNormal: number;
  smallest: number; // positive; a subnormal where there are mantissa bits
}

const named: Record<string, [number, number, Specials]> = {
  fp32: [8, 23, "ieee"],
  tf32: [8, 10, "ieee"],
  bf16: [8, 7, "ieee"],
  fp16: [5, 10, "ieee"],
};

// eEmM is an IEEE format unless the OCP standards give the name to another one.
const ocp: Record<string, Specials> = { e4m3: "fn", e3m2: "none", e2m3: "none", e2m1: "none" };

function make(exp: number, man: number, extraBias: number, specials: Specials): Format | null {
  if (exp < 2 || exp > 8 || man < 0 || man > 23) return null;
  const bias = 2 ** (exp - 1) - 1 + extraBias;
  // The code of the largest number: all ones, less what the specials take.
  const ones = 2 ** (exp + man) - 1;
  const top = specials === "none" ? ones : specials === "fn" ? ones - 1 : ones - 2 ** man;
  const field = Math.floor(top / 2 ** man), mantissa = top % 2 ** man;
  const lowest = 1 - bias;
  return {
    exp, man, bias, specials,
    bits: 1 + exp + man,
    largest: 2 ** (field - bias) * (1 + mantissa / 2 ** man),
    smallestNormal: 2 ** lowest,
    smallest: 2 ** (lowest - man),
  };
}

// null: not a plain format, or one whose range follows the tensor.
export function parseFormat(name: string): Format | null {
  const known = named[name];
  if (known) return make(known[0], known[1], 0, known[2]);
  const short = /^e(\d+)m(\d+)$/.exec(name);
  if (short) return make(Number(short[1]), Number(short[2]), 0, ocp[name] ?? "ieee");
  const long = /^fp\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*(?:,\s*(none|ieee|fn)\s*)?\)$/.exec(name);
  if (!long) return null;
  const specials = (long[4] ?? "none") as Specials;
  return make(Number(long[1]), Number(long[2]), Number(long[3]), specials);
}

// How a tensor is stored: a format, a format with extra bits, or blocks with a scale.
export interface Storage {
  element: Format | null; // of the code; null: unknown name
  bits: number; // of an element, with extra bits, without what blocks share; 0: unknown
  adapts: boolean; // its range follows the tensor
}

export function parseStorage(name: string): Storage {
  if (name === "s2fp8") return { element: parseFormat("e5m2"), bits: 8, adapts: true };
  const scaled = /^scaled\((.*?)(,nonzero)?\)$/.exec(name);
  if (scaled) {
    const element = parseFormat(scaled[1]);
    return { element, bits: element?.bits ?? 0, adapts: true };
  }
  const split = /^(.*)\+(\d+)(sr)?$/.exec(name);
  if (split) {
    const element = parseFormat(split[1]);
    const extra = Number(split[2]) + (split[3] ? 1 : 0);
    return { element, bits: element ? element.bits + extra : 0, adapts: false };
  }
  const element = parseFormat(name);
  return { element, bits: element?.bits ?? 0, adapts: false };
}

export function bitsOf(name: string): number {
  return parseStorage(name).bits;
}

export interface Range {
  name: string;
  low: number; // log2 of the smallest positive number
  normal: number; // of the smallest normal one
  high: number; // of the largest one
}

// null: it has none of its own.
export function rangeOf(name: string): Range | null {
  const storage = parseStorage(name);
  if (!storage.element || storage.adapts) return null;
  const { smallest, smallestNormal, largest } = storage.element;
  return {
    name,
    low: Math.log2(smallest), normal: Math.log2(smallestNormal), high: Math.log2(largest),
  };
}

// Formats worth comparing with, widest range first.
export const usualFormats = ["bf16", "fp(6,9,0)", "fp16", "e5m2", "fp(4,3,4)", "e4m3"];

// The ranges to draw beside a tensor: its own first, then the usual ones.
export function rangesBeside(own: string, of: "x" | "y"): Range[] {
  const first = own === "s2fp8" && of === "y" ? "e5m2" : own;
  const names = [first, ...usualFormats.filter((name) => name !== first)];
  return names.map(rangeOf).filter((range): range is Range => range !== null);
}
