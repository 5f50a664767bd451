// Exponent histograms with the ranges of formats under them.
import { axes, exact, percent, scale, type Box, type Scale } from "../axis";
import { select as dropDown, slider } from "../controls";
import type { Histogram } from "../data";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Run } from "../state";
import { formatColour } from "./colours";
import { memo, type Focus } from "./focus";
import { rangeOf, rangesBeside, type Range } from "./formats";
import {
  bars, exponentSpan, seriesOf, shareFloor, sides, stepFor, stepsOf, total, type Bar, type Series,
} from "./histogram_data";
import { nextSpot, type Arrow } from "./marks";

// One histogram with its axes.
interface Panel {
  histogram: Histogram;
  box: Box;
  x: Scale;
  y: Scale;
  ranges: Range[]; // drawn under it
  own: Range | null;
}

const bandHeight = 15, perGroup = 12;

class HistogramPlot implements Plot {
  readonly id = "histograms";
  readonly title = "Exponent histograms";
  readonly about = "Shares of a tensor's elements by the power of two they lie at, before " +
    "rounding. The bands below are what formats hold; the pale part is subnormal numbers.";
  private view = "one"; // or "0", "1", ...: groups of tensors side by side
  private tensor = "";

  constructor(private readonly focus: Focus) {}

  private readonly groups = memo((run: Run) => seriesOf(run.histograms as Histogram[]));

  private series(): Series[] {
    const run = this.focus.run;
    return run ? this.groups(run) : [];
  }

  // The tensor chosen anywhere on the page if it has a histogram, else the one chosen here.
  private chosen(): Series | undefined {
    const all = this.series(), named = (name: string | null) => all.find((s) => s.tensor === name);
    return named(this.focus.tensor) ?? named(this.tensor) ?? all[0];
  }

  private steps(): number[] {
    const one = this.view === "one" ? this.chosen() : undefined;
    return one ? one.steps : stepsOf(this.series());
  }

  private stepIndex(): number {
    const steps = this.steps();
    let found = 0;
    steps.forEach((step, i) => { if (step <= this.focus.step) found = i; });
    return found;
  }

  controls = (): HTMLElement[] => {
    const { focus } = this;
    const views = () => {
      const options = [{ value: "one", text: "one tensor" }];
      const n = this.series().length;
      for (let first = 0; first < n && n > 1; first += perGroup) {
        const last = Math.min(n, first + perGroup);
        options.push({ value: String(first / perGroup), text: `tensors ${first + 1} to ${last}` });
      }
      return options;
    };
    return [
      dropDown("histogram-view", "Show", views, () => this.view, (value) => { this.view = value; }),
      focus.follow(dropDown("histogram-tensor", "Tensor",
        () => this.series().map((s) => ({ value: s.tensor, text: s.tensor })),
        () => this.chosen()?.tensor ?? "", (value) => {
          this.tensor = value;
          focus.store.selectTensor(value);
        })),
      focus.follow(slider("histogram-step", "Step",
        () => ({ min: 0, max: Math.max(0, this.steps().length - 1), step: 1 }),
        () => this.stepIndex(), (i) => focus.store.selectStep(this.steps()[i] ?? null),
        (i) => exact(this.steps()[i] ?? 0))),
    ];
  };

  private shown(): Histogram[] {
    if (this.view === "one") {
      const one = this.chosen();
      if (!one) return [];
      const step = stepFor(one, this.focus.step);
      return [one.x.get(step), one.y.get(step)].filter((h): h is Histogram => h !== undefined);
    }
    const groups = Math.max(1, Math.ceil(this.series().length / perGroup));
    const first = Math.min(groups - 1, Number(this.view)) * perGroup;
    return this.series().slice(first, first + perGroup).flatMap((series) => {
      const found = series.x.get(stepFor(series, this.focus.step));
      return found ? [found] : [];
    });
  }

  private columns(width: number, count: number): number {
    const least = this.view === "one" ? 340 : 240;
    return Math.max(1, Math.min(count, Math.floor(width / least), 4));
  }

  private panelHeight(): number {
    return this.view === "one" ? 430 : 190;
  }

  height = (width: number): number => {
    const count = Math.max(1, this.shown().length);
    return Math.ceil(count / this.columns(width, count)) * this.panelHeight() + 8;
  };

