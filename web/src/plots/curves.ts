// Training curves: any number over steps or epochs, raw and smoothed.
import {
  axes, type Box, extent, inside, legend, legendHeight, type LegendEntry, most, padded, plotBox,
  scale, type Scale, wholeTicks,
} from "../axis";
import { checkbox, select, slider } from "../controls";
import type { ScreenPlot } from "../frame";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Run, Store } from "../state";
import { CurveScreen } from "./curve_screen";
import { hasMetric, metrics, runName } from "./metric";
import {
  allSeries, decimate, lowerBound, type Points, positionOf, positions, type Series, smooth,
} from "./series";

const mostRuns = 40;
const mostBands = 6;

export interface CurveOptions {
  id: string;
  title: string;
  about: string;
  series: string; // shown at first
  runs?: () => readonly Run[]; // those of the store's filter and selection if not said
}

// A run's line as it is drawn.
export interface Line {
  run: Run;
  colour: string;
  dash: number[] | undefined;
  strong: boolean;
  raw: Points; // as measured
  smooth: Points | null; // null: not smoothed, raw is the line
  band: { low: Points; high: Points } | null;
  bad: number | null; // where the first value is that is not finite
}

export interface Drawing {
  box: Box;
  x: Scale;
  y: Scale;
  by: "step" | "epoch";
  metric: string;
  lines: Line[];
  marks: number;
  legend: LegendEntry[];
  note: string; // what is not drawn
}

export class Curves implements ScreenPlot {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  private series: Series;
  private chosenMetric = ""; // of series by metric; "": the one that most runs are judged by
  private by: "step" | "epoch" = "step";
  private log = false;
  private weight = 0;
  private onlySelected = true;
  private zoom: [number, number] | null = null;
  private screen: CurveScreen | null = null;
  private last: { d: Drawing; width: number; height: number } | null = null; // on the screen

  constructor(private readonly store: Store, private readonly options: CurveOptions) {
    this.id = options.id;
    this.title = options.title;
    this.about = options.about;
    this.series = allSeries[0]!;
    this.choose(options.series);
  }

  private choose(key: string): void {
    this.series = allSeries.find((s) => s.key === key) ?? this.series;
    this.weight = this.series.noisy ? 0.8 : 0;
  }

  controls(): HTMLElement[] {
    const metric = (): string => this.metric(this.candidates());
    const controls = [
      select("series", "Show",
             () => allSeries.map((s) => ({ value: s.key, text: s.label(metric()) })),
             () => this.series.key, (v) => this.choose(v)),
      select("metric", "Metric",
             () => (this.series.byMetric ? metrics(this.store) : [])
               .map((m) => ({ value: m, text: m })),
             metric, (v) => { this.chosenMetric = v; }),
      select("by", "by", () => [{ value: "step", text: "step" }, { value: "epoch", text: "epoch" }],
             () => this.by,
             (v) => {
               this.by = v === "epoch" ? "epoch" : "step";
               this.zoom = null;
             }),
      slider("smooth", "Smooth", () => ({ min: 0, max: 0.99, step: 0.01 }), () => this.weight,
             (v) => { this.weight = v; }, (v) => v.toFixed(2)),
      checkbox("log", "log", () => this.log, (v) => { this.log = v; }),
    ];
    if (!this.options.runs) {
      controls.push(checkbox("selected", "only selected runs", () => this.onlySelected,
                             (v) => { this.onlySelected = v; }));
    }
    return controls;
  }

  private candidates(): readonly Run[] {
    if (this.options.runs) return this.options.runs();
    return this.onlySelected ? this.store.chosen() : this.store.runs();
  }

