import assert from "node:assert/strict";
import test from "node:test";
import { dark as darkTheme, light as lightTheme } from "../palette";
import { formatRgb, inkOn, levels, shareColour, sortFormats, type Rgb } from "./colours";

// Colours as eyes see them that miss one kind of cone, in linear light: after Viénot, Brettel and
// Mollon (1999), and tritan after Machado, Oliveira and Fernandes (2009).
type Matrix = [Rgb, Rgb, Rgb];
const eyes: Record<string, Matrix> = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
  deutan: [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
  tritan: [[1.25553, -0.07675, -0.17878], [-0.07841, 0.93081, 0.1476], [0.00473, 0.69137, 0.3039]],
};

// How far apart colours must be. Tritan eyes are a hundred times rarer than the others.
const atLeast = (name: string, usual: number): number =>
  (name === "tritan" ? 0.75 * usual : usual);

function linear(c: number): number {
  const x = c / 255;
  return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
}

// Lightness and two hues of CIE Lab, after the eye's matrix.
function lab(rgb: Rgb, eye: Matrix): Rgb {
  const seen = rgb.map(linear);
  const [r, g, b] = eye.map((row) => Math.max(0, row.reduce((s, w, i) => s + w * seen[i], 0)));
  const f = (t: number) => (t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27 * t + 16) / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function between(a: Rgb, b: Rgb, eye: Matrix): number {
  const [p, q] = [lab(a, eye), lab(b, eye)];
  return Math.hypot(...p.map((v, i) => v - q[i]));
}

const distance = (a: string, b: string, eye: Matrix, dark: boolean): number =>
  between(formatRgb(a, dark), formatRgb(b, dark), eye);

const hex = (colour: string): Rgb =>
  [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)) as Rgb;

function contrast(a: string, b: string): number {
  const light = (colour: string): number => {
    const [r, g, b] = hex(colour).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [more, less] = [light(a), light(b)].sort((x, y) => y - x);
  return (more + 0.05) / (less + 0.05);
}

test("series tell apart for every eye and from the background, on light and on dark", () => {
  for (const { dark, series, background, panel } of [lightTheme, darkTheme]) {
    const where = dark ? "dark" : "light";
    assert.equal(series.length, 8);
    for (const [name, eye] of Object.entries(eyes)) {
      series.forEach((a, i) => series.slice(i + 1).forEach((b) => {
        const far = between(hex(a), hex(b), eye);
        assert(far > atLeast(name, 16), `${a} and ${b} for ${name}, ${where}: ${far.toFixed(1)}`);
      }));
    }
    for (const colour of series) {
      for (const other of [background, panel]) {
        assert(contrast(colour, other) >= 3, `${colour} on ${other}`);
      }
    }
  }
});

const apart = ["fp32", "fp(6,9,0)", "e8m3", "fp(4,3,4)", "e3m2", "e2m1"];

test("widths tell apart for every eye, on light and on dark", () => {
  for (const dark of [false, true]) {
    for (const [name, eye] of Object.entries(eyes)) {
      apart.forEach((a, i) => apart.slice(i + 1).forEach((b) => {
        const far = distance(a, b, eye, dark);
        const where = `${a} and ${b} for ${name}, ${dark ? "dark" : "light"}`;
        assert(far > atLeast(name, 14), `${where}: ${far.toFixed(1)}`);
      }));
    }
  }
});

test("formats of one width that occur together are told apart too", () => {
  for (const dark of [false, true]) {
    for (const [name, eye] of Object.entries(eyes)) {
      for (const [a, b] of [["fp(4,3,4)", "fp(5,2,0)"], ["fp(4,3,4)", "fp(4,3,12)"],
        ["fp(4,3,12)", "fp(5,2,0)"], ["fp(5,2,0)", "fp(5,2,24)"], ["fp(4,3,12)", "s2fp8"],
        ["fp(6,9,0)", "fp(6,9,12)"], ["e4m3", "e5m2"], ["bf16", "fp16"],
        ["bf16", "fp(6,9,0)"], ["fp16", "fp(6,9,0)"], ["e4m3", "s2fp8"], ["e5m2", "s2fp8"]]) {
        const far = distance(a, b, eye, dark);
        const where = `${a} and ${b} for ${name}, ${dark ? "dark" : "light"}`;
        assert(far > atLeast(name, 14), `${where}: ${far.toFixed(1)}`);
      }
    }
  }
});

test("more is further from the page for every eye, on light and on dark", () => {
  for (const { dark, background } of [lightTheme, darkTheme]) {
    for (const [name, eye] of Object.entries(eyes)) {
      for (const which of ["overflow", "underflow"] as const) {
        const far = Array.from({ length: levels }, (_, i) => {
          const colour = shareColour(i / (levels - 1), which, dark);
          const [l] = lab(colour.match(/\d+/g)!.map(Number) as Rgb, eye);
          return Math.abs(l - lab(hex(background), eye)[0]);
        });
        far.slice(1).forEach((v, i) => assert(v > far[i]!,
          `${which} for ${name}, ${dark ? "dark" : "light"}: step ${i + 1}`));
        assert(far[levels - 1]! - far[0]! > 50, `${which} for ${name}`);
      }
    }
  }
});

test("wide ones are cool and narrow ones warm", () => {
  for (const dark of [false, true]) {
    for (const name of ["fp32", "tf32", "bf16", "fp16", "fp(6,9,0)", "fp(6,9,12)"]) {
      const [r, , b] = formatRgb(name, dark);
      assert(b > r, name);
    }
    for (const name of ["e4m3", "fp(4,3,4)", "fp(4,3,12)", "fp(5,2,0)", "s2fp8", "e3m2", "e2m1"]) {
      const [r, , b] = formatRgb(name, dark);
      assert(r > b, name);
    }
  }
});

test("legends go from wide to narrow; text is readable on its colour", () => {
  assert.deepEqual(sortFormats(["fp(4,3,4)", "fp32", "bf16", "fp16", "fp32"]),
    ["fp32", "bf16", "fp16", "fp(4,3,4)"]);
  assert.equal(inkOn("#ffffff"), "#101418");
  assert.equal(inkOn("rgb(16,58,115)"), "#ffffff");
});
