// Stacked horizontal bars: one row a thing, one colour a part.
import { axes, type Axis, inside, legend, legendHeight, most, plotBox, scale } from "../axis";
import type { Hit, Plot, Scene, Theme } from "../scene";
import { type Spot, next } from "./points";

export interface Bar {
  key: string;
  label: string;
  parts: { name: string; value: number; lines: string[] }[];
  run?: string; // a click selects it
  strong: boolean;
}

export abstract class Bars implements Plot {
  abstract readonly id: string;
  abstract readonly title: string;
  abstract readonly about: string;

  protected abstract bars(): Bar[];
  protected abstract axis(): Omit<Axis, "scale">;
  // Names of parts in the order of the stack, with the number of their colour; -1: grey, -2: pale.
  protected abstract parts(): { name: string; colour: number }[];
  abstract empty(): string;

  height = (width: number): number =>
    24 + this.bars().length * 40 + 46 + this.legendSpace(width);

  private legendSpace(width: number): number {
    const entries = this.parts().map((p) => ({ label: p.name, colour: "" }));
    return legendHeight(most(entries, 24), width - 40) + 8;
  }

  private colour(theme: Theme, index: number): string {
    if (index < 0) return index === -1 ? theme.muted : theme.grid;
    return theme.series[index % theme.series.length] ?? theme.accent;
  }

  // Rectangles of the parts, with hits.
  private layout(width: number, height: number): {
    box: ReturnType<typeof plotBox>; rects: (Spot & { w: number; h: number; colour: number })[];
    scale: ReturnType<typeof scale>; bars: Bar[];
  } {
    const bars = this.bars();
    const box = plotBox({ width, height: height - this.legendSpace(width) },
                        { left: 20, right: 24, top: 4 });
    const sum = (b: Bar): number => b.parts.reduce((s, p) => s + p.value, 0);
    const x = scale(0, Math.max(0, ...bars.map(sum)) || 1, box.x, box.x + box.w);
    const colours = new Map(this.parts().map((p) => [p.name, p.colour]));
    const rects = bars.flatMap((b, row) => {
      let at = 0;
      return b.parts.map((p) => {
        const left = x.px(at);
        at += p.value;
        return {
          x: left, y: box.y + row * 40 + 19, w: x.px(at) - left, h: 17,
          colour: colours.get(p.name) ?? -1,
          hit: { key: `${b.key} ${p.name}`, run: b.run, lines: [b.label, ...p.lines] },
        };
      });
    });
    return { box, rects, scale: x, bars };
  }

  draw(scene: Scene, theme: Theme): void {
    const { box, rects, scale: x, bars } = this.layout(scene.width, scene.height);
    axes(scene, theme, box, { scale: x, ...this.axis() }, null);
    bars.forEach((b, row) => {
      scene.text(box.x + 4, box.y + row * 40 + 10, b.label, {
        baseline: "middle", most: box.w, fill: b.strong ? theme.text : theme.muted,
      });
    });
    let i = 0;
    for (const b of bars) {
      for (const _ of b.parts) {
        const r = rects[i++];
        if (!r || r.w <= 0) continue;
        scene.rect(r.x, r.y, r.w, r.h, {
          fill: this.colour(theme, r.colour), stroke: theme.background, width: 0.75,
          alpha: b.strong ? 1 : 0.3,
        });
        scene.count(1);
      }
    }
    const entries = this.parts().map((p) =>
      ({ label: p.name, colour: this.colour(theme, p.colour) }));
    legend(scene, theme, most(entries, 24), box.x, box.y + box.h + 46, scene.width - 40);
  }

  hit(px: number, py: number, width: number, height: number): Hit | null {
    const { rects } = this.layout(width, height);
    return rects.find((r) => inside(r, px, py))?.hit ?? null;
  }

  move(from: Hit | null, key: "left" | "right" | "up" | "down", width: number, height: number):
    Spot | null {
    const { rects } = this.layout(width, height);
    const spots = rects.filter((r) => r.w > 0)
      .map((r) => ({ x: r.x + r.w / 2, y: r.y + r.h / 2, hit: r.hit }));
    const now = spots.find((s) => s.hit.key === from?.key);
    if (!now) return spots[0] ?? null;
    if (key === "left" || key === "right") {
      return next(spots.filter((s) => s.y === now.y), from, key);
    }
    // The nearest part of the next row.
    const rows = [...new Set(spots.map((s) => s.y))].sort((a, b) => a - b);
    const to = rows[rows.indexOf(now.y) + (key === "down" ? 1 : -1)];
    return spots.filter((s) => s.y === to)
      .sort((a, b) => Math.abs(a.x - now.x) - Math.abs(b.x - now.x))[0] ?? now;
  }

  table(): ReturnType<Plot["table"]> {
    return {
      columns: ["bar", "part", "value"],
      rows: this.bars().flatMap((b) => b.parts.map((p) => [b.label, p.name, p.value])),
    };
  }
}