  private panels(width: number): Panel[] {
    const shown = this.shown(), one = this.view === "one";
    const columns = this.columns(width, shown.length), w = width / columns, h = this.panelHeight();
    const floor = shareFloor(shown);
    return shown.map((histogram, i) => {
      const ranges = one ? rangesBeside(histogram.format, histogram.of) : [];
      const own = histogram.of === "y" ? rangeOf("e5m2") : rangeOf(histogram.format);
      const left = one ? 66 : 50, top = 44;
      const below = one ? 52 + ranges.length * bandHeight : 34;
      const box = {
        x: (i % columns) * w + left, y: Math.floor(i / columns) * h + top,
        w: Math.max(20, w - left - 14), h: Math.max(20, h - top - below),
      };
      const span = exponentSpan([histogram], own);
      return {
        histogram, box, ranges, own,
        x: scale(span.low, span.high, box.x, box.x + box.w),
        y: scale(floor, 1, box.y + box.h, box.y, true),
      };
    });
  }

  draw(scene: Scene, theme: Theme): void {
    let marks = 0;
    for (const panel of this.panels(scene.width)) marks += this.panel(scene, theme, panel);
    scene.count(marks);
  }

  private panel(scene: Scene, theme: Theme, panel: Panel): number {
    const { histogram, box, x, y, own } = panel, one = this.view === "one";
    const title = histogram.of === "y" ? `${histogram.tensor}: what S2FP8 stores of it`
      : histogram.tensor;
    const chosen = histogram.tensor === this.focus.tensor;
    scene.text(box.x, box.y - 24, title, {
      bold: true, most: box.w, fill: chosen && !one ? theme.accent : theme.text, baseline: "bottom",
    });
    scene.text(box.x, box.y - 8, summary(histogram, own), {
      size: 11, fill: theme.muted, most: box.w, baseline: "bottom",
    });
    this.axes(scene, theme, panel);
    if (own) {
      scene.clip(box.x, box.y, box.w, box.h, () => {
        const from = x.px(own.low), to = x.px(own.high);
        scene.rect(from, box.y, to - from, box.h,
                   { fill: formatColour(own.name, theme.dark), alpha: theme.dark ? 0.16 : 0.13 });
      });
    }
    const all = bars(histogram);
    for (const bar of all) {
      const left = x.px(bar.exponent), right = x.px(bar.exponent + 1), height = y.px(bar.share);
      const gap = right - left > 4 ? 1 : 0;
      scene.rect(left + gap / 2, height, Math.max(0.5, right - left - gap), box.y + box.h - height,
        { fill: outside(bar, own) ? theme.warn : theme.series[0] });
    }
    panel.ranges.forEach((range, i) => band(scene, theme, panel, range, i));
    return all.length + panel.ranges.length;
  }

  private axes(scene: Scene, theme: Theme, { box, x, y }: Panel): void {
    const one = this.view === "one";
    // The scene's size decides where labels are cut; a panel is a part of it.
    for (const tick of y.ticks(Math.max(2, box.h / 40))) {
      const at = Math.round(y.px(tick)) + 0.5;
      scene.line([box.x, at, box.x + box.w, at], { stroke: theme.grid });
      scene.text(box.x - 6, at, tick < 1e-3 ? tick.toExponential(0) : String(tick), {
        align: "right", baseline: "middle", size: 11, fill: theme.muted,
      });
    }
    const wanted = Math.max(2, box.w / 60);
    axes(scene, theme, box, null, null);
    for (const tick of x.ticks(wanted).filter(Number.isInteger)) {
      const at = x.px(tick);
      if (at > box.x + box.w - 6) continue;
      scene.line([at, box.y + box.h, at, box.y + box.h + 4], { stroke: theme.muted });
      scene.text(at, box.y + box.h + 6, `2^${tick}`.replace("-", "−"), {
        align: "center", baseline: "top", size: 11, fill: theme.muted,
      });
    }
    if (!one) return;
    scene.text(box.x - 52, box.y + box.h / 2, "share of elements", {
      rotate: -90, align: "center", baseline: "middle",
    });
    scene.text(box.x + box.w / 2, box.y + box.h + 22, "magnitude", {
      align: "center", baseline: "top",
    });
  }

  private found(panel: Panel, bar: Bar, index: number): Hit {
    const { histogram, own } = panel, { tensor, step, of, format } = histogram;
    const lines = [
      `${tensor}${of === "y" ? " as S2FP8 stores it" : ""}, step ${exact(step)}`,
      `2^${bar.exponent} to 2^${bar.exponent + 1}`,
      `${exact(bar.count)} of ${exact(total(histogram))} elements (${percent(bar.share)})`,
    ];
    if (outside(bar, own)) lines.push(`outside of ${own!.name}`);
    return {
      lines: [...lines, `stored as ${format}`], run: this.focus.run?.id, tensor,
      key: `${index}:${bar.exponent}`,
    };
  }

  private spots(width: number) {
    return this.panels(width).flatMap((panel, i) => bars(panel.histogram).map((bar) => ({
      key: `${i}:${bar.exponent}`, x: panel.x.px(bar.exponent + 0.5), y: panel.y.px(bar.share),
      panel, bar, index: i,
    })));
  }

