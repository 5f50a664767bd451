import assert from "node:assert/strict";
import test from "node:test";
import type { MapNode } from "../data";
import {
  folded, lanesOf, layersOf, layoutNetwork, rowStarts, type NetworkLayout,
} from "./network_layout";

function node(name: string, inputs: number[]): MapNode {
  return { name, op: "op", out: [`${name}.out`], in: inputs, weights: [] };
}

// Blocks of three operators with a way around them, as residual networks have; every second way
// around has an operator of its own.
function residual(blocks: number): MapNode[] {
  const nodes = [node("input", [])];
  let at = 0;
  for (let b = 0; b < blocks; b++) {
    const from = at;
    for (const op of ["conv", "bn", "relu"]) at = nodes.push(node(`block${b}.${op}`, [at])) - 1;
    let around = from;
    if (b % 2) around = nodes.push(node(`block${b}.shortcut`, [from])) - 1;
    at = nodes.push(node(`block${b}.add`, [at, around])) - 1;
    at = nodes.push(node(`block${b}.act`, [at])) - 1;
  }
  return nodes;
}

// One node read by many, all of which are joined.
const fan: MapNode[] = [node("input", []), ...[1, 2, 3, 4, 5].map((i) => node(`branch${i}`, [0])),
  node("concat", [1, 2, 3, 4, 5])];

// A chain with ways around that are longer than a row and end in the middle of one.
const chain: MapNode[] = Array.from({ length: 60 }, (_, i) =>
  node(`n${i}`, i === 0 ? [] : i % 7 === 6 ? [i - 1, Math.max(0, i - 12)] : [i - 1]));

function overlaps({ boxes }: NetworkLayout): string[] {
  const found: string[] = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    const apart = a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
    if (!apart) found.push(`${a.node} ${b.node}`);
  }));
  return found;
}

const sizes = (width: number) => ({ width, elements: (i: number) => 1 + (i * 7919) % 1000 });

test("boxes do not overlap and stay inside, wide and narrow", () => {
  for (const nodes of [residual(25), fan, residual(0), chain]) {
    for (const width of [360, 800, 1560]) {
      const layout = layoutNetwork(nodes, sizes(width));
      assert.equal(layout.boxes.length, nodes.length);
      assert.deepEqual(overlaps(layout), []);
      for (const box of layout.boxes) {
        assert(box.x >= 0 && box.x + box.w <= width && box.y >= 0);
        assert(box.y + box.h <= layout.height);
      }
    }
  }
});

test("every edge is there once and goes forward", () => {
  const nodes = residual(12), layout = layoutNetwork(nodes, sizes(700));
  const wanted = nodes.flatMap((n, to) => n.in.map((from) => `${from} ${to}`)).sort();
  assert.deepEqual(layout.edges.map((e) => `${e.from} ${e.to}`).sort(), wanted);
  for (const { from, to, points } of layout.edges) {
    assert(layout.layer[from] < layout.layer[to]);
    for (const point of points) assert(Number.isFinite(point));
    // Its ends touch its boxes.
    const a = layout.boxes[from], b = layout.boxes[to];
    const [x, y] = points, [endX, endY] = points.slice(-2);
    assert(x >= a.x && x <= a.x + a.w && y >= a.y && y <= a.y + a.h);
    assert(endX >= b.x && endX <= b.x + b.w && endY >= b.y && endY <= b.y + b.h);
  }
});

test("no edge runs through a box of another node", () => {
  for (const [nodes, width] of [[residual(12), 900], [residual(9), 380], [fan, 300], [chain, 500],
    [chain, 900]] as const) {
    crossesNothing(layoutNetwork(nodes, sizes(width)));
  }
});

function crossesNothing(layout: NetworkLayout): void {
  for (const { from, to, points } of layout.edges) {
    for (let i = 0; i + 3 < points.length; i += 2) {
      const [x0, y0, x1, y1] = points.slice(i, i + 4);
      for (const box of layout.boxes) {
        if (box.node === from || box.node === to) continue;
        const hits = Math.max(x0, x1) > box.x + 0.5 && Math.min(x0, x1) < box.x + box.w - 0.5 &&
          Math.max(y0, y1) > box.y + 0.5 && Math.min(y0, y1) < box.y + box.h - 0.5;
        assert(!hits, `edge ${from} ${to} runs through ${box.node}`);
      }
    }
  }
}

test("layers are longest paths, also where inputs come later, and circles end", () => {
  assert.deepEqual(layersOf([node("a", []), node("b", [0]), node("c", [0, 1]), node("d", [0])]),
    [0, 1, 2, 1]);
  assert.deepEqual(layersOf([node("b", [1]), node("a", [])]), [1, 0]);
  assert.equal(layersOf([node("a", [1]), node("b", [0])]).length, 2);
});

test("rows end where one edge crosses rather than two", () => {
  const nodes = residual(6), layer = layersOf(nodes);
  const starts = rowStarts(nodes, layer, 11);
  // Blocks are five layers, 1 to 5, 6 to 10 and so on; only the last one is reached by one edge.
  assert.deepEqual(starts, [0, 10, 20]);
});

test("every row begins in the first lane and has no empty one", () => {
  for (const nodes of [residual(12), chain, [node("labels", []), ...residual(12)]]) {
    const layer = layersOf(nodes), row = layer.map((at) => Math.floor(at / 7));
    const lane = lanesOf(nodes, layer, row);
    for (const one of new Set(row)) {
      const used = [...new Set(lane.filter((_, i) => row[i] === one))].sort((a, b) => a - b);
      assert.deepEqual(used, used.map((_, i) => i), `row ${one}`);
    }
  }
});

test("what counts and keeps for a normalization is drawn as part of it", () => {
  const op = (name: string, kind: string, inputs: number[]): MapNode =>
    ({ ...node(name, inputs), op: kind });
  const nodes = [op("conv", "conv2d", []), op("bn.batch", "batch_stats", [0]),
    op("bn.track", "batch_track", [1]), op("bn", "batch_norm", [0, 1]), op("relu", "relu", [3]),
    op("alone", "batch_track", [4])];
  const drawn = folded(nodes);
  assert.deepEqual(drawn.map((n) => n.name), ["conv", "bn", "relu", "alone"]);
  assert.deepEqual(drawn.map((n) => n.in), [[], [0], [1], [2]]);
  assert.deepEqual(drawn[1].inside,
    { nodes: ["bn.batch", "bn.track"], out: ["bn.batch.out", "bn.track.out"] });
});

test("area goes by elements", () => {
  const nodes = [node("a", []), node("b", [0])];
  const { boxes } = layoutNetwork(nodes, { width: 600, elements: (i) => (i ? 400 : 1600) });
  assert(Math.abs((boxes[0].w * boxes[0].h) / (boxes[1].w * boxes[1].h) - 4) < 1e-9);
});
