// Curves on the screen by uPlot: zoom by dragging, double click for all, a cursor that several
// plots share. Axes and legend come from the plot itself, so the saved picture looks the same.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { CanvasScene } from "../canvas";
import type { Theme } from "../scene";
import type { Curves, Drawing, Line } from "./curves";
import type { Points } from "./series";

interface Shown {
  drawing: Drawing;
  theme: Theme;
}

export class CurveScreen {
  private plot: uPlot | null = null;
  private shown: Shown | null = null;
  private dragging = false;
  private width = 0;

  constructor(
    private readonly curves: Curves,
    private readonly host: HTMLElement,
    private readonly zoom: (range: [number, number] | null) => void,
  ) {
    host.classList.add("curves");
    host.addEventListener("pointerdown", () => { this.dragging = true; });
    window.addEventListener("pointerup", () => { this.dragging = false; });
    window.addEventListener("pointercancel", () => { this.dragging = false; });
  }

  update(drawing: Drawing, width: number, height: number, theme: Theme): void {
    // News of a run must not take the rectangle out of the reader's hand.
    if (this.dragging && this.width === width && this.plot) return;
    this.shown = { drawing, theme };
    this.width = width;
    this.plot?.destroy();
    const { series, tables, bands } = this.lines(drawing);
    const { box, x, y } = drawing;
    const data = tables.length
      ? uPlot.join(aligned(tables, drawing).map(columns))
      : ([[]] as unknown as uPlot.AlignedData);
    this.plot = new uPlot({
      width,
      height,
      pxAlign: 0,
      padding: [box.y, width - box.x - box.w, height - box.y - box.h, box.x],
      legend: { show: false },
      axes: [{ show: false }, { show: false }],
      scales: {
        x: { time: false, range: [x.lo, x.hi] },
        y: { range: [y.lo, y.hi], distr: y.log ? 3 : 1 },
      },
      series: [{}, ...series],
      bands,
      cursor: {
        sync: { key: `curves-by-${drawing.by}`, setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { show: false },
        y: false,
        bind: {
          dblclick: () => () => {
            this.zoom(null);
            return null;
          },
        },
      },
      hooks: {
        drawClear: [(u) => this.overlay(u, (s) => this.curves.drawUnder(s, theme, drawing))],
        draw: [(u) => this.overlay(u, (s) => this.over(s))],
        setSelect: [(u) => this.selected(u)],
      },
    }, data, this.host);
  }

  // Lines in the order in which they are drawn, and the data of each.
  private lines(d: Drawing): { series: uPlot.Series[]; tables: Points[]; bands: uPlot.Band[] } {
    const series: uPlot.Series[] = [];
    const tables: Points[] = [];
    const bands: uPlot.Band[] = [];
    const add = (p: Points, l: Line, alpha: number, width: number, dash?: number[]): void => {
      series.push({
        stroke: l.colour, alpha, width, dash,
        points: { show: false },
      });
      tables.push(p);
    };
    for (const l of [...d.lines].sort((a, b) => Number(a.strong) - Number(b.strong))) {
      const alpha = l.strong ? 1 : 0.2;
      if (l.band) {
        add(l.band.high, l, alpha, 0);
        add(l.band.low, l, alpha, 0);
        const fill = transparent(l.colour, 0.15 * alpha);
        bands.push({ series: [series.length - 1, series.length], fill });
      }
      if (l.smooth) add(l.raw, l, alpha * 0.25, 1);
      add(l.smooth ?? l.raw, l, alpha, 1.75, l.dash);
    }
    return { series, tables, bands };
  }

  private over(scene: CanvasScene): void {
    if (!this.shown) return;
    const { drawing: d, theme } = this.shown;
    scene.clip(d.box.x, d.box.y, d.box.w, d.box.h, () => {
      for (const l of d.lines) {
        if (!l.smooth && l.raw.x.length <= 60) this.curves.dots(scene, l, d, l.strong ? 1 : 0.2);
      }
    });
    this.curves.drawOver(scene, theme, d);
  }

  // uPlot draws in pixels of the device, scenes in those of CSS.
  private overlay(u: uPlot, draw: (scene: CanvasScene) => void): void {
    if (!this.shown) return;
    const ratio = u.ctx.canvas.width / u.width;
    u.ctx.save();
    u.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(new CanvasScene(u.ctx, u.width, u.height, this.shown.theme));
    u.ctx.restore();
  }

  private selected(u: uPlot): void {
    const { left, width } = u.select;
    if (width < 5 || !this.shown) return;
    const { x } = this.shown.drawing;
    const lo = x.value(x.from + left);
    const hi = x.value(x.from + left + width);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.dragging = false;
    if (hi > lo) this.zoom([lo, hi]);
  }
}

// uPlot's gap is null.
function columns(p: Points): uPlot.AlignedData {
  return [p.x, p.y.map((v) => (Number.isNaN(v) ? null : v))];
}

// #rrggbb with an alpha.
function transparent(colour: string, alpha: number): string {
  return colour + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

// uPlot wants all lines over the same x, and fills what a line lacks. Where lines have few x in
// common that would be much, so they move to quarters of a pixel: two places a column, which is as
// many as a line has there.
function aligned(tables: Points[], d: Drawing): Points[] {
  const different = new Set(tables.flatMap((p) => p.x)).size;
  if (different * tables.length < 300_000) return tables;
  const columns = Math.max(1, Math.floor(d.box.w));
  const each = (d.x.hi - d.x.lo) / columns;
  return tables.map((p) => {
    let before = -Infinity;
    const x = p.x.map((v) => {
      const column = Math.floor((v - d.x.lo) / each);
      const at = Math.max(column + 0.25, before + 0.5);
      before = at;
      return d.x.lo + at * each;
    });
    return { x, y: p.y };
  });
}