  // Runs that have the series, and how many are too many.
  private runs(): { drawn: Run[]; left: number; otherMetric: number } {
    const has = (r: Run, metric: string): boolean =>
      this.series.values(r, metric).some((v) => v !== null) &&
      positions(r, this.series.of, this.by).length > 0;
    const all = this.candidates().filter((r) => has(r, r.metric));
    const metric = this.metric(all);
    const same = this.series.byMetric ? all.filter((r) => has(r, metric)) : all;
    // Selected ones first: they must not fall off the end.
    const ordered = same.length > mostRuns
      ? [...same.filter((r) => this.store.selected.has(r.id)),
         ...same.filter((r) => !this.store.selected.has(r.id))]
      : same;
    return {
      drawn: ordered.slice(0, mostRuns),
      left: Math.max(0, same.length - mostRuns),
      otherMetric: all.length - same.length,
    };
  }

  private metric(runs: readonly Run[]): string {
    const all = metrics(this.store);
    if (all.includes(this.chosenMetric) && runs.some((r) => hasMetric(r, this.chosenMetric))) {
      return this.chosenMetric;
    }
    const shown = all.find((m) => runs.some((r) => r.metric === m));
    return shown ?? runs[0]?.metric ?? "metric";
  }

  // Of given runs each has its own; else those of a configuration share one.
  private colour(run: Run, index: number, theme: Theme): string {
    if (!this.options.runs) return this.store.colour(run.group, theme);
    return theme.series[index % theme.series.length] ?? theme.accent;
  }

  private entries(runs: readonly Run[], theme: Theme | null): LegendEntry[] {
    if (this.options.runs) {
      return runs.map((r, i) =>
        ({ label: r.id, colour: theme ? this.colour(r, i, theme) : "", mark: "line" }));
    }
    const groups = new Map<string, LegendEntry>();
    for (const r of runs) {
      const strong = this.store.strong(r);
      const known = groups.get(r.group);
      if (known) {
        if (strong) known.faint = false;
        continue;
      }
      groups.set(r.group, {
        label: r.label || r.id, colour: theme ? this.store.colour(r.group, theme) : "",
        mark: "line", dash: this.store.dash(r.group), faint: !strong,
      });
    }
    return most([...groups.values()], 16);
  }

  private note(left: number, otherMetric: number): string {
    const notes = [];
    if (left) {
      notes.push(`the first ${mostRuns} of ${mostRuns + left} runs; select some to see them`);
    }
    if (otherMetric) notes.push(`${otherMetric} runs with another metric are left out`);
    return notes.join("; ");
  }

  height = (width: number): number => {
    const { drawn, left, otherMetric } = this.runs();
    const space = legendHeight(this.entries(drawn, null), width - 88);
    const note = this.note(left, otherMetric) ? 18 : 0;
    return Math.max(260, Math.min(380, Math.round(width * 0.45))) + space + 6 + note;
  };

  empty(): string {
    if (this.runs().drawn.length) return "";
    return `No run shown has: ${this.series.label(this.metric(this.candidates()))}.`;
  }

  // Everything that is drawn, in at most two points a column of pixels and line.
  layout(width: number, height: number, theme: Theme): Drawing {
    const { drawn, left, otherMetric } = this.runs();
    const entries = this.entries(drawn, theme);
    const note = this.note(left, otherMetric);
    const space = legendHeight(entries, width - 88) + 6 + (note ? 18 : 0);
    const box = plotBox({ width, height: height - space });
    const metric = this.metric(drawn);
    const ends = drawn.map((r) => positions(r, this.series.of, this.by));
    const full = extent(ends.flatMap((xs) => [xs[0] ?? null, xs[xs.length - 1] ?? null]));
    const [lo, hi] = this.zoom ?? full;
    const x = scale(lo, hi, box.x, box.x + box.w);
    const columns = Math.max(10, Math.floor(box.w));
    const ok = this.log ? (v: number): boolean => v > 0 : (): boolean => true;
    const lines = drawn.map((run, index): Line => {
      const xs = positions(run, this.series.of, this.by);
      const ys = this.series.values(run, metric);
      const points = (values: readonly (number | null)[]): Points =>
        decimate(xs, values, x.lo, x.hi, columns, ok);
      const bad = ys.findIndex((v) => v !== null && !Number.isFinite(v));
      const banded = this.series.low && this.series.high && run.curve.stride > 1 &&
        drawn.length <= mostBands;
      return {
        run,
        colour: this.colour(run, index, theme),
        dash: this.options.runs ? undefined : this.store.dash(run.group),
        strong: this.store.strong(run) || !!this.options.runs,
        raw: points(ys),
        smooth: this.weight > 0 ? points(smooth(ys, this.weight)) : null,
        band: banded
          ? { low: points(this.series.low!(run)), high: points(this.series.high!(run)) } : null,
        bad: bad >= 0 ? xs[bad] ?? null : null,
      };
    });
    const [a, b] = this.yRange(lines);
    const y = scale(a, b, box.y + box.h, box.y, this.log);
    let marks = 0;
    for (const l of lines) {
      marks += l.raw.x.length + (l.smooth?.x.length ?? 0) + (l.bad !== null ? 1 : 0);
      marks += l.band ? l.band.low.x.length + l.band.high.x.length : 0;
    }
    return { box, x, y, by: this.by, metric, lines, marks, legend: entries, note };
  }

