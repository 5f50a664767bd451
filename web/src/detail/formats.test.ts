import assert from "node:assert/strict";
import test from "node:test";
import { bitsOf, parseFormat, parseStorage, rangeOf, rangesBeside } from "./formats";

// Name, bits, largest number, smallest positive number, smallest normal one: from the standards, or
// by hand where the comment says how.
const known: [string, number, number, number, number][] = [
  ["fp32", 32, 3.4028234663852886e38, 2 ** -149, 2 ** -126],
  ["tf32", 19, (2 - 2 ** -10) * 2 ** 127, 2 ** -136, 2 ** -126],
  ["bf16", 16, 3.3895313892515355e38, 2 ** -133, 2 ** -126],
  ["fp16", 16, 65504, 2 ** -24, 2 ** -14],
  ["e5m2", 8, 57344, 2 ** -16, 2 ** -14],
  ["e4m3", 8, 448, 2 ** -9, 2 ** -6],
  ["e3m2", 6, 28, 2 ** -4, 2 ** -2],
  ["e2m3", 6, 7.5, 2 ** -3, 1],
  ["e2m1", 4, 6, 0.5, 1],
  // bias 7 + 4 = 11: the largest is 1.875 * 2^(15 - 11), the smallest 2^(1 - 11 - 3).
  ["fp(4,3,4)", 8, 30, 2 ** -13, 2 ** -10],
  // bias 31, no specials: (2 - 2^-9) * 2^(63 - 31); 2^(1 - 31 - 9).
  ["fp(6,9,0)", 16, (2 - 2 ** -9) * 2 ** 32, 2 ** -39, 2 ** -30],
  // bias 15, no specials: 1.75 * 2^(31 - 15).
  ["fp(5,2,0)", 8, 114688, 2 ** -16, 2 ** -14],
  // No mantissa: no subnormals. bias 7, ieee: the top exponent is infinity.
  ["fp(4,0,0,ieee)", 5, 2 ** 7, 2 ** -6, 2 ** -6],
  ["fp(4,3,0,fn)", 8, 448, 2 ** -9, 2 ** -6],
  ["fp(4,3,-2)", 8, 1.875 * 2 ** 10, 2 ** -7, 2 ** -4],
];

test("formats hold what their definition says", () => {
  for (const [name, bits, largest, smallest, normal] of known) {
    const format = parseFormat(name);
    assert(format, name);
    assert.deepEqual(
      [format.bits, format.largest, format.smallest, format.smallestNormal],
      [bits, largest, smallest, normal], name);
  }
});

test("names that are no formats", () => {
  const others = ["", "s2fp8", "fp(4,3)", "fp(1,3,0)", "fp(9,3,0)", "e4", "fp(4,3,4", "int32"];
  for (const name of others) {
    assert.equal(parseFormat(name), null, name);
  }
});

test("storages: extra bits, scales, shifted", () => {
  assert.equal(bitsOf("bf16+8"), 24);
  assert.equal(bitsOf("fp16+13sr"), 30);
  assert.equal(bitsOf("fp(4,3,4)+8"), 16);
  assert.equal(bitsOf("scaled(e5m2,nonzero)"), 8);
  assert.equal(bitsOf("s2fp8"), 8);
  assert.equal(bitsOf("int32"), 0);
  assert(parseStorage("scaled(e4m3)").adapts);
  assert(!parseStorage("bf16+8").adapts);
});

test("ranges are logarithms, and what adapts has none", () => {
  assert.deepEqual(rangeOf("fp(5,2,0)"),
    { name: "fp(5,2,0)", low: -16, normal: -14, high: Math.log2(114688) });
  assert.equal(rangeOf("s2fp8"), null);
  assert.equal(rangesBeside("fp(4,3,4)", "x")[0].name, "fp(4,3,4)");
  assert.equal(rangesBeside("s2fp8", "y")[0].name, "e5m2");
  const names = rangesBeside("bf16", "x").map((range) => range.name);
  assert.equal(new Set(names).size, names.length);
});
