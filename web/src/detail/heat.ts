// The heat map: narrow tensors by steps.
import { exact, legend } from "../axis";
import { select as dropDown } from "../controls";
import type { Hit, Plot, Scene, Theme } from "../scene";
import { formatColour, shareColour, divergingColour, levels, sortFormats } from "./colours";
import { memo, type Focus } from "./focus";
import { parseFormat, parseStorage } from "./formats";
import {
  columnOf, kinds, leastShare, makeGrid, promotionMarks, roomBelow, roomBeyond, roomShade, select,
  shareShade, type Cell, type Filter, type Grid, type HeatView, type Measure,
} from "./heat_data";
import { textBox, textPanel } from "./inputs";
import { nextCell, type Arrow } from "./marks";
import { plural, power, share } from "./numbers";

const measures: { value: Measure; text: string }[] = [
  { value: "overflow", text: "overflow" },
  { value: "underflow", text: "underflow" },
  { value: "amax", text: "largest magnitude" },
  { value: "format", text: "format" },
];

const top = 44, bottom = 44, right = 14, mostHeight = 780, leastRow = 3, mostRow = 18;
const mostRows = Math.floor(mostHeight / leastRow);

interface Shape {
  grid: Grid;
  left: number;
  width: number;
  row: number; // height of a row
}

class HeatPlot implements Plot {
  readonly id = "heat";
  readonly title = "Tensors by steps";
  readonly about = "A row for each narrow tensor, a column for each recorded step (early steps " +
    "are recorded more densely). Diamonds are promotions. Click a cell for the doctor's words.";
  private measure: Measure = "overflow";
  private readonly filter: Filter = { kind: "all", name: "" };

  constructor(private readonly focus: Focus) {}

  private readonly chosen = memo(
    (view: HeatView, kind: Filter["kind"], name: string) => select(view.heat, { kind, name }));
  private readonly grids = memo((view: HeatView, tensors: number[], columns: number) =>
    makeGrid(tensors, view.heat, mostRows, columns));
  private readonly cells = memo((view: HeatView, grid: Grid, measure: Measure): Cell[][] =>
    grid.rows.map((row) => Array.from({ length: grid.columns.length - 1 }, (_, c) =>
      view.cell(measure, row, grid.columns[c], grid.columns[c + 1]))));

  private readonly colours = memo((cells: Cell[][], theme: Theme) =>
    cells.map((line) => line.map((cell) => this.colour(cell, theme))));

  private tensors(view: HeatView): number[] {
    return this.chosen(view, this.filter.kind, this.filter.name);
  }

  private shape(view: HeatView, width: number): Shape {
    const left = Math.round(Math.min(210, width * 0.28));
    const room = Math.max(10, width - left - right);
    const grid = this.grids(view, this.tensors(view), Math.floor(room / 2));
    const rows = Math.max(1, grid.rows.length);
    const row = Math.max(leastRow, Math.min(mostRow, Math.floor(mostHeight / rows)));
    return { grid, left, width: room, row };
  }

  height = (width: number): number => {
    const view = this.focus.heat;
    if (!view) return 120;
    const { grid, row } = this.shape(view, width);
    return top + Math.max(30, grid.rows.length * row) + bottom;
  };

  controls = (): HTMLElement[] => {
    const ofKind = () => [{ value: "all", text: "all kinds" },
      ...kinds.filter((kind) => this.focus.heat?.heat.tensors.some((t) => t.kind === kind))
        .map((kind) => ({ value: kind, text: kind }))];
    return [
      dropDown("heat-measure", "Show", () => measures, () => this.measure,
        (value) => { this.measure = value as Measure; }),
      dropDown("heat-kind", "Kind", ofKind, () => this.filter.kind,
        (value) => { this.filter.kind = value as Filter["kind"]; }),
      textBox("heat-name", "Name", "conv1 or layer2.*", () => this.filter.name,
        (value) => { this.filter.name = value; }),
      this.focus.follow(textPanel("heat-words", () => this.words())),
    ];
  };

  private words(): string[] {
    const view = this.focus.heat, name = this.focus.tensor;
    if (!view || !name) return [];
    const tensor = view.heat.tensors.findIndex((t) => t.name === name);
    if (tensor < 0) return [`${name}: not narrow, so nothing was recorded of it.`];
    const bucket = this.bucketAt(view);
    return [`${name}: ${view.heat.words[name] ?? "the doctor has nothing to say about it."}`,
      this.describe(view, tensor, bucket).slice(1).join("; ")];
  }

  private bucketAt(view: HeatView): number {
    const step = this.focus.step;
    const found = view.heat.step.findIndex((s) => s >= step);
    return found < 0 ? view.heat.step.length - 1 : found;
  }