  // What is smoothed is in view; single outliers of the raw values may leave the picture, or the
  // first steps of training would press all others to the floor.
  // So may runs that diverged, where others did not.
  private yRange(all: Line[]): [number, number] {
    const sound = all.filter((l) => l.run.state !== "diverged");
    const lines = sound.length ? sound : all;
    const main = extent(lines.flatMap((l) => (l.smooth ?? l.raw).y), this.log);
    const sorted = lines.flatMap((l) => [l.raw.y, l.band?.low.y ?? [], l.band?.high.y ?? []].flat())
      .filter((v) => Number.isFinite(v) && (!this.log || v > 0)).sort((p, q) => p - q);
    const exact = lines.every((l) => !l.smooth && !l.band);
    if (!sorted.length || exact) return padded(...main, this.log);
    const at = (share: number): number =>
      sorted[Math.round(share * (sorted.length - 1))] as number;
    return padded(Math.min(main[0], at(0.005)), Math.max(main[1], at(0.995)), this.log);
  }

  // Axes, legend and note: below the lines.
  drawUnder(scene: Scene, theme: Theme, d: Drawing): void {
    const { series } = this;
    axes(scene, theme, d.box,
         { scale: d.x, label: d.by, ticks: d.x.hi - d.x.lo >= 2 ? wholeTicks : undefined },
         { scale: d.y, label: series.label(d.metric), bytes: series.bytes,
           format: (v) => series.tick(d.metric, v) });
    const below = d.box.y + d.box.h + 46;
    const used = legend(scene, theme, d.legend, d.box.x, below, d.box.w);
    if (d.note) {
      scene.text(d.box.x, below + used + 2, d.note,
                 { size: 11, fill: theme.muted, baseline: "top", most: d.box.w });
    }
  }

  // Where a line stops being finite, and the selected step: above the lines.
  drawOver(scene: Scene, theme: Theme, d: Drawing): void {
    scene.clip(d.box.x, d.box.y, d.box.w, d.box.h, () => {
      const run = this.store.focusedRun();
      if (this.store.step !== null && run) {
        const at = d.x.px(positionOf(run, this.store.step, this.by));
        scene.line([at, d.box.y, at, d.box.y + d.box.h], { stroke: theme.accent, dash: [3, 3] });
      }
      for (const l of d.lines) {
        if (l.bad === null) continue;
        const at = d.x.px(l.bad);
        const y = d.box.y + 9;
        scene.line([at - 4, y - 4, at + 4, y + 4, NaN, NaN, at - 4, y + 4, at + 4, y - 4],
                   { stroke: theme.warn, width: 2 });
      }
    });
  }

