// mu, m, alpha and beta of S2FP8 tensors over steps.
import { axes, exact, extent, inside, padded, plotBox, scale, wholeTicks, type Box,
  type Scale } from "../axis";
import { select as dropDown } from "../controls";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Run } from "../state";
import type { Focus } from "./focus";
import type { Arrow } from "./marks";
import { nearest } from "./numbers";

type Shifted = Run["shifted"][number];
type Which = "mu" | "m" | "alpha" | "beta";

const panels: { which: Which; label: string }[] = [
  { which: "mu", label: "μ, mean of log2 |x|" },
  { which: "m", label: "m, largest log2 |x|" },
  { which: "alpha", label: "α, factor on the exponent" },
  { which: "beta", label: "β, shift of the exponent" },
];

// Others are drawn pale behind the chosen one, as far as that says something.
const mostOthers = 24, panelHeight = 220, left = 52;

interface Panel {
  which: Which;
  label: string;
  box: Box;
  x: Scale;
  y: Scale;
}

class ShiftedPlot implements Plot {
  readonly id = "shifted";
  readonly title = "S2FP8: statistics and shifts";
  readonly about = "S2FP8 stores y with log2 |y| = α log2 |x| + β, so that the mean μ goes to 0 " +
    "and the maximum m to 15. Pale lines are other tensors.";
  private tensor = "";

  constructor(private readonly focus: Focus) {}

  private all(): readonly Shifted[] {
    return this.focus.run?.shifted ?? [];
  }

  private chosen(): Shifted | undefined {
    const named = (name: string | null) => this.all().find((s) => s.tensor === name);
    return named(this.focus.tensor) ?? named(this.tensor) ?? this.all()[0];
  }

  private others(): Shifted[] {
    const chosen = this.chosen();
    const others = this.all().filter((s) => s !== chosen && s.kind === chosen?.kind);
    const every = Math.max(1, Math.ceil(others.length / mostOthers));
    return others.filter((_, i) => i % every === 0);
  }

  controls = (): HTMLElement[] => [
    this.focus.follow(dropDown("shifted-tensor", "Tensor",
      () => this.all().map((s) => ({ value: s.tensor, text: s.tensor })),
      () => this.chosen()?.tensor ?? "", (value) => {
        this.tensor = value;
        this.focus.store.selectTensor(value);
      })),
  ];

  private columns(width: number): number {
    return width >= 1200 ? 4 : width >= 560 ? 2 : 1;
  }

  height = (width: number): number => Math.ceil(4 / this.columns(width)) * panelHeight;

  private panels(width: number): Panel[] {
    const columns = this.columns(width), w = width / columns;
    const shown = [...this.others(), ...(this.chosen() ? [this.chosen()!] : [])];
    const steps = extent(shown.flatMap((s) => s.step));
    return panels.map(({ which, label }, i) => {
      const inner = plotBox({ width: w, height: panelHeight }, { left, top: 26, bottom: 40 });
      const box = {
        ...inner,
        x: inner.x + (i % columns) * w, y: inner.y + Math.floor(i / columns) * panelHeight,
      };
      const [lo, hi] = padded(...extent(shown.flatMap((s) => s[which])));
      return {
        which, label, box,
        x: scale(steps[0], steps[1], box.x + 4, box.x + box.w - 4),
        y: scale(lo, hi, box.y + box.h, box.y),
      };
    });
  }

  draw(scene: Scene, theme: Theme): void {
    const chosen = this.chosen();
    if (!chosen) return;
    let marks = 0;
    this.panels(scene.width).forEach((panel, i) => {
      const { box, which } = panel;
      const ticks = (lo: number, hi: number, n: number) => wholeTicks(lo, hi, 1.7 * n);
      axes(scene, theme, box, { scale: panel.x, label: "step", ticks },
           { scale: panel.y, label: "" }, left);
      scene.text(box.x, box.y - 9, panel.label, { bold: true, most: box.w, baseline: "bottom" });
      const line = (s: Shifted, stroke: string, width: number, alpha: number) => {
        scene.line(points(panel, s), { stroke, width, alpha });
        marks += s[which].length;
      };
      for (const other of this.others()) line(other, theme.muted, 1, 0.3);
      line(chosen, theme.series[i % theme.series.length], 2, 1);
      if (this.focus.store.step === null) return;
      const x = panel.x.px(this.focus.step);
      scene.line([x, box.y, x, box.y + box.h], { stroke: theme.accent, dash: [3, 3] });
    });
    scene.count(marks);
  }

  private found(shifted: Shifted, i: number, panel: number): Hit {
    return {
      lines: [shifted.tensor, `${shifted.kind}, step ${exact(shifted.step[i])}`,
        `μ ${exact(shifted.mu[i])}, m ${exact(shifted.m[i])}`,
        `α ${exact(shifted.alpha[i])}, β ${exact(shifted.beta[i])}`],
      run: this.focus.run?.id, tensor: shifted.tensor, step: shifted.step[i], key: `${panel}:${i}`,
    };
  }

  hit(x: number, y: number, width: number): Hit | null {
    const chosen = this.chosen();
    if (!chosen) return null;
    const all = this.panels(width), at = all.findIndex((panel) => inside(panel.box, x, y));
    if (at < 0) return null;
    const panel = all[at];
    // A pale line only where the pointer is on it, and nearer to it than to the chosen one.
    let best = chosen, least = 8;
    for (const one of [chosen, ...this.others()]) {
      const i = nearest(one.step, panel.x.value(x));
      const far = Math.abs(panel.y.px(one[panel.which][i] ?? NaN) - y);
      if (far < least) [best, least] = [one, far];
    }
    const i = nearest(best.step, panel.x.value(x));
    return i < 0 ? null : this.found(best, i, at);
  }

  move(from: Hit | null, key: Arrow, width: number) {
    const chosen = this.chosen();
    if (!chosen || chosen.step.length === 0) return null;
    const [panelAt, stepAt] = (from?.key ?? "0:-1").split(":").map(Number);
    const by = key === "left" || key === "up" ? -1 : 1;
    const upright = key === "up" || key === "down";
    const panel = Math.max(0, Math.min(3, panelAt + (upright ? by : 0)));
    const i = Math.max(0, Math.min(chosen.step.length - 1, stepAt + (upright ? 0 : by)));
    const place = this.panels(width)[panel], y = place.y.px(chosen[place.which][i] ?? NaN);
    return {
      hit: this.found(chosen, i, panel), x: place.x.px(chosen.step[i]),
      y: Number.isNaN(y) ? place.box.y + place.box.h : y,
    };
  }

  click(hit: Hit): void {
    this.focus.click(hit);
  }

  table() {
    const columns = ["tensor", "step", "mu", "m", "alpha", "beta"];
    const shown = this.chosen() ? [this.chosen()!, ...this.others()] : [];
    const rows = shown.flatMap((s) => s.step.map((step, i) => (
      [s.tensor, step, s.mu[i], s.m[i], s.alpha[i], s.beta[i]])));
    return { columns, rows };
  }

  empty(): string {
    const why = this.focus.noRun();
    if (why || this.all().length > 0) return why;
    return `${this.focus.run!.id} has no S2FP8 tensors whose statistics were kept. ` +
      "`ulp train --candidates s2fp8 --policy uniform` stores tensors so.";
  }
}

function points({ x, y, which }: Panel, shifted: Shifted): number[] {
  return shifted.step.flatMap((step, i) => [x.px(step), y.px(shifted[which][i] ?? NaN)]);
}

export function shiftedPlot(focus: Focus): Plot {
  return new ShiftedPlot(focus);
}
