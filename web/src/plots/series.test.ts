import assert from "node:assert/strict";
import test from "node:test";
import { decimate, lowerBound, smooth } from "./series";

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const everything = (): boolean => true;

test("a decimated line keeps the least and the largest of each column, in bounded points", () => {
  const next = random(7);
  for (const n of [1, 2, 50, 999, 100_000]) {
    for (const columns of [10, 300, 1500]) {
      const xs = Array.from({ length: n }, (_, i) => i + 1);
      const ys = xs.map(() => next());
      const { x, y } = decimate(xs, ys, 1, n, columns, everything);
      assert(x.length <= 2 * columns + 4 && x.length <= n, `${n} in ${columns}: ${x.length}`);
      x.forEach((at, i) => {
        assert.equal(y[i], ys[at - 1], "a point of the line");
        assert(i === 0 || at > x[i - 1]!, "in order");
      });
      if (n < 2) continue;
      const each = (n - 1) / columns;
      const range = (points: readonly number[], values: readonly number[]): Map<number, number[]> => {
        const found = new Map<number, number[]>();
        points.forEach((at, i) => {
          const column = Math.floor((at - 1) / each);
          const seen = found.get(column) ?? [Infinity, -Infinity];
          found.set(column, [Math.min(seen[0]!, values[i]!), Math.max(seen[1]!, values[i]!)]);
        });
        return found;
      };
      assert.deepEqual([...range(x, y)], [...range(xs, ys)]);
    }
  }
});

test("what lies outside of the view goes, but for a point at each side", () => {
  const xs = Array.from({ length: 1000 }, (_, i) => i);
  const { x } = decimate(xs, xs, 300, 400, 200, everything);
  assert.equal(x[0], 299);
  assert.equal(x[x.length - 1], 401);
  assert.equal(x.length, 103);
});

test("gaps and what has no place on the axis stay gaps", () => {
  const xs = [1, 2, 3, 4, 5];
  const { y } = decimate(xs, [1, NaN, null, -4, 5], 1, 5, 100, (v) => v > 0);
  assert.deepEqual(y, [1, NaN, NaN, NaN, 5]);
  // A spike of one point among a hundred thousand is seen; a column of NaN alone is a gap.
  const many = Array.from({ length: 100_000 }, (_, i) => i);
  const values = many.map((i) => (i === 77_777 ? 50 : i >= 40_000 && i < 60_000 ? NaN : 1));
  const line = decimate(many, values, 0, 99_999, 400, everything);
  assert.equal(Math.max(...line.y.filter((v) => !Number.isNaN(v))), 50);
  assert(line.y.some((v) => Number.isNaN(v)));
});

test("the first index that is not below", () => {
  const xs = [1, 3, 3, 7];
  assert.deepEqual([0, 1, 2, 3, 4, 8].map((v) => lowerBound(xs, v)), [0, 0, 1, 1, 3, 4]);
});

test("smoothing starts at the line and passes over NaN", () => {
  const line = smooth([4, 4, 4, 4], 0.9);
  for (const v of line) assert(Math.abs(v - 4) < 1e-12);
  const [a, b, c] = smooth([1, NaN, 3], 0.5);
  assert.equal(a, 1);
  assert(Number.isNaN(b));
  // Weights 1/4 and 1/2, which are all there are so far.
  assert(Math.abs(c! - (0.25 * 1 + 0.5 * 3) / 0.75) < 1e-12);
  assert.deepEqual(smooth([5, 2], 0), [5, 2]);
});
