// Mounts plots: title, controls, the canvas with tooltip and keyboard, saving. A plot is drawn only
// while it is near the screen, and at most once a frame of the display.
import { CanvasScene } from "./canvas";
import { refreshControls } from "./controls";
import { button, el, save, saveCsv } from "./dom";
import type { Hit, Plot, Theme } from "./scene";
import type { Store } from "./state";
import { SvgScene } from "./svg";
import { isPrinting, onTheme, theme } from "./theme";

// Something that is not drawn: a table, text. It is in a section as plots are.
export interface Panel {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  readonly element: HTMLElement; // its content
  refresh(): void; // after any change of the store, at most once a frame of the display
  table?(): { columns: string[]; rows: (string | number | null)[][] }; // gives it a CSV button
  empty?(): string;
}

// A plot that another library draws on the screen. draw() of the Plot still makes what is saved and
// printed, in the same coordinates, so hits are found by the same hit().
export interface ScreenPlot extends Plot {
  // Shows the plot in host and returns the number of marks.
  show(host: HTMLElement, width: number, height: number, theme: Theme, redraw: () => void): number;
}

export interface Section {
  id: string;
  title: string;
  items: (Plot | Panel)[];
  head?: HTMLElement; // controls of the whole section, under its title
}

// Pixels between the margins of A4 and letter: what is laid out for a screen may be wider.
const paperWidth = 660;

const isPlot = (item: Plot | Panel): item is Plot => "draw" in item;

interface Mounted {
  id: string;
  invalidate(): void;
  drawNow(): void;
}

const near = new WeakMap<Element, (visible: boolean) => void>();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const e of entries) near.get(e.target)?.(e.isIntersecting);
  },
  { rootMargin: "300px" },
);

const mounted: Mounted[] = [];

// Draws everything at once, also what is off screen: paper has no scrolling.
export function drawAll(): void {
  for (const m of mounted) m.drawNow();
}

export function mount(item: Plot | Panel, store: Store, host: HTMLElement): void {
  const section = el("section", { class: isPlot(item) ? "item plot" : "item panel" });
  section.id = item.id;
  const buttons = el("div", { class: "buttons" });
  const about = el("p", { class: "about", text: item.about });
  const header = el("header", {}, el("h3", { text: item.title }), buttons);
  const reason = el("p", { class: "nothing" });
  section.append(header, about);
  host.append(section);
  const body = isPlot(item)
    ? new PlotFrame(item, section, buttons, reason)
    : panelBody(item, section, buttons, reason);
  let visible = !isPlot(item); // tables and text cost little, and are searched for by the reader
  let dirty = true;
  let asked = false;
  const draw = (): void => {
    dirty = false;
    body.draw();
  };
  const invalidate = (): void => {
    dirty = true;
    if (!visible || asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      if (dirty && visible) draw();
    });
  };
  body.invalidate = invalidate;
  if (isPlot(item)) {
    near.set(section, (now) => {
      visible = now;
      if (now && dirty) invalidate();
    });
    watcher.observe(section);
    body.reserve();
  } else {
    body.draw();
  }
  store.subscribe((change) => {
    body.changed(change !== "tensor" && change !== "step");
    invalidate();
  });
  onTheme(invalidate);
  mounted.push({ id: item.id, invalidate, drawNow: draw });
}

interface Body {
  draw(): void;
  changed(options: boolean): void; // of the store
  reserve(): void;
  invalidate: () => void;
}

function panelBody(
  panel: Panel, section: HTMLElement, buttons: HTMLElement, reason: HTMLElement): Body {
  if (panel.table) {
    const table = panel.table.bind(panel);
    buttons.append(button("CSV", "Save the table", () => saveCsv(panel.id, table())));
  }
  section.append(reason, panel.element);
  return {
    draw() {
      const why = panel.empty?.() ?? "";
      showReason(section, reason, why);
      panel.element.hidden = why !== "";
      if (why === "") panel.refresh();
    },
    changed() {},
    reserve() {},
    invalidate() {},
  };
}