  private describe(view: HeatView, tensor: number, bucket: number): string[] {
    const { heat } = view, { name, kind, elements } = heat.tensors[tensor];
    const format = view.format(tensor, bucket), high = heat.formats[format]?.high;
    const amax = heat.amax[tensor]?.[bucket];
    const limit = high === null || high === undefined ? "whose range follows the tensor"
      : `largest number ${exact(parseFormat(format)?.largest ?? 2 ** high)} = ${power(2 ** high)}`;
    const earlier = bucket > 0 ? heat.step[bucket - 1] : 0;
    const last = heat.step[bucket];
    const steps = last - earlier > 1 ? `worst of steps ${exact(earlier + 1)} to ${exact(last)}`
      : `step ${exact(last)}`;
    return [
      name,
      `${kind}, ${plural(elements, "element")}, ${steps}`,
      `${format}, ${limit}`,
      `largest magnitude ${amax === null ? "not recorded" : `${exact(amax)} = ${power(amax)}`}`,
      `overflow ${share(heat.overflow[tensor]?.[bucket])}`,
      `underflow ${share(heat.underflow[tensor]?.[bucket])}`,
    ];
  }

  private colour(cell: Cell, theme: Theme): string | null {
    if (this.measure === "format") return formatColour(cell.format, theme.dark);
    if (Number.isNaN(cell.shade)) {
      const adapts = this.measure === "amax" && parseStorage(cell.format).adapts;
      return adapts ? zeroColour(theme) : null;
    }
    if (this.measure === "amax") {
      if (cell.shade === Infinity) return theme.warn;
      return divergingColour(roomShade(cell.shade), theme.dark);
    }
    const shade = shareShade(cell.shade);
    return shade < 0 ? zeroColour(theme) : shareColour(shade, this.measure, theme.dark);
  }

  draw(scene: Scene, theme: Theme): void {
    const view = this.focus.heat;
    if (!view) return;
    const shape = this.shape(view, scene.width), { grid, left, row } = shape;
    this.scale(scene, theme, view, shape);
    if (grid.rows.length === 0) {
      scene.text(left, top + 16, "No tensor has this kind and name.", { fill: theme.muted });
      return;
    }
    const colours = this.colours(this.cells(view, grid, this.measure), theme);
    let marks = 0;
    colours.forEach((line, r) => {
      const y = top + r * row, h = row > 5 ? row - 1 : row;
      for (let c = 0; c < line.length;) {
        const colour = line[c];
        let end = c + 1;
        while (end < line.length && line[end] === colour) end++;
        if (colour) {
          const x = edge(shape, c);
          scene.rect(x, y, edge(shape, end) - x, h, { fill: colour });
          marks++;
        }
        c = end;
      }
    });
    // A promotion holds from the next step on: it stands between the two cells, and as much of both
    // is seen as there is room for.
    const column = shape.width / (grid.columns.length - 1);
    const size = Math.max(2.5, Math.min(6, row / 2, column / 3));
    for (const mark of promotionMarks(this.focus.run!, view.heat, grid)) {
      diamond(scene, theme, edge(shape, mark.column + 1), top + (mark.row + 0.5) * row, size);
      marks++;
    }
    this.selection(scene, theme, view, shape);
    this.names(scene, theme, view, shape);
    this.steps(scene, theme, view, shape);
    scene.count(marks);
  }

  private selection(scene: Scene, theme: Theme, view: HeatView, shape: Shape): void {
    const { grid, left, width, row } = shape;
    const r = this.selectedRow(view, grid);
    if (r >= 0) {
      const y = top + r * row - 1;
      scene.rect(left - 1, y, width + 2, row + 1, { stroke: theme.accent, width: 2 });
    }
    const step = this.focus.store.step;
    if (step === null) return;
    const c = columnOf(view.heat, grid, step);
    const x = (edge(shape, c) + edge(shape, c + 1)) / 2;
    scene.line([x, top - 3, x, top + grid.rows.length * row + 3],
               { stroke: theme.accent, width: 1, dash: [3, 3] });
  }

  private selectedRow(view: HeatView, grid: Grid): number {
    const name = this.focus.tensor;
    return name === null ? -1
      : grid.rows.findIndex((row) => row.some((i) => view.heat.tensors[i].name === name));
  }