  draw(scene: Scene, theme: Theme): void {
    const d = this.layout(scene.width, scene.height, theme);
    this.drawUnder(scene, theme, d);
    const path = (p: Points): number[] =>
      p.x.flatMap((v, i) => [d.x.px(v), d.y.px(p.y[i] as number)]);
    scene.clip(d.box.x, d.box.y, d.box.w, d.box.h, () => {
      for (const strong of [false, true]) {
        for (const l of d.lines) {
          if (l.strong !== strong) continue;
          const alpha = strong ? 1 : 0.2;
          const stroke = l.colour;
          if (l.band) {
            for (const piece of pieces(l.band.low, l.band.high)) {
              scene.polygon(piece.map((v, i) => (i % 2 ? d.y.px(v) : d.x.px(v))),
                            { fill: stroke, alpha: alpha * 0.15 });
            }
          }
          if (l.smooth) scene.line(path(l.raw), { stroke, alpha: alpha * 0.25 });
          scene.line(path(l.smooth ?? l.raw), { stroke, alpha, width: 1.75, dash: l.dash });
          if (!l.smooth && l.raw.x.length <= 60) this.dots(scene, l, d, alpha);
        }
      }
    });
    this.drawOver(scene, theme, d);
    scene.count(d.marks);
  }

  // A line of one point would not be seen.
  dots(scene: Scene, l: Line, d: Drawing, alpha: number): void {
    l.raw.x.forEach((v, i) => {
      const y = l.raw.y[i] as number;
      if (Number.isFinite(y)) scene.circle(d.x.px(v), d.y.px(y), 2.2, { fill: l.colour, alpha });
    });
  }

  show(host: HTMLElement, width: number, height: number, theme: Theme, redraw: () => void): number {
    this.screen ??= new CurveScreen(this, host, (range) => {
      this.zoom = range;
      redraw();
    });
    const d = this.layout(width, height, theme);
    this.last = { d, width, height };
    this.screen.update(d, width, height, theme);
    return d.marks;
  }

  private value(run: Run, i: number): string[] {
    const metric = this.last?.d.metric ?? this.metric(this.runs().drawn);
    const { series } = this;
    const at = (column: readonly (number | null)[]): string =>
      series.text(metric, column[i] ?? null);
    const lines = [`${series.label(metric)}: ${at(series.values(run, metric))}`];
    if (series.low && series.high && run.curve.stride > 1) {
      lines.push(`${at(series.low(run))} to ${at(series.high(run))} in ${run.curve.stride} steps`);
    }
    return lines;
  }

  // For hits: as it is on the screen, made anew only if it never was.
  private placed(width: number, height: number): Drawing {
    const { last } = this;
    if (last && last.width === width && last.height === height) return last.d;
    return this.layout(width, height, blank);
  }

  private hitOf(run: Run, i: number): Hit {
    const step = positions(run, this.series.of, "step")[i] ?? 0;
    const epoch = positions(run, this.series.of, "epoch")[i];
    const when = epoch !== undefined && (this.by === "epoch" || this.series.of === "epochs")
      ? `epoch ${Number(epoch.toFixed(2))}, step ${step}` : `step ${step}`;
    const lines = [runName(run), when, ...this.value(run, i)];
    return { key: `${run.id} ${i}`, run: run.id, step, lines };
  }

  hit(px: number, py: number, width: number, height: number): Hit | null {
    const d = this.placed(width, height);
    if (!inside(d.box, px, py)) return null;
    let best: { run: Run; i: number } | null = null;
    let least = 28;
    for (const l of d.lines) {
      if (l.bad !== null && Math.hypot(d.x.px(l.bad) - px, d.box.y + 9 - py) < 8) {
        return this.hitOf(l.run, lowerBound(positions(l.run, this.series.of, this.by), l.bad));
      }
    }
    for (const l of d.lines) {
      const xs = positions(l.run, this.series.of, this.by);
      const shown = l.smooth ?? l.raw;
      // The nearest drawn point: its height is what the eye sees.
      const j = lowerBound(shown.x, d.x.value(px));
      for (const k of [j - 1, j]) {
        const at = shown.x[k];
        if (at === undefined) continue;
        const dist = Math.hypot(d.x.px(at) - px, d.y.px(shown.y[k] as number) - py);
        if (dist < least) {
          least = dist;
          best = { run: l.run, i: lowerBound(xs, at) };
        }
      }
    }
    return best && this.hitOf(best.run, best.i);
  }