function showReason(section: HTMLElement, reason: HTMLElement, why: string): void {
  reason.textContent = why;
  reason.hidden = why === "";
  section.classList.toggle("without-data", why !== "");
}

class PlotFrame implements Body {
  invalidate: () => void = () => {};
  private readonly stage = el("div", {
    class: "stage", attributes: { tabindex: "0", role: "img" },
  });
  private readonly canvas = el("canvas");
  private readonly tip = el("div", { class: "tip", attributes: { role: "status" } });
  private readonly ring = el("div", { class: "ring" });
  private readonly controls = el("div", { class: "controls" });
  private width = 0;
  private height = 0;
  private hit: Hit | null = null;
  private draws = 0;
  private clicked = 0; // a timer

  constructor(
    private readonly plot: Plot,
    private readonly section: HTMLElement,
    buttons: HTMLElement,
    private readonly reason: HTMLElement,
  ) {
    buttons.append(
      button("SVG", "Save the picture as SVG", () => this.saveSvg()),
      button("PNG", "Save the picture as PNG", () => this.savePng()),
      button("CSV", "Save what is drawn as a table", () => saveCsv(plot.id, plot.table())),
    );
    this.stage.setAttribute("aria-label", `${plot.title}. ${plot.about}`);
    this.stage.append(this.canvas, this.ring, this.tip);
    if (plot.controls) this.controls.append(...plot.controls());
    section.append(this.controls, reason, this.stage);
    this.hideTip();
    this.controls.addEventListener("input", () => {
      // What leads to no data must lead back.
      section.classList.add("touched");
      // A control may change which others make sense.
      refreshControls(this.controls);
      this.hideTip();
      this.invalidate();
    });
    this.listen();
    new ResizeObserver(() => {
      if (Math.floor(this.stage.clientWidth) !== this.width) this.invalidate();
    }).observe(this.stage);
  }

  changed(options: boolean): void {
    if (options) refreshControls(this.controls);
  }

  // Takes the room that it will need: plots that are drawn later must not push away what the reader
  // looks at.
  reserve(): void {
    const why = this.plot.empty?.() ?? "";
    showReason(this.section, this.reason, why);
    this.stage.hidden = why !== "";
    if (why !== "") return;
    const width = Math.max(1, this.stage.clientWidth);
    this.stage.style.height = `${Math.round(this.plot.height(width))}px`;
  }

  draw(): void {
    const why = this.plot.empty?.() ?? "";
    showReason(this.section, this.reason, why);
    this.stage.hidden = why !== "";
    if (why !== "") {
      this.report(0);
      return;
    }
    const width = isPrinting() ? paperWidth : Math.floor(this.stage.clientWidth);
    this.width = Math.max(1, width);
    this.height = Math.max(1, Math.round(this.plot.height(this.width)));
    this.stage.style.height = `${this.height}px`;
    const screen = isPrinting() ? null : this.onScreen();
    this.canvas.hidden = screen !== null;
    if (screen) {
      const redraw = (): void => this.invalidate();
      this.report(screen.show(this.stage, this.width, this.height, theme(), redraw));
      return;
    }
    const ratio = isPrinting() ? 2 : window.devicePixelRatio || 1;
    this.report(paint(this.canvas, this.plot, this.width, this.height, ratio, theme()));
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
  }

  private onScreen(): ScreenPlot | null {
    const plot = this.plot as Partial<ScreenPlot>;
    return typeof plot.show === "function" ? (plot as ScreenPlot) : null;
  }

  private report(marks: number): void {
    this.section.dataset.marks = String(marks);
    this.section.dataset.draws = String(++this.draws);
  }

