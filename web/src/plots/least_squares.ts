// The least-squares experiment of `ulp lab least-squares`: updates that rounding cancels stop a
// network from learning, whatever its loss is.
import {
  axes, exact, extent, legend, legendHeight, padded, percent, plotBox, scale,
} from "../axis";
import { select } from "../controls";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Doc, Store } from "../state";
import { type Spot, next } from "./points";
import { decimate, lowerBound, type Points } from "./series";

type Experiment = Doc["leastSquares"][number];
type Variant = Experiment["variants"][number];

interface Line {
  name: string;
  points: Points;
  colour: number;
}

export class LeastSquaresPlot implements Plot {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  private shown: "loss" | "excess" | "cancelled";
  private chosen = "";

  constructor(private readonly store: Store, private readonly cancelled: boolean) {
    this.id = cancelled ? "leastsquares-cancelled" : "leastsquares";
    this.title = cancelled ? "Least squares: cancelled updates" : "Least squares: loss";
    this.about = cancelled
      ? "The share of updates that rounding to nearest threw away. Where it comes near 100%, the " +
        "weights stand still."
      : "One layer, one loss with a known minimum: where a line becomes flat, its way of " +
        "updating weights cannot do better. Median over seeds.";
    this.shown = cancelled ? "cancelled" : "loss";
  }

  private experiment(): Experiment | null {
    const all = this.store.doc.leastSquares;
    return all.find((e) => e.id === this.chosen) ?? all[0] ?? null;
  }

  controls(): HTMLElement[] {
    const which = select(
      "experiment", "Experiment",
      () => this.store.doc.leastSquares.map((e) => ({ value: e.id, text: e.title || e.id })),
      () => this.experiment()?.id ?? "", (v) => { this.chosen = v; });
    if (this.cancelled) return [which];
    return [which, select(
      "show", "Show",
      () => [{ value: "loss", text: "loss" }, { value: "excess", text: "loss above the minimum" }],
      () => this.shown, (v) => { this.shown = v === "excess" ? "excess" : "loss"; })];
  }

  private values(v: Variant): (number | null)[] {
    return v[this.shown];
  }

  private variants(): Variant[] {
    return this.experiment()?.variants.filter((v) => this.values(v).some((y) => y !== null)) ?? [];
  }

  empty(): string {
    if (!this.experiment()) {
      return "The report has no least-squares experiment. `ulp lab least-squares` makes one.";
    }
    return this.variants().length ? "" : `The experiment did not record: ${this.shown}.`;
  }

  private entries(theme: Theme | null) {
    return this.variants().map((v, i) => ({
      label: v.name, mark: "line" as const, colour: theme?.series[i % theme.series.length] ?? "",
    }));
  }

  height = (width: number): number =>
    Math.max(260, Math.min(360, Math.round(width * 0.45))) +
    legendHeight(this.entries(null), width - 88) + 6;

  private layout(width: number, height: number) {
    const space = legendHeight(this.entries(null), width - 88) + 6;
    const box = plotBox({ width, height: height - space });
    const all = this.variants();
    const log = this.shown !== "cancelled";
    const [lo, hi] = extent(all.flatMap((v) => v.step), true);
    const x = scale(lo, hi, box.x, box.x + box.w, true);
    const [a, b] = log ? padded(...extent(all.flatMap((v) => this.values(v)), true), true) : [0, 1];
    const y = scale(a, b, box.y + box.h, box.y, log);
    // Columns of a log axis are equally wide in log(step).
    const lines = all.map((v, colour): Line => {
      const steps = v.step.map((s) => Math.log10(Math.max(s, 1e-9)));
      const points = decimate(steps, this.values(v), Math.log10(x.lo), Math.log10(x.hi),
                              Math.max(10, Math.floor(box.w)), (n) => !log || n > 0);
      return { name: v.name, points: { x: points.x.map((p) => 10 ** p), y: points.y }, colour };
    });
    return { box, x, y, lines };
  }

  draw(scene: Scene, theme: Theme): void {
    const { box, x, y, lines } = this.layout(scene.width, scene.height);
    const share = this.shown === "cancelled";
    const name = { loss: "loss", excess: "loss above the minimum", cancelled: "cancelled updates" };
    axes(scene, theme, box, { scale: x, label: "step" },
         { scale: y, label: name[this.shown], format: share ? (v) => percent(v) : undefined });
    scene.clip(box.x, box.y - 2, box.w, box.h + 4, () => {
      for (const l of lines) {
        const stroke = theme.series[l.colour % theme.series.length];
        const path = l.points.x.flatMap((v, i) => [x.px(v), y.px(l.points.y[i] as number)]);
        scene.line(path, { stroke, width: 1.75 });
        scene.count(l.points.x.length);
      }
    });
    legend(scene, theme, this.entries(theme), box.x, box.y + box.h + 46, box.w);
  }

  private spots(width: number, height: number): Spot[] {
    const { x, y, lines } = this.layout(width, height);
    const text = this.shown === "cancelled" ? percent : exact;
    const all = this.variants();
    return lines.flatMap((l, k) => l.points.x.map((at, i) => {
      const variant = all[k]!;
      // The decimated step went through a logarithm and back.
      const j = Math.min(variant.step.length - 1, lowerBound(variant.step, at * (1 - 1e-9)));
      const step = variant.step[j] ?? at;
      return {
        x: x.px(at), y: y.px(l.points.y[i] as number),
        hit: {
          key: `${k} ${i}`,
          lines: [l.name, `step ${exact(step)}`,
                  `${this.shown}: ${text(this.values(variant)[j] ?? null)}`],
        },
      };
    })).filter((s) => Number.isFinite(s.x) && Number.isFinite(s.y));
  }

  hit(px: number, py: number, width: number, height: number): Hit | null {
    let best: Hit | null = null;
    let least = 24;
    for (const s of this.spots(width, height)) {
      const d = Math.hypot(s.x - px, s.y - py);
      if (d < least) [least, best] = [d, s.hit];
    }
    return best;
  }

  move(from: Hit | null, key: "left" | "right" | "up" | "down", width: number, height: number):
    Spot | null {
    const spots = this.spots(width, height);
    const line = from?.key?.split(" ")[0];
    if (!from || line === undefined) return spots[0] ?? null;
    const own = spots.filter((s) => s.hit.key?.split(" ")[0] === line);
    if (key === "left" || key === "right") return next(own, from, key);
    const lines = [...new Set(spots.map((s) => s.hit.key?.split(" ")[0]))];
    const by = key === "down" ? 1 : lines.length - 1;
    const to = lines[(lines.indexOf(line) + by) % lines.length];
    const x = spots.find((s) => s.hit.key === from.key)?.x ?? 0;
    return spots.filter((s) => s.hit.key?.split(" ")[0] === to)
      .sort((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x))[0] ?? null;
  }

  table(): ReturnType<Plot["table"]> {
    return {
      columns: ["variant", "step", this.shown],
      rows: this.variants().flatMap((v) =>
        v.step.map((s, i) => [v.name, s, this.values(v)[i] ?? null])),
    };
  }
}
