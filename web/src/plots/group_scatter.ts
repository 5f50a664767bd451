// One dot a group at the mean over seeds, bars over their range, small dots for the runs.
import {
  axes, type Axis, type Box, extent, legend, legendHeight, type LegendEntry, marker, most, padded,
  plotBox, scale, type Scale,
} from "../axis";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Group, Run, Store } from "../state";
import { finite, runName } from "./metric";
import { nearest, next, type Spot } from "./points";

// What one direction shows.
export interface Measure {
  name: string; // in tooltips and tables
  label: string; // of the axis
  value: (run: Run) => number | null;
  text: (v: number | null) => string;
  tick: (v: number) => string;
  ticks?: Axis["ticks"];
  bytes?: Axis["bytes"];
  better: "less" | "more" | null; // null: neither, there is no Pareto front
}

interface Dot {
  group: Group;
  runs: { run: Run; x: number; y: number }[];
  x: number; // means
  y: number;
}

const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

export abstract class GroupScatter implements Plot {
  abstract readonly id: string;
  abstract readonly title: string;
  abstract readonly about: string;

  private kept: { width: number; height: number; spots: Spot[] } | null = null;

  constructor(protected readonly store: Store) {}

  protected abstract measures(): { x: Measure; y: Measure };
  protected accepts(_run: Run): boolean {
    return true;
  }
  // A line where both directions are equal.
  protected readonly diagonal: boolean = false;
  protected logX(): boolean {
    return false;
  }

  private dots(): Dot[] {
    const { x, y } = this.measures();
    const result: Dot[] = [];
    for (const group of this.store.groups()) {
      const runs = [];
      for (const run of group.runs) {
        const [a, b] = [x.value(run), y.value(run)];
        if (!this.accepts(run) || !finite(a) || !finite(b)) continue;
        if (this.logX() && a <= 0) continue;
        runs.push({ run, x: a, y: b });
      }
      if (!runs.length) continue;
      result.push({ group, runs, x: mean(runs.map((r) => r.x)), y: mean(runs.map((r) => r.y)) });
    }
    return result;
  }

  // Groups that nothing beats in both directions, from cheap to dear. A group counts when all its
  // runs are done: a run in its first epoch would never be beaten fairly.
  private front(dots: Dot[]): Dot[] {
    const { x, y } = this.measures();
    if (!x.better || !y.better) return [];
    const cost = (d: Dot): number => (x.better === "less" ? d.x : -d.x);
    const gain = (d: Dot): number => (y.better === "more" ? d.y : -d.y);
    const finished = dots.filter((d) => d.group.runs.every((r) => r.state === "done"));
    finished.sort((a, b) => cost(a) - cost(b) || gain(b) - gain(a));
    const result: Dot[] = [];
    let best = -Infinity;
    for (const d of finished) {
      if (gain(d) > best) {
        result.push(d);
        best = gain(d);
      }
    }
    return result;
  }

  private layout(width: number, height: number): { dots: Dot[]; box: Box; x: Scale; y: Scale } {
    const dots = this.dots();
    const box = plotBox({ width, height: height - this.legendSpace(width) });
    const all = dots.flatMap((d) => d.runs);
    let xs = extent(all.map((r) => r.x));
    let ys = extent(all.map((r) => r.y));
    if (this.diagonal) xs = ys = [Math.min(xs[0], ys[0]), Math.max(xs[1], ys[1])];
    const [a, b] = padded(...xs, this.logX());
    const [c, d] = padded(...ys);
    return {
      dots,
      box,
      x: scale(a, b, box.x, box.x + box.w, this.logX()),
      y: scale(c, d, box.y + box.h, box.y),
    };
  }

  // The front is named among the configurations: in the picture its name would lie on their marks.
  private entries(dots: Dot[], theme: Theme | null): LegendEntry[] {
    const front: LegendEntry[] = this.front(dots).length === 0 ? []
      : [{ label: "Pareto front", colour: theme?.muted ?? "", mark: "line" }];
    return [...front, ...most(dots.map((d): LegendEntry => ({
      label: d.group.label,
      colour: theme ? this.store.colour(d.group.key, theme) : "",
      mark: "dot" as const,
      shape: this.store.shape(d.group.key),
      faint: !d.runs.some((r) => this.store.strong(r.run)),
    })), 24)];
  }

  private legendSpace(width: number): number {
    return legendHeight(this.entries(this.dots(), null), width - 88) + 6;
  }

  height = (width: number): number => {
    const plot = Math.max(280, Math.min(440, Math.round(width * 0.5)));
    return plot + this.legendSpace(width);
  };

  empty(): string {
    if (this.dots().length) return "";
    const { x, y } = this.measures();
    return `No run shown has a value of ${x.name} and of ${y.name} yet.`;
  }

  draw(scene: Scene, theme: Theme): void {
    this.kept = null;
    const { dots, box, x, y } = this.layout(scene.width, scene.height);
    const m = this.measures();
    axes(scene, theme, box,
         { scale: x, label: m.x.label, format: m.x.tick, ticks: m.x.ticks, bytes: m.x.bytes },
         { scale: y, label: m.y.label, format: m.y.tick, ticks: m.y.ticks, bytes: m.y.bytes });
    scene.clip(box.x, box.y, box.w, box.h, () => {
      if (this.diagonal) {
        scene.line([x.px(x.lo), y.px(x.lo), x.px(x.hi), y.px(x.hi)],
                   { stroke: theme.muted, dash: [4, 4] });
      }
      this.drawFront(scene, theme, this.front(dots), x, y);
      for (const strong of [false, true]) {
        for (const d of dots) this.drawDot(scene, theme, d, x, y, strong);
      }
    });
    legend(scene, theme, this.entries(dots, theme), box.x, box.y + box.h + 46, box.w);
  }

