// A scene on a canvas. The context is scaled by the device's pixels beforehand, so that all
// coordinates are CSS pixels.
import type { Scene, Style, TextStyle, Theme } from "./scene";
import { cut, font } from "./text";

export class CanvasScene implements Scene {
  marks = 0;
  private currentFont = "";

  constructor(
    private readonly context: CanvasRenderingContext2D,
    readonly width: number,
    readonly height: number,
    private readonly theme: Theme,
  ) {}

  rect(x: number, y: number, w: number, h: number, style: Style): void {
    this.styled(style, () => {
      if (style.fill) this.context.fillRect(x, y, w, h);
      if (style.stroke) this.context.strokeRect(x, y, w, h);
    });
  }

  circle(x: number, y: number, r: number, style: Style): void {
    this.shape(style, () => this.context.arc(x, y, r, 0, 2 * Math.PI));
  }

  line(points: ArrayLike<number>, style: Style): void {
    this.shape({ ...style, fill: undefined }, () => this.path(points));
  }

  polygon(points: ArrayLike<number>, style: Style): void {
    this.shape(style, () => {
      this.path(points);
      this.context.closePath();
    });
  }

  text(x: number, y: number, text: string, style: TextStyle = {}): void {
    const c = this.context;
    const size = style.size ?? 12;
    this.setFont(size, style.bold ?? false);
    if (style.most !== undefined) {
      text = cut(text, style.most, (t) => c.measureText(t).width);
    }
    c.fillStyle = style.fill ?? this.theme.text;
    c.textAlign = style.align ?? "left";
    c.textBaseline = style.baseline === "middle" || style.baseline === "top"
      ? style.baseline : "alphabetic";
    if (style.rotate) {
      c.save();
      c.translate(x, y);
      c.rotate((style.rotate * Math.PI) / 180);
      c.fillText(text, 0, 0);
      c.restore();
    } else {
      c.fillText(text, x, y);
    }
  }

  clip(x: number, y: number, w: number, h: number, draw: () => void): void {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, w, h);
    this.context.clip();
    draw();
    this.context.restore();
    this.currentFont = "";
  }

  measure(text: string, size = 12, bold = false): number {
    this.setFont(size, bold);
    return this.context.measureText(text).width;
  }

  count(marks: number): void {
    this.marks += marks;
  }

  private setFont(size: number, bold: boolean): void {
    const wanted = font(size, bold);
    if (wanted === this.currentFont) return;
    this.context.font = wanted;
    this.currentFont = wanted;
  }

  private styled(style: Style, draw: () => void): void {
    const c = this.context;
    if (style.fill) c.fillStyle = style.fill;
    if (style.stroke) {
      c.strokeStyle = style.stroke;
      c.lineWidth = style.width ?? 1;
      c.setLineDash(style.dash ?? []);
    }
    if (style.alpha !== undefined) c.globalAlpha = style.alpha;
    draw();
    if (style.alpha !== undefined) c.globalAlpha = 1;
  }

  private shape(style: Style, path: () => void): void {
    this.styled(style, () => {
      this.context.beginPath();
      path();
      if (style.fill) this.context.fill();
      if (style.stroke) this.context.stroke();
    });
  }

  private path(points: ArrayLike<number>): void {
    let pen = false;
    this.context.lineJoin = "round";
    for (let i = 0; i + 1 < points.length; i += 2) {
      const x = points[i] as number;
      const y = points[i + 1] as number;
      if (Number.isNaN(x) || Number.isNaN(y)) {
        pen = false;
      } else if (pen) {
        this.context.lineTo(x, y);
      } else {
        this.context.moveTo(x, y);
        pen = true;
      }
    }
  }
}
