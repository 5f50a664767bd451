import assert from "node:assert/strict";
import test from "node:test";
import type { Block, PlanDetail } from "../data";
import {
  area, extentOf, markAt, memoryMarks, memoryScale, mostThin, phasesOf, usedBytes,
} from "./memory_data";

function block(name: string, offset: number, bytes: number, first: number, last: number): Block {
  return { name, use: offset < 0 ? "weights" : "activations", format: "fp32", offset, bytes, first,
    last };
}

function detail(blocks: Block[], phases: string[]): PlanDetail {
  return {
    blocks, nodes: [],
    steps: phases.map((phase) => ({ node: "n", op: "o", kernel: "k", phase, more: 0 })),
  };
}

const frame = { left: 10, top: 20, width: 400, height: 300 };

// Many small blocks among a few large ones, from a fixed sequence.
function many(count: number): Block[] {
  let s = 7;
  const next = (most: number) => (s = (s * 48271) % 2147483647) % most;
  return Array.from({ length: count }, (_, i) => {
    const first = next(900);
    return block(`b${i}`, next(1e6), i % 50 ? 1 + next(300) : 40000, first, first + next(90));
  });
}

test("merging loses no block and no area, and marks are bounded by pixels", () => {
  const blocks = many(20000);
  const d = detail(blocks, Array.from({ length: 1000 }, () => "forward"));
  const scale = memoryScale(extentOf(d, 0), frame, true);
  const marks = memoryMarks(blocks, scale, (b) => b.use);
  const sum = (list: { area: number }[]) => list.reduce((a, b) => a + b.area, 0);
  assert.equal(sum(marks), blocks.reduce((a, b) => a + area(b), 0));
  const seen = marks.flatMap((mark) => mark.blocks).sort((a, b) => a - b);
  assert.deepEqual(seen, blocks.map((_, i) => i));
  const large = (mark: { w: number; h: number }) => mark.w >= 0.5 && mark.h >= 0.5;
  const alone = marks.filter((mark) => mark.blocks.length === 1 && large(mark)).length;
  assert(marks.length - alone <= mostThin, `${marks.length} marks`);
  assert(marks.length < blocks.length / 2);
  for (const mark of marks) {
    for (const i of mark.blocks) {
      assert(scale.x(blocks[i].first) >= mark.x - 1e-9);
      assert(scale.x(blocks[i].last + 1) <= mark.x + mark.w + 1e-9);
      assert(scale.y(blocks[i].offset) <= mark.y + mark.h + 1e-9);
    }
  }
});

test("blocks of different colours are not merged", () => {
  const blocks = [block("a", 0, 1, 0, 9), block("b", 1, 1, 0, 9)];
  const scale = memoryScale({ steps: 10, low: 0, high: 1e6 }, frame, true);
  assert.equal(memoryMarks(blocks, scale, () => "same").length, 1);
  assert.equal(memoryMarks(blocks, scale, (b) => b.name).length, 2);
});

test("what is large enough stays a mark of its own", () => {
  const blocks = [block("a", 0, 50, 0, 4), block("b", 50, 50, 5, 9)];
  const scale = memoryScale({ steps: 10, low: 0, high: 100 }, frame, true);
  const marks = memoryMarks(blocks, scale, () => "same");
  assert.deepEqual(marks.map(({ x, y, w, h }) => [x, y, w, h]),
    [[10, 170, 200, 150], [210, 20, 200, 150]]);
  assert.deepEqual(markAt(marks, 300, 100)?.blocks, [1]);
  assert.deepEqual(markAt(marks, 100, 200)?.blocks, [0]);
  assert.equal(markAt(marks, 100, 100), null);
});

test("state takes its share of the height, compressed or not; scales turn back", () => {
  const extent = { steps: 10, low: -300, high: 100 };
  const whole = memoryScale(extent, frame, false), pressed = memoryScale(extent, frame, true);
  assert.equal(whole.y(0), 20 + 75);
  assert(Math.abs(pressed.y(0) - (20 + 0.84 * 300)) < 1e-9);
  for (const scale of [whole, pressed]) {
    assert.equal(scale.y(-300), 320);
    assert.equal(scale.y(100), 20);
    for (const offset of [-299, -1, 0, 1, 99]) {
      assert(Math.abs(scale.offset(scale.y(offset)) - offset) < 1e-6, String(offset));
    }
  }
  assert.equal(whole.step(10), 0);
  assert.equal(whole.step(409), 9);
});

test("phases are runs of steps", () => {
  assert.deepEqual(phasesOf(detail([], ["forward", "forward", "backward", "update"])), [
    { name: "forward", first: 0, end: 2 }, { name: "backward", first: 2, end: 3 },
    { name: "update", first: 3, end: 4 },
  ]);
});

test("bytes in use are those of the blocks that are there", () => {
  const d = detail([block("s", -8, 8, 0, 3), block("a", 0, 5, 1, 2), block("b", 5, 2, 2, 3)],
    ["forward", "forward", "backward", "update"]);
  assert.deepEqual([...usedBytes(d, 4)], [8, 13, 15, 10]);
});
