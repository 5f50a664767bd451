import assert from "node:assert/strict";
import test from "node:test";
import {
  byteLogTicks, byteTick, byteTicks, bytes, duration, exact, extent, logTicks, padded, percent,
  scale, short, ticks, wholeTicks,
} from "./axis";

// A generator with a seed: a failure can be repeated.
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

test("ticks are round, in range, equally far apart and about as many as wanted", () => {
  const next = random(1);
  for (let i = 0; i < 2000; i++) {
    const lo = (next() - 0.5) * 10 ** Math.floor(next() * 12 - 6);
    const span = 10 ** (next() * 12 - 6);
    if (span < Math.abs(lo) * 1e-6) continue;
    const hi = lo + span;
    const wanted = 2 + Math.floor(next() * 10);
    const found = ticks(lo, hi, wanted);
    const where = `${lo} to ${hi}, ${wanted} wanted: ${found.join(" ")}`;
    assert(found.length >= 1 && found.length <= wanted * 1.2 + 1, where);
    assert(found.length >= Math.floor(wanted / 3), where);
    for (const t of found) {
      assert(t >= lo - span * 1e-6 && t <= hi + span * 1e-6, where);
    }
    const gaps = found.slice(1).map((t, k) => t - found[k]!);
    for (const gap of gaps) {
      assert(Math.abs(gap - gaps[0]!) < 1e-9 * Math.max(Math.abs(lo), Math.abs(hi), span), where);
      const digit = gap / 10 ** Math.floor(Math.log10(gap * (1 + 1e-6)));
      assert([1, 2, 5, 10].some((d) => Math.abs(digit - d) < 1e-4), `${where}: step ${gap}`);
    }
  }
});

test("ticks read as what they are", () => {
  assert.deepEqual(ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(ticks(0, 0.5, 5), [0, 0.1, 0.2, 0.3, 0.4, 0.5]);
  assert.deepEqual(ticks(5, 5, 5), []);
  assert.deepEqual(ticks(NaN, 1, 5), []);
  assert.deepEqual(wholeTicks(1, 3, 8), [1, 2, 3]);
  assert.deepEqual(byteTicks(0, 3 * 2 ** 20, 3), [0, 2 ** 20, 2 * 2 ** 20, 3 * 2 ** 20]);
  assert.deepEqual(logTicks(0.5, 2000, 5), [1, 10, 100, 1000]);
  assert.deepEqual(logTicks(1, 100, 10), [1, 2, 5, 10, 20, 50, 100]);
});

test("an axis of bytes has one unit, whatever its ticks are", () => {
  for (const [hi, unit] of [[900, "B"], [1024, "KiB"], [900 * 1024, "KiB"], [1.1 * 2 ** 20, "MiB"],
    [900 * 2 ** 20, "MiB"], [3 * 2 ** 30, "GiB"]] as const) {
    const found = byteTicks(0, hi, 5);
    assert(found.length >= 3, `${hi}`);
    const texts = found.map((t) => byteTick(t, hi));
    assert.equal(texts[0], "0");
    for (const [i, text] of texts.slice(1).entries()) {
      const [number, of] = text.split(" ");
      assert.equal(of, unit, text);
      assert(number!.length <= 4, text);
      const power = ["B", "KiB", "MiB", "GiB"].indexOf(unit);
      assert(Math.abs(Number(number) * 1024 ** power - found[i + 1]!) < 1e-6 * hi, text);
    }
  }
  assert.deepEqual(byteTicks(0, 1.1 * 2 ** 20, 5).map((t) => byteTick(t, 1.1 * 2 ** 20)),
                   ["0", "0.2 MiB", "0.4 MiB", "0.6 MiB", "0.8 MiB", "1 MiB"]);
});

test("a logarithmic axis of bytes has powers of two", () => {
  const texts = (lo: number, hi: number, wanted: number) =>
    byteLogTicks(lo, hi, wanted).map((t) => bytes(t));
  assert.deepEqual(texts(100 * 2 ** 20, 5 * 2 ** 30, 8),
                   ["128 MiB", "256 MiB", "512 MiB", "1 GiB", "2 GiB", "4 GiB"]);
  assert(byteLogTicks(1, 2 ** 40, 6).length <= 7);
  assert.deepEqual(texts(600, 900, 3), ["600 B", "700 B", "800 B", "900 B"]);
});

test("a scale goes there and back", () => {
  for (const s of [scale(2, 300, 10, 500), scale(2, 300, 500, 10), scale(1e-8, 3, 0, 700, true)]) {
    for (const at of [s.lo, s.hi, Math.sqrt(s.lo * s.hi)]) {
      assert(Math.abs(s.value(s.px(at)) - at) < 1e-9 * s.hi);
    }
    assert(Math.abs(s.px(s.lo) - s.from) < 1e-9 && Math.abs(s.px(s.hi) - s.to) < 1e-9);
  }
});

test("a scale of one point or of nothing still has room", () => {
  for (const s of [scale(5, 5, 0, 100), scale(0, 0, 0, 100), scale(NaN, NaN, 0, 100),
    scale(0, 0, 0, 100, true), scale(-3, -1, 0, 100, true), scale(7, 7, 0, 100, true)]) {
    assert(s.lo < s.hi && Number.isFinite(s.px((s.lo + s.hi) / 2)));
  }
  const log = scale(0.1, 10, 0, 100, true);
  assert(Number.isNaN(log.px(0)) && Number.isNaN(log.px(-1)) && Number.isNaN(log.px(NaN)));
});

test("extents pass over what is not finite", () => {
  assert.deepEqual(extent([3, NaN, null, -2, Infinity, undefined]), [-2, 3]);
  assert.deepEqual(extent([3, 0, -2, 7], true), [3, 7]);
  assert.deepEqual(extent([NaN, null]), [NaN, NaN]);
  const [lo, hi] = padded(2, 12);
  assert(lo < 2 && hi > 12 && lo > 0 && hi < 14);
});

test("numbers as text", () => {
  assert.equal(short(1234), "1.23k");
  assert.equal(short(-0.00001234), "−1.2e-5");
  assert.equal(short(0), "0");
  assert.equal(exact(1234567), "1,234,567");
  assert.equal(exact(NaN), "NaN");
  assert.equal(exact(-Infinity), "−∞");
  assert.equal(exact(null), "–");
  assert.equal(bytes(1023), "1023 B");
  assert.equal(bytes(1536), "1.5 KiB");
  assert.equal(percent(0.12345), "12.3%");
  assert.equal(duration(0.0000021), "2.1 µs");
  assert.equal(duration(125), "2 min 5 s");
});
