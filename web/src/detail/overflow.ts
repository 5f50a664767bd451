// Overflow ratios of the worst tensors over time.
import { axes, exact, inside, legend, percent, plotBox, scale, wholeTicks,
  type Box, type Scale } from "../axis";
import { select as dropDown } from "../controls";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Run } from "../state";
import type { Focus } from "./focus";
import { diamond } from "./heat";
import { leastShare, worstTensors, type Heat } from "./heat_data";
import type { Arrow } from "./marks";
import { legendRows, nearest, share } from "./numbers";

export interface Line {
  tensor: number;
  rank: number; // -1: not among the worst, but chosen
}

export function overflowLines(heat: Heat, count: number, chosen: string | null): Line[] {
  const lines = worstTensors(heat, count).map((tensor, rank) => ({ tensor, rank }));
  const other = heat.tensors.findIndex((t) => t.name === chosen);
  if (other >= 0 && !lines.some((line) => line.tensor === other)) {
    lines.push({ tensor: other, rank: -1 });
  }
  return lines;
}

// The threshold of promotion; null: it is off.
export function threshold(settings: Run["settings"]): number | null {
  const text = settings.promote ?? "default";
  if (text === "default") {
    // As default_promotion in ulp/precision/promotion.cc.
    const policy = (settings.policy ?? "fp32").split(":")[0];
    return ["fp32", "amp", "fpu16"].includes(policy) ? null : 0.01;
  }
  const value = Number(text);
  return Number.isFinite(value) && value > 0 ? value : null;
}

interface Shape {
  box: Box;
  x: Scale;
  y: Scale;
  zero: number; // where no overflow at all is drawn
}

const bottomOfScale = leastShare;

class OverflowPlot implements Plot {
  readonly id = "overflow";
  readonly title = "Overflow over time";
  readonly about = "The share of a tensor's elements beyond its format's largest number, for the " +
    "tensors where it became largest. Diamonds are promotions to the high format.";
  private count = 5;

  constructor(private readonly focus: Focus) {}

  height = (width: number): number => (width < 600 ? 380 : 360) + this.legendRows(width) * 18;

  controls = (): HTMLElement[] => [
    dropDown("overflow-count", "Worst", () => ["5", "10", "20"].map((n) => ({ value: n, text: n })),
      () => String(this.count), (value) => { this.count = Number(value); }),
  ];

  private lines(): Line[] {
    const heat = this.focus.run?.heat;
    return heat ? overflowLines(heat, this.count, this.focus.tensor) : [];
  }

  private legendRows(width: number): number {
    const heat = this.focus.run?.heat;
    return legendRows(this.lines().map((l) => heat?.tensors[l.tensor].name ?? ""), width - 88);
  }

  private shape(width: number, height: number): Shape {
    const heat = this.focus.run!.heat!;
    const box = plotBox({ width, height }, { top: 14 + 18 * this.legendRows(width) });
    const last = heat.step[heat.step.length - 1];
    const zero = box.y + box.h - 8;
    return {
      box, zero,
      x: scale(Math.min(heat.step[0], last), last, box.x + 6, box.x + box.w - 6),
      y: scale(bottomOfScale, 1, zero - 12, box.y + 4, true),
    };
  }

  private place({ y, zero }: Shape, ratio: number | null | undefined): number {
    if (ratio === null || ratio === undefined || Number.isNaN(ratio)) return NaN;
    return ratio > 0 ? y.px(Math.max(bottomOfScale, Math.min(1, ratio))) : zero;
  }

  private colour(line: Line, theme: Theme): string {
    return line.rank < 0 ? theme.text : theme.series[line.rank % theme.series.length];
  }

  private dash(line: Line): number[] | undefined {
    return [undefined, [7, 3], [2, 3]][Math.floor(Math.max(0, line.rank) / 8) % 3];
  }

  draw(scene: Scene, theme: Theme): void {
    const run = this.focus.run, heat = run?.heat;
    if (!run || !heat) return;
    const shape = this.shape(scene.width, scene.height), { box } = shape;
    axes(scene, theme, box, { scale: shape.x, label: "step", ticks: wholeTicks },
         { scale: shape.y, label: "overflow ratio", format: ratioText });
    scene.text(box.x - 6, shape.zero, "0", {
      align: "right", baseline: "middle", size: 11, fill: theme.muted,
    });
    scene.line([box.x, shape.zero, box.x + box.w, shape.zero], { stroke: theme.grid });
    this.limit(scene, theme, shape, run);
    const lines = this.lines(), chosen = this.focus.tensor;
    const some = lines.some((line) => heat.tensors[line.tensor].name === chosen);
    let marks = 0;
    // The chosen one is drawn last, over the others.
    const isChosen = (line: Line) => heat.tensors[line.tensor].name === chosen;
    const order = [...lines].sort((a, b) => Number(isChosen(a)) - Number(isChosen(b)));
    for (const line of order) {
      const strong = heat.tensors[line.tensor].name === chosen;
      const points = heat.step.flatMap((step, b) =>
        [shape.x.px(step), this.place(shape, heat.overflow[line.tensor]?.[b])]);
      scene.line(points, {
        stroke: this.colour(line, theme), width: strong ? 3 : 1.6,
        alpha: some && !strong ? 0.55 : 1, dash: this.dash(line),
      });
      marks += heat.step.length;
    }
    for (const dot of this.promotions(shape)) {
      diamond(scene, theme, dot.x, dot.y, 5);
      marks++;
    }
    const entries = lines.map((line) => ({
      label: heat.tensors[line.tensor].name, colour: this.colour(line, theme),
      mark: "line" as const, dash: this.dash(line), faint: some && !isChosen(line),
    }));
    legend(scene, theme, entries, box.x, 6, box.w);
    scene.count(marks);
  }

