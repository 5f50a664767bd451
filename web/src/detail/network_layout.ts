// Where the nodes of a network stand: layers from left to right by the longest path from the input,
// in rows as wide as the picture.
import type { MapNode } from "../data";

export interface Sizes {
  width: number;
  elements: (node: number) => number; // of the node's output
}

export interface PlacedBox {
  node: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Edge {
  from: number;
  to: number;
  points: number[]; // x0, y0, x1, y1, ...
}

export interface BlockLabel {
  text: string;
  x: number;
  y: number;
  w: number;
}

export interface NetworkLayout {
  boxes: PlacedBox[]; // one a node, by its number
  edges: Edge[];
  labels: BlockLabel[]; // blocks of the network: "layer1.0"
  layer: number[];
  cell: number; // width of a layer
  height: number;
}

// What is below a box: a strip for the gradient of its output, at its edge; further down, where it is
// the same for all boxes, a bar for its weights with a strip for theirs; and its operator's name.
export const stripGap = 1, stripHeight = 4, barTop = 8, barHeight = 4, opTop = 20;
const cellWidth = 66, narrowCell = 62, boxHeight = 30, laneHeight = boxHeight + 36;
const labelHeight = 20, channelHeight = 5, rowGap = 14, side = 14;

// A node of the map. `inside`: nodes that are drawn as part of it, and their outputs.
export interface DrawnNode extends MapNode {
  inside: { nodes: string[]; out: string[] };
}

// A normalization over a batch is three nodes: one counts, one keeps, one normalizes. Two of them
// are bookkeeping, with numbers a channel, and would take two thirds of the map: they are drawn as
// one with the third.
export function folded(nodes: MapNode[]): DrawnNode[] {
  const into: number[] = nodes.map((_, i) => i);
  nodes.forEach((node, i) => {
    if (node.op !== "batch_norm") return;
    for (const input of node.in) if (nodes[input]?.op === "batch_stats") into[input] = i;
  });
  nodes.forEach((node, i) => {
    const stats = node.op === "batch_track" ? node.in.find((k) => into[k] !== k) : undefined;
    if (stats !== undefined) into[i] = into[stats];
  });
  const kept = nodes.map((_, i) => i).filter((i) => into[i] === i);
  const number = new Map(kept.map((i, k): [number, number] => [i, k]));
  return kept.map((i): DrawnNode => {
    const inside = nodes.filter((_, k) => k !== i && into[k] === i);
    const read = [nodes[i], ...inside].flatMap((node) => node.in.map((k) => into[k] ?? k));
    return {
      ...nodes[i],
      in: [...new Set(read)].filter((k) => k !== i && number.has(k)).map((k) => number.get(k)!),
      inside: { nodes: inside.map((n) => n.name), out: inside.flatMap((n) => n.out) },
    };
  });
}

export function layersOf(nodes: MapNode[]): number[] {
  const layer: number[] = new Array(nodes.length).fill(-1);
  const open = new Set<number>();
  const visit = (node: number): number => {
    if (layer[node] >= 0) return layer[node];
    if (open.has(node)) return 0; // a circle: not of our making, but it must not hang the page
    open.add(node);
    let most = -1;
    for (const input of nodes[node].in) if (nodes[input]) most = Math.max(most, visit(input));
    open.delete(node);
    return layer[node] = most + 1;
  };
  nodes.forEach((_, i) => visit(i));
  return layer;
}

// A node goes on in the lane of its uppermost input where that is free, so that chains are
// straight. Each row begins at the top again: what comes from an earlier one comes around its left
// side.
export function lanesOf(nodes: MapNode[], layer: number[], row: number[]): number[] {
  const lane: number[] = new Array(nodes.length).fill(0);
  const taken = new Map<number, Set<number>>();
  const order = nodes.map((_, i) => i).sort((a, b) => layer[a] - layer[b] || a - b);
  for (const node of order) {
    let used = taken.get(layer[node]);
    if (!used) taken.set(layer[node], used = new Set());
    const inputs = nodes[node].in
      .filter((i) => nodes[i] && layer[i] < layer[node] && row[i] === row[node]);
    const wanted = inputs.length ? Math.min(...inputs.map((i) => lane[i])) : 0;
    let at = wanted;
    while (used.has(at)) at++;
    used.add(at);
    lane[node] = at;
  }
  return lane;
}

// Rows end where the fewest edges cross, near the width that is there.
export function rowStarts(nodes: MapNode[], layer: number[], columns: number): number[] {
  const layers = Math.max(0, ...layer) + 1;
  const crossing = new Array(layers + 1).fill(0);
  nodes.forEach((node, i) => {
    for (const input of node.in) {
      for (let at = (layer[input] ?? 0) + 1; at <= layer[i]; at++) crossing[at]++;
    }
  });
  const starts = [0];
  for (let start = 0; layers - start > columns;) {
    let best = start + columns;
    for (let at = best; at > start + columns * 0.6; at--) {
      if (crossing[at] < crossing[best]) best = at;
    }
    starts.push(start = best);
  }
  return starts;
}

export function blockOf(name: string): string {
  return name.split(".").slice(0, -1).slice(0, 2).join(".");
}

interface Row {
  first: number; // layer
  end: number;
  lanes: number;
  channels: [number, number][][]; // for each, the layers between which it is taken
  top: number; // of the boxes
  y: number;
}

export function layoutNetwork(nodes: MapNode[], sizes: Sizes): NetworkLayout {
  const layer = layersOf(nodes);
  const least = sizes.width < 600 ? narrowCell : cellWidth;
  const columns = Math.max(2, Math.floor((sizes.width - 2 * side) / least));
  const starts = rowStarts(nodes, layer, columns);
  const layers = nodes.length ? Math.max(...layer) + 1 : 0;
  const rows: Row[] = starts.map((first, i) => (
    { first, end: starts[i + 1] ?? layers, lanes: 1, channels: [], top: 0, y: 0 }));
  const rowOf = (at: number) => rows.findIndex((row) => at >= row.first && at < row.end);
  const lane = lanesOf(nodes, layer, layer.map(rowOf));
  nodes.forEach((_, i) => {
    const row = rows[rowOf(layer[i])];
    row.lanes = Math.max(row.lanes, lane[i] + 1);
  });
  // All rows have the same cell, a bit wider where the rows would leave room.
  const widest = Math.max(1, ...rows.map((row) => row.end - row.first));
  const cell = Math.min(cellWidth * 1.3, (sizes.width - 2 * side) / widest);

  const occupied = new Set(nodes.map((_, i) => `${layer[i]} ${lane[i]}`));
  const plans = routes(nodes, layer, lane, occupied, rows, rowOf);

  let y = 0;
  for (const row of rows) {
    row.y = y;
    row.top = y + labelHeight + row.channels.length * channelHeight;
    y = row.top + row.lanes * laneHeight + rowGap;
  }

  const most = Math.max(1, ...nodes.map((_, i) => sizes.elements(i)));
  const boxes = nodes.map((_, node): PlacedBox => {
    const row = rows[rowOf(layer[node])];
    const scale = Math.sqrt(Math.max(0, sizes.elements(node)) / most);
    const w = Math.max(7, (cell - 16) * scale), h = Math.max(7, boxHeight * scale);
    const middle = side + (layer[node] - row.first + 0.5) * cell;
    const line = row.top + lane[node] * laneHeight + boxHeight / 2;
    return { node, x: middle - w / 2, y: line - h / 2, w, h };
  });
  const right = side + widest * cell;
  const edges = plans.map((plan) =>
    draw(plan, { boxes, lane, rowAt: (node) => rows[rowOf(layer[node])], right, cell }));
  return { boxes, edges, labels: labels(nodes, layer, lane, rows, cell), layer, cell, height: y };
}

// How an edge goes: straight along its lane where that is free, or through a channel above the row.
// An edge to another row has two parts: out of its row, and into the other one.
interface Route {
  from: number;
  to: number;
  out: number; // the channel; -1: straight
  into: number; // the same in the target's row; unused in one row
}

function routes(
  nodes: MapNode[], layer: number[], lane: number[], occupied: Set<string>, rows: Row[],
  rowOf: (layer: number) => number,
): Route[] {
  const all: Route[] = [];
  const free = (first: number, end: number, at: number) => {
    for (let l = first; l < end; l++) if (occupied.has(`${l} ${at}`)) return false;
    return true;
  };
  nodes.forEach((node, to) => {
    for (const from of new Set(node.in)) {
      if (!nodes[from] || layer[from] >= layer[to]) continue;
      const row = rows[rowOf(layer[from])], target = rows[rowOf(layer[to])];
      const end = row === target ? layer[to] : row.end;
      const out = free(layer[from] + 1, end, lane[from]) ? -1 : take(row, layer[from], end);
      const into = row === target || free(target.first, layer[to], lane[to]) ? -1
        : take(target, target.first - 1, layer[to]);
      all.push({ from, to, out, into });
    }
  });
  return all;
}

// The first channel that is free between two layers.
function take(row: Row, first: number, end: number): number {
  const clear = (spans: [number, number][]) => spans.every(([a, b]) => end <= a || first >= b);
  let channel = row.channels.findIndex(clear);
  if (channel < 0) channel = row.channels.push([]) - 1;
  row.channels[channel].push([first, end]);
  return channel;
}

interface Drawing {
  boxes: PlacedBox[];
  lane: number[];
  rowAt: (node: number) => Row;
  right: number;
  cell: number;
}

function draw({ from, to, out, into }: Route, { boxes, lane, rowAt, right, cell }: Drawing): Edge {
  const a = boxes[from], b = boxes[to], row = rowAt(from), target = rowAt(to);
  const ax = a.x + a.w / 2, ay = a.y + a.h / 2, bx = b.x + b.w / 2, by = b.y + b.h / 2;
  const level = (r: Row, channel: number) => r.y + labelHeight - 1 + channel * channelHeight;
  // Up to a channel and down from it: by the top in the first lane, beside the boxes in others.
  const up = (y: number) => (lane[from] === 0 ? [ax, a.y, ax, y]
    : [a.x + a.w, ay, ax + cell / 2, ay, ax + cell / 2, y]);
  const down = (y: number) => (lane[to] === 0 ? [bx, y, bx, b.y]
    : [bx - cell / 2, y, bx - cell / 2, by, b.x, by]);
  const points = out < 0 ? [a.x + a.w, ay] : up(level(row, out));
  if (row === target) {
    if (out >= 0) points.push(...down(level(row, out)));
    else if (ay === by) points.push(b.x, by);
    else points.push(bx - cell / 2, ay, bx - cell / 2, by, b.x, by);
    return { from, to, points };
  }
  // Out at the right, back in the gap between the rows, in at the left.
  const outer = right + 5, back = 5, gap = row.top + row.lanes * laneHeight + rowGap / 2;
  points.push(outer, points[points.length - 1], outer, gap, back, gap);
  if (into < 0) points.push(back, by, b.x, by);
  else points.push(back, level(target, into), ...down(level(target, into)));
  return { from, to, points };
}

function labels(
  nodes: MapNode[], layer: number[], lane: number[], rows: Row[], cell: number,
): BlockLabel[] {
  const layers = nodes.length ? Math.max(...layer) + 1 : 0;
  const block: string[] = new Array(layers).fill("");
  const lowest: number[] = new Array(layers).fill(Infinity);
  nodes.forEach((node, i) => {
    if (lane[i] >= lowest[layer[i]]) return;
    lowest[layer[i]] = lane[i];
    block[layer[i]] = blockOf(node.name);
  });
  const found: BlockLabel[] = [];
  for (const row of rows) {
    for (let first = row.first; first < row.end;) {
      let end = first + 1;
      while (end < row.end && block[end] === block[first]) end++;
      if (block[first]) {
        const x = side + (first - row.first) * cell + 3;
        found.push({ text: block[first], x, y: row.y, w: (end - first) * cell - 6 });
      }
      first = end;
    }
  }
  return found;
}