  private drawFront(scene: Scene, theme: Theme, front: Dot[], x: Scale, y: Scale): void {
    if (front.length === 0) return;
    const less = this.measures().x.better === "less";
    const points: number[] = [];
    front.forEach((d, i) => {
      if (i > 0) points.push(x.px(d.x), points[points.length - 1] as number);
      points.push(x.px(d.x), y.px(d.y));
    });
    points.push(less ? x.to : x.from, points[points.length - 1] as number);
    scene.line(points, { stroke: theme.muted, width: 1.5 });
  }

  private drawDot(
    scene: Scene, theme: Theme, d: Dot, x: Scale, y: Scale, strong: boolean): void {
    const colour = this.store.colour(d.group.key, theme);
    const isStrong = d.runs.some((r) => this.store.strong(r.run));
    const alpha = isStrong ? 1 : 0.25;
    if (isStrong === strong) {
      if (d.runs.length > 1) {
        const [x0, x1] = extent(d.runs.map((r) => r.x));
        const [y0, y1] = extent(d.runs.map((r) => r.y));
        const bar = { stroke: colour, width: 1.5, alpha };
        const cx = x.px(d.x);
        const cy = y.px(d.y);
        scene.line([cx - 4, y.px(y0), cx + 4, y.px(y0), NaN, NaN, cx, y.px(y0), cx, y.px(y1),
                    NaN, NaN, cx - 4, y.px(y1), cx + 4, y.px(y1)], bar);
        scene.line([x.px(x0), cy, x.px(x1), cy], bar);
      }
      const done = d.group.runs.every((r) => r.state === "done");
      marker(scene, x.px(d.x), y.px(d.y), 6, this.store.shape(d.group.key), {
        fill: done ? colour : theme.background, stroke: done ? theme.background : colour,
        width: done ? 1 : 2, alpha,
      });
      scene.count(1);
    }
    for (const r of d.runs) {
      if (d.runs.length < 2 && !this.store.selected.has(r.run.id)) continue;
      if (this.store.strong(r.run) !== strong) continue;
      const chosen = this.store.selected.has(r.run.id);
      scene.circle(x.px(r.x), y.px(r.y), chosen ? 5 : 2.5, {
        fill: colour, alpha: strong ? 0.9 : 0.3,
        stroke: chosen ? theme.text : undefined, width: 1.5,
      });
      scene.count(1);
    }
  }

  // Kept until it is drawn again: a pointer over a thousand dots asks often.
  private spots(width: number, height: number): Spot[] {
    const { kept } = this;
    if (kept && kept.width === width && kept.height === height) return kept.spots;
    const spots = this.makeSpots(width, height);
    this.kept = { width, height, spots };
    return spots;
  }

  private makeSpots(width: number, height: number): Spot[] {
    const { dots, x, y } = this.layout(width, height);
    const m = this.measures();
    const result: Spot[] = [];
    const both = (a: number, b: number): string[] =>
      [`${m.x.name}: ${m.x.text(a)}`, `${m.y.name}: ${m.y.text(b)}`];
    for (const d of dots) {
      if (d.runs.length > 1) {
        for (const r of d.runs) {
          const lines = [runName(r.run), ...both(r.x, r.y)];
          result.push({
            x: x.px(r.x), y: y.px(r.y), hit: { key: `run ${r.run.id}`, run: r.run.id, lines },
          });
        }
      }
      const [lo, hi] = extent(d.runs.map((r) => r.y));
      const range = `${m.y.name} from ${m.y.text(lo)} to ${m.y.text(hi)}`;
      const seeds = d.runs.length > 1 ? [`mean of ${d.runs.length} seeds; ${range}`] : [];
      result.push({
        x: x.px(d.x), y: y.px(d.y),
        hit: {
          key: `group ${d.group.key}`,
          run: d.runs.length === 1 ? d.runs[0]?.run.id : undefined,
          lines: [d.group.label, ...both(d.x, d.y), ...seeds],
        },
      });
    }
    return result;
  }

  hit(x: number, y: number, width: number, height: number): Hit | null {
    return nearest(this.spots(width, height), x, y);
  }

  move(from: Hit | null, key: "left" | "right" | "up" | "down", width: number, height: number):
    Spot | null {
    return next(this.spots(width, height), from, key);
  }

  // A run, or all runs of a group. Once more: nothing is selected.
  click(hit: Hit): void {
    const group = this.store.groups().find((g) => hit.key === `group ${g.key}`);
    const ids = group ? group.runs.map((r) => r.id) : hit.run !== undefined ? [hit.run] : [];
    const same = ids.length === this.store.selected.size &&
      ids.every((id) => this.store.selected.has(id));
    this.store.select(same ? [] : ids);
  }

  table(): ReturnType<Plot["table"]> {
    const { x, y } = this.measures();
    const dots = this.dots();
    const front = new Set(this.front(dots));
    return {
      columns: ["group", "run", "seed", "state", x.name, y.name, "group on the front"],
      rows: dots.flatMap((d) => d.runs.map((r) => [
        d.group.label, r.run.id, r.run.seed, r.run.state, r.x, r.y, front.has(d) ? "yes" : "no",
      ])),
    };
  }
}