  hit(x: number, y: number, width: number): Hit | null {
    const panels = this.panels(width);
    for (const [i, panel] of panels.entries()) {
      const { box, ranges } = panel;
      if (x < box.x || x > box.x + box.w) continue;
      const exponent = Math.floor(panel.x.value(x));
      const bar = bars(panel.histogram).find((b) => b.exponent === exponent);
      if (y >= box.y && y <= box.y + box.h + 2) {
        return bar ? this.found(panel, bar, i) : { lines: [summary(panel.histogram, panel.own)],
          tensor: panel.histogram.tensor };
      }
      const range = ranges[Math.floor((y - bandTop(box)) / bandHeight)];
      if (range && y >= bandTop(box)) return { lines: rangeLines(range, panel.histogram) };
    }
    return null;
  }

  move(from: Hit | null, key: Arrow, width: number) {
    const next = nextSpot(this.spots(width), from, key);
    return next && { hit: this.found(next.panel, next.bar, next.index), x: next.x, y: next.y };
  }

  click(hit: Hit): void {
    this.focus.click(hit);
  }

  table() {
    const columns = ["tensor", "of", "step", "format", "exponent", "count", "share"];
    const rows = this.shown().flatMap((h) => {
      const head = [h.tensor, h.of, h.step, h.format], all = total(h) || 1;
      const special = ([["zero", h.zero], ["infinite", h.infinite], ["nan", h.nan]] as const)
        .map(([name, count]) => [...head, name, count, count / all]);
      return [...bars(h).map((b) => [...head, b.exponent, b.count, b.share]), ...special];
    });
    return { columns, rows };
  }

  empty(): string {
    const why = this.focus.noRun();
    if (why || this.series().length > 0) return why;
    return `${this.focus.run!.id} kept no histograms. ` +
      "`ulp train --histograms 'conv1.* fc.weight'` keeps those of the tensors that it names.";
  }
}

function bandTop(box: Box): number {
  return box.y + box.h + 44;
}

function outside(bar: Bar, own: Range | null): boolean {
  return own !== null && (bar.exponent > Math.floor(own.high) || bar.exponent < own.low);
}

// Beneath the title: what has no exponent, and what the format cannot hold.
function summary(histogram: Histogram, own: Range | null): string {
  const all = total(histogram) || 1;
  const parts = [`step ${exact(histogram.step)}`, `${histogram.format}`,
    `${percent(histogram.zero / all)} zero`];
  if (own) {
    const { below, beyond } = sides(histogram, own);
    if (below > 0) parts.push(`${percent(below)} below`);
    if (beyond > 0) parts.push(`${percent(beyond)} beyond`);
  }
  if (histogram.infinite) parts.push(`${exact(histogram.infinite)} infinite`);
  if (histogram.nan) parts.push(`${exact(histogram.nan)} NaN`);
  return parts.join(", ");
}

function rangeLines(range: Range, histogram: Histogram): string[] {
  const { below, within, beyond } = sides(histogram, range);
  return [
    range.name,
    `largest number ${exact(2 ** range.high)}, smallest ${exact(2 ** range.low)}`,
    `smallest normal number 2^${range.normal}`,
    `${percent(within)} of the elements within, ${percent(below)} below, ${percent(beyond)} beyond`,
  ];
}

// A format's range: full where numbers are normal, pale where they are subnormal, with an arrow
// where it goes on outside of the picture.
function band(scene: Scene, theme: Theme, panel: Panel, range: Range, index: number): void {
  const { box, x } = panel, y = bandTop(box) + index * bandHeight;
  const fill = formatColour(range.name, theme.dark), own = range.name === panel.own?.name;
  const right = box.x + box.w, clamp = (at: number) => Math.max(box.x, Math.min(right, at));
  const from = clamp(x.px(range.low)), normal = clamp(x.px(range.normal));
  const to = clamp(x.px(range.high));
  scene.rect(from, y + 3, Math.max(0, normal - from), 8, { fill, alpha: 0.4 });
  scene.rect(normal, y + 3, Math.max(0, to - normal), 8, { fill });
  if (x.px(range.low) < box.x) {
    scene.polygon([box.x - 5, y + 7, box.x, y + 2, box.x, y + 12], { fill });
  }
  if (x.px(range.high) > right) {
    scene.polygon([right + 5, y + 7, right, y + 2, right, y + 12], { fill });
  }
  scene.text(box.x - 8, y + 7, range.name, {
    align: "right", baseline: "middle", size: 10, bold: own, fill: own ? theme.text : theme.muted,
  });
}

export function histogramPlot(focus: Focus): Plot {
  return new HistogramPlot(focus);
}
