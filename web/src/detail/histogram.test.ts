import assert from "node:assert/strict";
import test from "node:test";
import type { Histogram } from "../data";
import { rangeOf } from "./formats";
import {
  bars, exponentSpan, seriesOf, shareFloor, sides, stepFor, stepsOf, total,
} from "./histogram_data";

function histogram(more: Partial<Histogram> = {}): Histogram {
  return {
    tensor: "a", kind: "activation", format: "fp(4,3,4)", of: "x", step: 5, lowest: -14,
    // 2^-14 to 2^-13, then 2^-13, ..., and the last at 2^5.
    counts: [3, 5, ...new Array(17).fill(0), 2], zero: 6, infinite: 1, nan: 3, ...more,
  };
}

test("shares are of all elements, zeros and NaN too", () => {
  const h = histogram();
  assert.equal(total(h), 20);
  assert.deepEqual(bars(h).map((bar) => [bar.exponent, bar.count, bar.share]),
    [[-14, 3, 0.15], [-13, 5, 0.25], [5, 2, 0.1]]);
});

test("what a format cannot hold is beside its range", () => {
  // fp(4,3,4) holds 2^-13 to 30: the bin of 2^4 is the last.
  assert.deepEqual(sides(histogram(), rangeOf("fp(4,3,4)")!),
    { below: 0.15, within: 0.25, beyond: 0.1 });
  assert.deepEqual(sides(histogram(), rangeOf("bf16")!), { below: 0, within: 0.5, beyond: 0 });
});

test("the picture shows all bars and what is near of the format's range", () => {
  const h = histogram();
  assert.deepEqual(exponentSpan([h], null), { low: -15, high: 7 });
  assert.deepEqual(exponentSpan([h], rangeOf("bf16"), 10), { low: -25, high: 17 });
  const none = histogram({ counts: [] });
  assert.deepEqual(exponentSpan([none], rangeOf("e5m2")), { low: -17, high: 17 });
});

test("the floor is a power of ten below every bar", () => {
  assert.equal(shareFloor([histogram()]), 0.01);
  assert.equal(shareFloor([histogram({ counts: [1, 99999], zero: 0, infinite: 0, nan: 0 })]), 1e-5);
});

test("a series holds x and y of all steps", () => {
  const all = seriesOf([histogram({ step: 9 }), histogram(), histogram({ of: "y" }),
    histogram({ tensor: "b", step: 7 })]);
  assert.deepEqual(all.map((s) => s.tensor), ["a", "b"]);
  assert.deepEqual(all[0].steps, [5, 9]);
  assert.equal(all[0].y.get(5)?.of, "y");
  assert.equal(all[0].y.get(9), undefined);
  assert.deepEqual(stepsOf(all), [5, 7, 9]);
  assert.deepEqual([0, 5, 8, 9, 99].map((step) => stepFor(all[0], step)), [5, 5, 5, 9, 9]);
});
