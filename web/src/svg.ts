// A scene that writes a standalone SVG picture.
import type { Scene, Style, TextStyle, Theme } from "./scene";
import { cut, fontFamily, textWidth } from "./text";

// Text of any origin goes into the file: markup in it must stay text, and characters that XML does
// not have must not get in.
export function escapeXml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])/g, "\ufffd")
    .replace(/(^|[^\ud800-\udbff])[\udc00-\udfff]/g, "$1\ufffd")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;");
}

const n = (v: number): string => String(Math.round(v * 100) / 100);

export class SvgScene implements Scene {
  marks = 0;
  private parts: string[] = [];
  private clips = 0;

  constructor(
    readonly width: number,
    readonly height: number,
    private readonly theme: Theme,
    private readonly title = "",
  ) {}

  toString(): string {
    const size = `width="${n(this.width)}" height="${n(this.height)}"`;
    return [
      `<?xml version="1.0" encoding="UTF-8"?>`,
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} ` +
        `viewBox="0 0 ${n(this.width)} ${n(this.height)}" ` +
        `font-family="${escapeXml(fontFamily)}" stroke-linejoin="round">`,
      `<title>${escapeXml(this.title)}</title>`,
      `<rect ${size} fill="${escapeXml(this.theme.background)}"/>`,
      ...this.parts,
      `</svg>`,
      "",
    ].join("\n");
  }

  rect(x: number, y: number, w: number, h: number, style: Style): void {
    this.parts.push(
      `<rect x="${n(x)}" y="${n(y)}" width="${n(Math.max(0, w))}" height="${n(Math.max(0, h))}"` +
        `${attributes(style)}/>`);
  }

  circle(x: number, y: number, r: number, style: Style): void {
    this.parts.push(`<circle cx="${n(x)}" cy="${n(y)}" r="${n(r)}"${attributes(style)}/>`);
  }

  line(points: ArrayLike<number>, style: Style): void {
    const d = path(points);
    if (d) this.parts.push(`<path d="${d}"${attributes({ ...style, fill: undefined })}/>`);
  }

  polygon(points: ArrayLike<number>, style: Style): void {
    const d = path(points);
    if (d) this.parts.push(`<path d="${d}Z"${attributes(style)}/>`);
  }

  text(x: number, y: number, text: string, style: TextStyle = {}): void {
    const size = style.size ?? 12;
    const bold = style.bold ?? false;
    if (style.most !== undefined) text = cut(text, style.most, (t) => textWidth(t, size, bold));
    const anchor = { left: "", center: ` text-anchor="middle"`, right: ` text-anchor="end"` };
    // Viewers disagree about dominant-baseline; a shift of the letters' height does not depend on
    // them.
    const lower = { top: 0.8, middle: 0.35, bottom: 0 };
    const dy = size * lower[style.baseline ?? "bottom"];
    const at = style.rotate
      ? `transform="translate(${n(x)} ${n(y)}) rotate(${n(style.rotate)})" y="${n(dy)}"`
      : `x="${n(x)}" y="${n(y + dy)}"`;
    this.parts.push(
      `<text ${at} font-size="${n(size)}"${bold ? ` font-weight="600"` : ""}` +
        `${anchor[style.align ?? "left"]} fill="${escapeXml(style.fill ?? this.theme.text)}">` +
        `${escapeXml(text)}</text>`);
  }

  clip(x: number, y: number, w: number, h: number, draw: () => void): void {
    const id = `clip${++this.clips}`;
    this.parts.push(
      `<clipPath id="${id}"><rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}"/>` +
        `</clipPath>`,
      `<g clip-path="url(#${id})">`);
    draw();
    this.parts.push(`</g>`);
  }

  measure(text: string, size = 12, bold = false): number {
    return textWidth(text, size, bold);
  }

  count(marks: number): void {
    this.marks += marks;
  }
}

function attributes(style: Style): string {
  let text = ` fill="${style.fill ? escapeXml(style.fill) : "none"}"`;
  if (style.stroke) text += ` stroke="${escapeXml(style.stroke)}"`;
  if (style.stroke && style.width !== undefined) text += ` stroke-width="${n(style.width)}"`;
  if (style.stroke && style.dash?.length) {
    text += ` stroke-dasharray="${style.dash.map(n).join(" ")}"`;
  }
  if (style.alpha !== undefined && style.alpha < 1) text += ` opacity="${n(style.alpha)}"`;
  return text;
}

function path(points: ArrayLike<number>): string {
  let d = "";
  let pen = false;
  for (let i = 0; i + 1 < points.length; i += 2) {
    const x = points[i] as number;
    const y = points[i + 1] as number;
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      pen = false;
    } else {
      d += `${pen ? "L" : "M"}${n(x)} ${n(y)}`;
      pen = true;
    }
  }
  return d;
}