  move(from: Hit | null, key: "left" | "right" | "up" | "down", width: number, height: number):
    { hit: Hit; x: number; y: number } | null {
    const d = this.placed(width, height);
    if (!d.lines.length) return null;
    let line = Math.max(0, d.lines.findIndex((l) => l.run.id === from?.run));
    if (from && (key === "up" || key === "down")) {
      line = (line + (key === "down" ? 1 : d.lines.length - 1)) % d.lines.length;
    }
    const l = d.lines[line]!;
    const shown = l.smooth ?? l.raw;
    const steps = positions(l.run, this.series.of, "step");
    const xs = positions(l.run, this.series.of, this.by);
    const now = from?.step === undefined ? 0 : xs[lowerBound(steps, from.step)] ?? Infinity;
    let at = from ? lowerBound(shown.x, now) : 0;
    if (from && key === "right") at = Math.min(shown.x.length - 1, at + 1);
    if (from && key === "left") at = Math.max(0, at - 1);
    at = Math.min(at, shown.x.length - 1);
    const value = shown.x[at];
    if (value === undefined) return null;
    const y = d.y.px(shown.y[at] as number);
    return {
      hit: this.hitOf(l.run, lowerBound(xs, value)),
      x: d.x.px(value),
      y: Number.isFinite(y) ? y : d.box.y,
    };
  }

  click(hit: Hit): void {
    if (hit.run === undefined) return;
    if (this.options.runs) this.store.focus(hit.run);
    else if (!(this.store.selected.size === 1 && this.store.selected.has(hit.run))) {
      this.store.select([hit.run]);
    }
    this.store.selectStep(hit.step ?? null);
  }

  table(): ReturnType<Plot["table"]> {
    const { drawn } = this.runs();
    const { series } = this;
    const smoothed = this.weight > 0;
    const metric = this.metric(drawn);
    const name = series.label(metric);
    const rows: (string | number | null)[][] = [];
    for (const run of drawn) {
      const xs = positions(run, series.of, this.by);
      const steps = positions(run, series.of, "step");
      const values = series.values(run, metric);
      const smooths = smoothed ? smooth(values, this.weight) : [];
      const low = series.low?.(run);
      const high = series.high?.(run);
      xs.forEach((x, i) => {
        if (this.zoom && (x < this.zoom[0] || x > this.zoom[1])) return;
        const row: (string | number | null)[] = [run.id, steps[i] ?? null];
        if (this.by === "epoch") row.push(x);
        row.push(values[i] ?? null);
        if (smoothed) row.push(smooths[i] ?? null);
        if (low && high) row.push(low[i] ?? null, high[i] ?? null);
        rows.push(row);
      });
    }
    const columns = ["run", "step"];
    if (this.by === "epoch") columns.push("epoch");
    columns.push(name);
    if (smoothed) columns.push(`smoothed by ${this.weight}`);
    if (series.low) columns.push("lowest", "highest");
    return { columns, rows };
  }
}

// Places do not depend on colours.
const blank: Theme = {
  dark: false, text: "", muted: "", grid: "", background: "", panel: "", accent: "", warn: "",
  series: [""],
};

// The area between two lines as polygons, cut where either has a gap.
function pieces(low: Points, high: Points): number[][] {
  const runs = (p: Points): { x: number; y: number }[][] => {
    const result: { x: number; y: number }[][] = [[]];
    p.x.forEach((x, i) => {
      const y = p.y[i] as number;
      if (Number.isFinite(y)) result[result.length - 1]!.push({ x, y });
      else if (result[result.length - 1]!.length) result.push([]);
    });
    return result.filter((r) => r.length > 1);
  };
  const up = runs(low);
  const down = runs(high);
  return up.map((r, i) => [...r, ...[...(down[i] ?? [])].reverse()].flatMap((p) => [p.x, p.y]));
}
