// What a plot draws on. One drawing routine serves the screen (canvas), the saved picture (SVG) and
// tests: a scene is either. Coordinates are CSS pixels, y downwards.

export interface Style {
  fill?: string; // CSS colour; none: not filled
  stroke?: string;
  width?: number; // of the stroke, 1 if not said
  dash?: number[];
  alpha?: number; // 0..1
}

export interface TextStyle {
  fill?: string; // the theme's text if not said
  size?: number; // 12 if not said
  align?: "left" | "center" | "right";
  baseline?: "top" | "middle" | "bottom";
  rotate?: number; // degrees about (x, y), -90 for a y axis
  bold?: boolean;
  most?: number; // cut with an ellipsis to so many pixels
}

export interface Scene {
  readonly width: number;
  readonly height: number;
  rect(x: number, y: number, w: number, h: number, style: Style): void;
  circle(x: number, y: number, r: number, style: Style): void;
  // x0, y0, x1, y1, ... NaN coordinates break the line.
  line(points: ArrayLike<number>, style: Style): void;
  polygon(points: ArrayLike<number>, style: Style): void;
  text(x: number, y: number, text: string, style?: TextStyle): void;
  // Everything drawn inside `draw` is cut off at the rectangle.
  clip(x: number, y: number, w: number, h: number, draw: () => void): void;
  measure(text: string, size?: number, bold?: boolean): number;
  // How many data marks were drawn: each plot reports it, and tests hold it to a bound.
  count(marks: number): void;
}

// Colours of the current theme, as CSS colours. `series` tell apart for colour-blind eyes
// (Okabe-Ito, adjusted for both backgrounds).
export interface Theme {
  dark: boolean;
  text: string;
  muted: string;
  grid: string;
  background: string;
  panel: string;
  accent: string;
  warn: string;
  series: string[];
}

// What lies under the pointer.
export interface Hit {
  lines: string[]; // the tooltip, a line each, plain text
  run?: string; // id of the run: click selects it
  tensor?: string; // click selects it
  step?: number;
  key?: string; // tells two hits apart: arrow keys move from one to the next
}

// A plot: pure drawing and hit testing; its frame (title, buttons, tooltip, keyboard, resize,
// saving) is drawn by whoever mounts it (frame.ts).
export interface Plot {
  readonly id: string; // unique on the page, letters and dashes: tests find the frame by #id
  readonly title: string;
  readonly about: string; // one or two sentences: what is seen, for a newcomer
  readonly height: (width: number) => number;
  controls?: () => HTMLElement[]; // selects, sliders; they call `changed` of the frame
  draw(scene: Scene, theme: Theme): void;
  hit?(x: number, y: number, width: number, height: number): Hit | null;
  // The next hit from the last one for arrow keys, with its place.
  move?(from: Hit | null, key: "left" | "right" | "up" | "down", width: number, height: number):
    { hit: Hit; x: number; y: number } | null;
  click?(hit: Hit): void;
  // Saved as CSV: what is drawn, exact numbers.
  table(): { columns: string[]; rows: (string | number | null)[][] };
  empty?(): string; // why there is nothing to draw; "": there is
}