  private limit(scene: Scene, theme: Theme, shape: Shape, run: Run): void {
    const limit = threshold(run.settings), { box } = shape;
    if (limit === null) return;
    const y = this.place(shape, limit), text = `promoted above ${percent(limit)}`;
    scene.line([box.x, y, box.x + box.w, y], { stroke: theme.warn, dash: [6, 4], width: 1.5 });
    // Where no promotion is in its way, if there is such a place.
    const w = scene.measure(text, 11), dots = this.promotions(shape);
    const free = (x: number) =>
      !dots.some((dot) => dot.x > x - 8 && dot.x < x + w + 8 && dot.y > y - 22 && dot.y < y + 4);
    const right = box.x + box.w - w - 4;
    const places = [0, 0.25, 0.5, 0.75, 1].map((t) => right + t * (box.x + 4 - right));
    const x = places.find(free) ?? right;
    scene.text(x, y - 5, text, { size: 11, fill: theme.warn });
  }

  // Promotions of the tensors that are drawn.
  private promotions(shape: Shape) {
    const run = this.focus.run!, heat = run.heat!, { promotions } = run;
    const names = new Set(this.lines().map((line) => heat.tensors[line.tensor].name));
    return promotions.step
      .map((step, i) => ({
        i, x: shape.x.px(step), y: this.place(shape, promotions.ratio[i]),
        name: promotions.tensor[i],
      }))
      .filter((dot) => names.has(dot.name) && !Number.isNaN(dot.y));
  }

  private found(line: Line, bucket: number): Hit {
    const run = this.focus.run!, heat = run.heat!, step = heat.step[bucket];
    const { name, kind } = heat.tensors[line.tensor];
    return {
      lines: [name, `${kind}, ${this.focus.heat!.format(line.tensor, bucket)}, step ${exact(step)}`,
        `overflow ${share(heat.overflow[line.tensor]?.[bucket])}`],
      run: run.id, tensor: name, step, key: `${line.tensor}:${bucket}`,
    };
  }

  hit(x: number, y: number, width: number, height: number): Hit | null {
    const run = this.focus.run, heat = run?.heat;
    if (!run || !heat) return null;
    const shape = this.shape(width, height);
    if (!inside(shape.box, x, y)) return null;
    for (const dot of this.promotions(shape)) {
      if (Math.hypot(dot.x - x, dot.y - y) > 7) continue;
      const { promotions } = run, step = promotions.step[dot.i];
      return {
        lines: [dot.name, `promoted at step ${exact(step)}`,
          `from ${promotions.from[dot.i]} to ${promotions.to[dot.i]}`,
          `overflow ${share(promotions.ratio[dot.i])}`],
        run: run.id, tensor: dot.name, step, key: `promotion ${dot.i}`,
      };
    }
    const bucket = nearest(heat.step, shape.x.value(x));
    let best: Line | null = null, least = 24;
    for (const line of this.lines()) {
      const far = Math.abs(this.place(shape, heat.overflow[line.tensor]?.[bucket]) - y);
      if (far < least) [best, least] = [line, far];
    }
    return best && this.found(best, bucket);
  }

  move(from: Hit | null, key: Arrow, width: number, height: number) {
    const heat = this.focus.run?.heat, lines = this.lines();
    if (!heat || lines.length === 0) return null;
    const shape = this.shape(width, height);
    const [tensor, at] = (from?.key ?? "").split(":").map(Number);
    let i = lines.findIndex((line) => line.tensor === tensor);
    let bucket = Number.isInteger(at) ? at : 0;
    if (i < 0) i = 0;
    else if (key === "up") i = Math.max(0, i - 1);
    else if (key === "down") i = Math.min(lines.length - 1, i + 1);
    else bucket = Math.max(0, Math.min(heat.step.length - 1, bucket + (key === "left" ? -1 : 1)));
    const y = this.place(shape, heat.overflow[lines[i].tensor]?.[bucket]);
    return {
      hit: this.found(lines[i], bucket), x: shape.x.px(heat.step[bucket]),
      y: Number.isNaN(y) ? shape.zero : y,
    };
  }

  click(hit: Hit): void {
    this.focus.click(hit);
  }

  table() {
    const heat = this.focus.run?.heat;
    const columns = ["tensor", "step", "format", "overflow"];
    const rows = !heat ? [] : this.lines().flatMap((line) => heat.step.map((step, b) => [
      heat.tensors[line.tensor].name, step, this.focus.heat!.format(line.tensor, b),
      heat.overflow[line.tensor]?.[b] ?? null,
    ]));
    return { columns, rows };
  }

  empty(): string {
    const why = this.focus.noRanges();
    if (why) return why;
    return this.lines().length > 0 ? "" : `${this.focus.run!.id}: no tensor overflowed in any ` +
      "recorded step. Click a tensor in the heat map to see it here.";
  }
}

function ratioText(ratio: number): string {
  return ratio < 1e-3 ? ratio.toExponential(0) : String(ratio);
}

export function overflowPlot(focus: Focus): Plot {
  return new OverflowPlot(focus);
}

