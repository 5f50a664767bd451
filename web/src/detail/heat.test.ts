import assert from "node:assert/strict";
import test from "node:test";
import type { Run } from "../state";
import {
  columnOf, HeatView, makeGrid, matcher, promotionMarks, roomShade, select, shareShade,
  worstTensors, type Heat,
} from "./heat_data";
import { overflowLines, threshold } from "./overflow";

function heatOf(overflow: (number | null)[][], kinds?: string[]): Heat {
  return {
    tensors: overflow.map((_, i) => ({
      name: `t${i}`, kind: kinds?.[i] ?? "activation", elements: 10, format: "fp(4,3,4)",
      high: "bf16",
    })),
    step: overflow[0].map((_, b) => 10 * (b + 1)),
    overflow, underflow: overflow, amax: overflow.map((row) => row.map(() => 120)),
    formats: {
      "fp(4,3,4)": { high: Math.log2(30), low: -13 }, "bf16": { high: 127.99, low: -133 },
    },
    words: {},
  } as Heat;
}

function runOf(heat: Heat): Run {
  return {
    heat, steps: 40,
    promotions: { step: [20], tensor: ["t1"], from: ["fp(4,3,4)"], to: ["bf16"], ratio: [0.02] },
  } as unknown as Run;
}

test("columns hold every bucket once, in order", () => {
  const heat = heatOf([Array.from({ length: 17 }, () => 0)]);
  for (const most of [1, 2, 5, 16, 17, 100]) {
    const { columns } = makeGrid([0], heat, 10, most);
    assert.equal(columns[0], 0);
    assert.equal(columns[columns.length - 1], 17);
    assert(columns.length - 1 <= most && columns.length - 1 === Math.min(17, most));
    for (let c = 1; c < columns.length; c++) assert(columns[c] > columns[c - 1]);
  }
});

test("rows are merged within a kind and lose no tensor", () => {
  const kinds = Array.from({ length: 11 }, (_, i) => (i < 5 ? "activation" : "weight"));
  const heat = heatOf(kinds.map(() => [0]), kinds);
  const all = select(heat, { kind: "all", name: "" });
  const { rows, merged } = makeGrid(all, heat, 6, 10);
  assert.equal(merged, 2);
  assert.deepEqual(rows.flat(), all);
  for (const row of rows) assert.equal(new Set(row.map((i) => kinds[i])).size, 1);
});

test("tensors are grouped by kind in their own order", () => {
  const heat = heatOf([[0], [0], [0], [0]], ["weight", "activation", "weight", "activation"]);
  assert.deepEqual(select(heat, { kind: "all", name: "" }), [1, 3, 0, 2]);
  assert.deepEqual(select(heat, { kind: "weight", name: "2" }), [2]);
});

test("a cell is the worst of its tensors and buckets", () => {
  const heat = heatOf([[0, 1e-3, null, NaN], [0.5, 0, 0, 0]]);
  const view = new HeatView(runOf(heat), heat);
  const first = view.cell("overflow", [0, 1], 0, 2);
  assert.deepEqual([first.tensor, first.bucket, first.amount], [1, 0, 0.5]);
  const second = view.cell("overflow", [0], 0, 3);
  assert.deepEqual([second.bucket, second.amount], [1, 1e-3]);
  assert(Number.isNaN(view.cell("overflow", [0], 2, 3).shade));
});

test("the largest magnitude is told by the format of its step", () => {
  const heat = heatOf([[0, 0, 0, 0], [0, 0, 0, 0]]);
  const view = new HeatView(runOf(heat), heat);
  // 120 is 4 times 30: two powers of two beyond, until the promotion in step 20 counts.
  assert.equal(view.room(0, 3), 2);
  assert.equal(view.room(1, 1), 2);
  assert.equal(view.room(1, 2), Math.log2(120) - 127.99);
  assert.equal(view.cell("format", [1], 0, 4).format, "fp(4,3,4)");
  assert.equal(view.cell("format", [1], 2, 4).format, "bf16");
  heat.amax[0][0] = NaN;
  assert.equal(view.room(0, 0), Infinity);
  heat.amax[0][0] = 0;
  assert(Number.isNaN(view.room(0, 0)));
});

test("promotions stand in the column of their step", () => {
  const heat = heatOf([[0, 0, 0, 0], [0, 0, 0, 0]]);
  const grid = makeGrid([0, 1], heat, 10, 2);
  assert.deepEqual(promotionMarks(runOf(heat), heat, grid),
    [{ row: 1, column: 0, promotion: 0 }]);
  assert.deepEqual([1, 20, 21, 40, 99].map((step) => columnOf(heat, grid, step)), [0, 0, 1, 1, 1]);
});

test("scales: zero apart, a millionth, one; at the largest number and beyond", () => {
  assert.deepEqual([0, 1e-6, 1e-9, 1e-3, 1].map(shareShade), [-1, 0, 0, 0.5, 1]);
  assert.deepEqual([-1e9, 0, 4, 100].map(roomShade), [-1, 0, 0.5, 1]);
});

test("names are found by parts and by stars", () => {
  assert(matcher("conv1")("layer1.Conv1.out"));
  assert(matcher("layer1.*.out")("layer1.conv1.out"));
  assert(!matcher("layer1.*.out")("layer1.conv1.out.grad"));
  assert(!matcher("a.c*")("abc"));
});

test("the worst tensors first, and the chosen one behind them", () => {
  const heat = heatOf([[0, 0.1], [0.3, 0], [0, 0], [NaN, 0]]);
  assert.deepEqual(worstTensors(heat, 5), [3, 1, 0]);
  assert.deepEqual(worstTensors(heat, 2), [3, 1]);
  assert.deepEqual(overflowLines(heat, 2, "t2").map((l) => [l.tensor, l.rank]),
    [[3, 0], [1, 1], [2, -1]]);
  assert.equal(overflowLines(heat, 2, "t1").length, 2);
});

test("the threshold is the setting, or what it is by default", () => {
  assert.equal(threshold({ promote: "0.05", policy: "op" }), 0.05);
  assert.equal(threshold({ promote: "off", policy: "op" }), null);
  assert.equal(threshold({ promote: "default", policy: "size:0.5" }), 0.01);
  assert.equal(threshold({ promote: "default", policy: "amp:bf16" }), null);
  assert.equal(threshold({ promote: "0.01", policy: "fp32" }), 0.01);
});