  private names(scene: Scene, theme: Theme, view: HeatView, shape: Shape): void {
    const { grid, left, row } = shape;
    const every = Math.max(1, Math.ceil(12 / row)), chosen = this.selectedRow(view, grid);
    grid.rows.forEach((tensors, r) => {
      const near = chosen >= 0 && r !== chosen && Math.abs(r - chosen) < every;
      if (r !== chosen && (r % every !== 0 || near)) return;
      const shown = tensors.find((i) => view.heat.tensors[i].name === this.focus.tensor);
      const first = view.heat.tensors[shown ?? tensors[0]];
      // The next kind begins with a name of its own.
      const next = grid.rows[r + Math.ceil(6 / row)];
      const last = next && view.heat.tensors[next[0]].kind !== first.kind;
      if (r !== chosen && last && row < 12) return;
      const more = tensors.length > 1 ? ` +${tensors.length - 1}` : "";
      const size = row >= 13 ? 11 : 10;
      const name = fitted(scene, first.name, more, size, left - 24);
      scene.text(left - 7, top + (r + 0.5) * row, name, {
        align: "right", baseline: "middle", size,
        fill: r === chosen ? theme.accent : theme.muted, bold: r === chosen,
      });
    });
    // One line for each kind, at the far left.
    for (let r = 0; r < grid.rows.length;) {
      const kind = view.heat.tensors[grid.rows[r][0]].kind;
      let end = r + 1;
      while (end < grid.rows.length && view.heat.tensors[grid.rows[end][0]].kind === kind) end++;
      const middle = top + ((r + end) / 2) * row, room = (end - r) * row - 4;
      if (room > 30) {
        scene.text(6, middle, plurals[kind], {
          rotate: -90, align: "center", baseline: "middle", size: 10, fill: theme.text, most: room,
        });
      }
      if (r > 0) {
        const y = top + r * row - 0.5;
        scene.line([0, y, 12, y], { stroke: theme.muted });
        scene.line([left - 4, y, left + shape.width, y], { stroke: theme.muted });
      }
      r = end;
    }
  }

  private steps(scene: Scene, theme: Theme, view: HeatView, shape: Shape): void {
    const { grid, left, width, row } = shape, y = top + grid.rows.length * row;
    const columns = grid.columns.length - 1;
    let free = -Infinity;
    const every = Math.max(1, Math.ceil(columns / Math.max(2, width / 70)));
    for (let c = 0; c < columns; c += every) {
      const x = (edge(shape, c) + edge(shape, c + 1)) / 2;
      const text = exact(view.heat.step[grid.columns[c + 1] - 1]);
      const half = scene.measure(text, 11) / 2;
      if (x - half < free || x + half > scene.width) continue;
      free = x + half + 8;
      scene.line([x, y, x, y + 4], { stroke: theme.muted });
      scene.text(x, y + 6, text, { align: "center", baseline: "top", size: 11, fill: theme.muted });
    }
    const merged = grid.merged > 1 ? `; each row is the worst of up to ${grid.merged} tensors` : "";
    const middle = merged && width < 400 ? scene.width / 2 : left + width / 2;
    scene.text(middle, y + 24, `step${merged}`, {
      align: "center", baseline: "top", most: scene.width - 4,
    });
  }

  // The colours' meaning, above the map.
  private scale(scene: Scene, theme: Theme, view: HeatView, { left, width }: Shape): void {
    if (this.measure === "format") {
      const entries = sortFormats(view.formats())
        .map((label) => ({ label, colour: formatColour(label, theme.dark) }));
      legend(scene, theme, entries, 4, 8, scene.width - 8);
      return;
    }
    const x = left, most = Math.min(320, width - (this.measure === "amax" ? 60 : 36));
    const colourAt = (t: number) => this.measure === "amax"
      ? divergingColour(2 * t - 1, theme.dark)
      : shareColour(t, this.measure as "overflow", theme.dark);
    const ticks: [number, string][] = this.measure === "amax"
      ? [[0, `2^-${roomBelow} of`], [0.5, "largest number"], [1, `2^${roomBeyond} times`]]
      : [[0, `≤ ${leastShare.toExponential()}`], [0.5, "0.001"], [1, "all"]];
    const start = x + (this.measure === "amax" ? 0 : 34);
    if (this.measure === "amax") {
      const others: [string, string][] = [["NaN, ∞", theme.warn]];
      if (view.formats().some((format) => parseStorage(format).adapts)) {
        others.push(["range adapts", zeroColour(theme)]);
      }
      let at = start + most + 14;
      for (const [text, fill] of others) {
        const w = scene.measure(text, 11);
        if (at + w > scene.width) break;
        scene.rect(at, 8, w, 11, { fill });
        scene.text(at, 22, text, { baseline: "top", size: 11, fill: theme.muted });
        at += w + 14;
      }
    } else {
      scene.rect(x, 8, 22, 11, { fill: zeroColour(theme), stroke: theme.grid });
      scene.text(x + 11, 22, "0", {
        align: "center", baseline: "top", size: 11, fill: theme.muted,
      });
    }
    for (let i = 0; i < levels; i++) {
      const w = most / levels;
      scene.rect(start + i * w, 8, w + 0.5, 11, { fill: colourAt(i / (levels - 1)) });
    }
    for (const [t, text] of ticks) {
      if (t === 0.5 && most < 230) continue;
      scene.text(start + t * most, 22, text, {
        align: t === 0 ? "left" : t === 1 ? "right" : "center",
        baseline: "top", size: 11, fill: theme.muted,
      });
    }
  }