  private listen(): void {
    const { stage, plot } = this;
    const find = (e: MouseEvent): Hit | null => {
      const at = stage.getBoundingClientRect();
      const hit = plot.hit?.(e.clientX - at.left, e.clientY - at.top, this.width, this.height);
      if (hit) this.showTip(hit, e.clientX - at.left, e.clientY - at.top, false);
      else this.hideTip();
      stage.classList.toggle("clickable", !!hit && !!plot.click);
      return hit ?? null;
    };
    stage.addEventListener("pointermove", find);
    stage.addEventListener("pointerleave", () => this.hideTip());
    // A drag (zooming) ends in a click too; it selects nothing.
    let down: [number, number] = [0, 0];
    stage.addEventListener("pointerdown", (e) => { down = [e.clientX, e.clientY]; });
    stage.addEventListener("click", (e) => {
      if (Math.hypot(e.clientX - down[0], e.clientY - down[1]) > 4) return;
      const hit = find(e);
      if (!hit) return;
      if (!this.onScreen()) {
        plot.click?.(hit);
        return;
      }
      // A double click shows all of a zoomed plot; it must not select on its way.
      clearTimeout(this.clicked);
      if (e.detail < 2) this.clicked = window.setTimeout(() => plot.click?.(hit), 250);
    });
    stage.addEventListener("keydown", (e) => this.key(e));
    stage.addEventListener("blur", () => this.hideTip());
  }

  private key(e: KeyboardEvent): void {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const arrows: Record<string, "left" | "right" | "up" | "down"> = {
      ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
    };
    const direction = arrows[e.key];
    if (direction && this.plot.move) {
      e.preventDefault();
      const next = this.plot.move(this.hit, direction, this.width, this.height);
      if (next) this.showTip(next.hit, next.x, next.y, true);
    } else if ((e.key === "Enter" || e.key === " ") && this.hit) {
      e.preventDefault();
      this.plot.click?.(this.hit);
    } else if (e.key === "Escape") {
      this.hideTip();
      this.stage.blur();
    }
  }

  private showTip(hit: Hit, x: number, y: number, ring: boolean): void {
    this.hit = hit;
    const { tip } = this;
    tip.replaceChildren(...hit.lines.map((line) => el("div", { text: line })));
    tip.hidden = false;
    // Beside the pointer, on the side where it stays inside.
    const w = tip.offsetWidth;
    const h = tip.offsetHeight;
    const left = x + 14 + w <= this.width ? x + 14 : Math.max(0, x - 14 - w);
    tip.style.left = `${Math.min(left, Math.max(0, this.width - w))}px`;
    tip.style.top = `${y + 14 + h <= this.height ? y + 14 : Math.max(0, y - 14 - h)}px`;
    this.ring.hidden = !ring;
    this.ring.style.left = `${x}px`;
    this.ring.style.top = `${y}px`;
  }

  private hideTip(): void {
    this.hit = null;
    this.tip.hidden = true;
    this.ring.hidden = true;
  }

  // The size of what is saved: that on the screen, but never a narrow column.
  private savedSize(): [number, number] {
    const width = Math.max(640, this.width);
    return [width, Math.round(this.plot.height(width))];
  }

  private saveSvg(): void {
    const [width, height] = this.savedSize();
    const scene = new SvgScene(width, height, theme(), this.plot.title);
    if ((this.plot.empty?.() ?? "") === "") this.plot.draw(scene, theme());
    save(`${this.plot.id}.svg`, new Blob([scene.toString()], { type: "image/svg+xml" }));
  }

  private savePng(): void {
    const [width, height] = this.savedSize();
    const canvas = el("canvas");
    paint(canvas, this.plot, width, height, 2, theme());
    // toBlob would wait until the browser is idle, which takes seconds now and then.
    const [, encoded = ""] = canvas.toDataURL("image/png").split(",");
    const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
    save(`${this.plot.id}.png`, new Blob([bytes], { type: "image/png" }));
  }
}

// Draws the plot on the canvas, with its background. Returns the number of marks.
function paint(
  canvas: HTMLCanvasElement,
  plot: Plot,
  width: number,
  height: number,
  ratio: number,
  colours: Theme,
): number {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  if (!context) return 0;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.background;
  context.fillRect(0, 0, width, height);
  const scene = new CanvasScene(context, width, height, colours);
  if ((plot.empty?.() ?? "") === "") plot.draw(scene, colours);
  return scene.marks;
}
