// Fonts and the widths of text.
export const fontFamily = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

export const font = (size: number, bold: boolean): string =>
  `${bold ? "600 " : ""}${size}px ${fontFamily}`;

// The text cut to `most` pixels, with an ellipsis where something is missing.
export function cut(text: string, most: number, measure: (text: string) => number): string {
  if (measure(text) <= most) return text;
  let lo = 0;
  let hi = text.length;
  while (lo < hi) {
    const middle = (lo + hi + 1) >> 1;
    if (measure(text.slice(0, middle) + "…") <= most) lo = middle;
    else hi = middle - 1;
  }
  return text.slice(0, lo) + "…";
}

let ruler: CanvasRenderingContext2D | null | undefined;

// The width in pixels. Outside a browser there is nothing to measure with, so it is estimated.
export function textWidth(text: string, size: number, bold: boolean): number {
  if (ruler === undefined) {
    ruler = typeof document === "undefined"
      ? null : document.createElement("canvas").getContext("2d");
  }
  if (!ruler) return text.length * size * (bold ? 0.6 : 0.55);
  ruler.font = font(size, bold);
  return ruler.measureText(text).width;
}