  private at(view: HeatView, x: number, y: number, width: number) {
    const shape = this.shape(view, width), { grid, left, row } = shape;
    const r = Math.floor((y - top) / row), columns = grid.columns.length - 1;
    const c = Math.floor(((x - left) / shape.width) * columns);
    return r >= 0 && r < grid.rows.length && c < columns && x < left + shape.width
      ? { row: r, column: c } : null;
  }

  private found(view: HeatView, width: number, r: number, c: number): Hit {
    const { grid } = this.shape(view, width);
    if (c < 0) {
      const { name, kind, elements } = view.heat.tensors[grid.rows[r][0]];
      const lines = [name, `${kind}, ${plural(elements, "element")}`];
      return { lines, tensor: name, key: `${r}` };
    }
    const cell = this.cells(view, grid, this.measure)[r][c];
    const lines = this.describe(view, cell.tensor, cell.bucket);
    if (grid.rows[r].length > 1) lines.push(`the worst of ${grid.rows[r].length} tensors`);
    const run = this.focus.run!, promotions = run.promotions;
    for (const mark of promotionMarks(run, view.heat, grid)) {
      if (mark.row !== r || mark.column !== c) continue;
      const i = mark.promotion;
      lines.push(`promoted at step ${exact(promotions.step[i])}: ${promotions.tensor[i]} from ` +
        `${promotions.from[i]} to ${promotions.to[i]}, overflow ${share(promotions.ratio[i])}`);
    }
    return {
      lines, run: run.id, tensor: view.heat.tensors[cell.tensor].name,
      step: view.heat.step[cell.bucket], key: `${r}:${c}`,
    };
  }

  hit(x: number, y: number, width: number): Hit | null {
    const view = this.focus.heat;
    const at = view && this.at(view, x, y, width);
    return at ? this.found(view, width, at.row, at.column) : null;
  }

  move(from: Hit | null, key: Arrow, width: number): { hit: Hit; x: number; y: number } | null {
    const view = this.focus.heat;
    if (!view) return null;
    const shape = this.shape(view, width), { grid, row } = shape;
    if (grid.rows.length === 0) return null;
    const [r, c] = (from?.key ?? "").split(":").map(Number);
    const here = from?.key ? { row: r, column: c ?? 0 } : null;
    const next = nextCell(here, key, grid.rows.length, grid.columns.length - 1);
    return {
      hit: this.found(view, width, next.row, next.column),
      x: (edge(shape, next.column) + edge(shape, next.column + 1)) / 2,
      y: top + (next.row + 0.5) * row,
    };
  }

  click(hit: Hit): void {
    this.focus.click(hit);
  }

  table() {
    const view = this.focus.heat;
    const columns = ["tensor", "kind", "step", "format", "overflow", "underflow", "amax"];
    const rows = !view ? [] : this.tensors(view).flatMap((i) => view.heat.step.map((step, b) => [
      view.heat.tensors[i].name, view.heat.tensors[i].kind, step, view.format(i, b),
      view.heat.overflow[i]?.[b] ?? null, view.heat.underflow[i]?.[b] ?? null,
      view.heat.amax[i]?.[b] ?? null,
    ]));
    return { columns, rows };
  }

  empty(): string {
    return this.focus.noRanges();
  }
}

const plurals: Record<string, string> = {
  "activation": "activations",
  "activation gradient": "activation gradients",
  "weight": "weights",
  "weight gradient": "weight gradients",
};

function zeroColour(theme: Theme): string {
  return theme.dark ? "#222a33" : "#eceff2";
}

// The left edge of a column, on a whole pixel so that neighbours touch.
function edge({ grid, left, width }: Shape, column: number): number {
  return left + Math.round((column / (grid.columns.length - 1)) * width);
}

// What fits of a tensor's name. What the kind says anyway goes first, then the beginning, in which
// neighbours are alike.
function fitted(scene: Scene, name: string, more: string, size: number, most: number): string {
  if (scene.measure(name + more, size) <= most) return name + more;
  const text = name.replace(/(\.out|\.weight)?(\.grad)?$/, "") + more;
  let from = 0;
  const cut = () => (from > 0 ? `…${text.slice(from)}` : text);
  while (from < text.length && scene.measure(cut(), size) > most) from++;
  return cut();
}

export function diamond(scene: Scene, theme: Theme, x: number, y: number, r: number): void {
  scene.polygon([x, y - r, x + r, y, x, y + r, x - r, y],
                { fill: theme.text, stroke: theme.background, width: 1 });
}

export function heatPlot(focus: Focus): Plot {
  return new HeatPlot(focus);
}
