// Where the time of a step goes, and what narrow tensors buy, from `ulp bench step --json`.
import { bits, duration, extent, axes, padded, plotBox, scale } from "../axis";
import type { Axis } from "../axis";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Doc, Store } from "../state";
import { type Bar, Bars } from "./bars";
import { finite } from "./metric";
import { nearest, next, type Spot } from "./points";

type Bench = Doc["benches"][number];

const mostKernels = 8;
const rest = "all others";
const outside = "outside kernels";

// The program's label begins with the network and the policy.
const label = (b: Bench): string => `${b.label}, batch ${b.batch}, ${b.device}`;

const none = "The report has no benchmark of a step. `ulp bench step --json` writes one; put the " +
  "file into the folder that the report is made of.";

export class Speed extends Bars {
  readonly id = "speed";
  readonly title = "Time of a step by kernel";
  readonly about = "Each bar is a benchmark of one training step, as long as the step takes; its " +
    "parts are the kernels that take most of the time in all of them, and what is left outside.";

  constructor(private readonly store: Store) {
    super();
  }

  // The kernels with the largest sums over all benchmarks.
  private largest(): string[] {
    const sums = new Map<string, number>();
    for (const b of this.store.doc.benches) {
      for (const k of b.kernels) {
        const name = `${k.op}: ${k.kernel}`;
        sums.set(name, (sums.get(name) ?? 0) + k.seconds);
      }
    }
    return [...sums].sort((a, b) => b[1] - a[1]).slice(0, mostKernels).map(([name]) => name);
  }

  protected parts(): { name: string; colour: number }[] {
    return [...this.largest().map((name, i) => ({ name, colour: i })), { name: rest, colour: -1 },
      { name: outside, colour: -2 }];
  }

  protected axis(): Omit<Axis, "scale"> {
    return { label: "time of a step", format: duration };
  }

  protected bars(): Bar[] {
    const names = this.largest();
    return this.store.doc.benches.map((b, i) => {
      const sums = new Map<string, { seconds: number; calls: number }>();
      for (const k of b.kernels) {
        const own = `${k.op}: ${k.kernel}`;
        const name = names.includes(own) ? own : rest;
        const sum = sums.get(name) ?? { seconds: 0, calls: 0 };
        sums.set(name, { seconds: sum.seconds + k.seconds, calls: sum.calls + k.calls });
      }
      const parts = [...names, rest].filter((n) => sums.has(n)).map((name) => {
        const { seconds, calls } = sums.get(name)!;
        return { name, value: seconds, lines: [name, `${duration(seconds)} in ${calls} calls`] };
      });
      // The step is measured by the clock, and each kernel by itself. Kernels that run at once may
      // take longer together than the step does.
      const within = parts.reduce((sum, p) => sum + p.value, 0);
      const left = b.seconds - within;
      if (left > 0) {
        parts.push({ name: outside, value: left, lines: [outside,
          `${duration(left)}: waiting, memory, and what is between kernels`] });
      }
      return {
        key: `${i} ${b.id}`,
        label: `${label(b)}: ${duration(b.seconds)}, ${duration(within)} in kernels`,
        strong: true,
        parts,
      };
    });
  }

  empty(): string {
    return this.store.doc.benches.length ? "" : none;
  }
}

export class SpeedAggregate implements Plot {
  readonly id = "speed-aggregate";
  readonly title = "Time of a step against the aggregate";
  readonly about = "Fewer bits in all tensors of a step should mean less to move, and less time. " +
    "Each dot is a benchmark.";

  constructor(private readonly store: Store) {}

  private benches(): Bench[] {
    return this.store.doc.benches.filter((b) => finite(b.aggregateBits) && finite(b.seconds));
  }

  height = (width: number): number => Math.max(260, Math.min(380, Math.round(width * 0.45)));

  empty(): string {
    if (this.benches().length) return "";
    return this.store.doc.benches.length ? "No benchmark of the report knows its aggregate." : none;
  }

  private layout(width: number, height: number) {
    const box = plotBox({ width, height });
    const all = this.benches();
    const [a, b] = padded(...extent(all.map((s) => s.aggregateBits)));
    const [, top] = padded(0, Math.max(...all.map((s) => s.seconds)));
    const x = scale(Math.max(0, a), b, box.x, box.x + box.w);
    return { box, x, y: scale(0, top, box.y + box.h, box.y) };
  }

  private spots(width: number, height: number): Spot[] {
    const { x, y } = this.layout(width, height);
    return this.benches().map((b, i) => ({
      x: x.px(b.aggregateBits as number),
      y: y.px(b.seconds),
      hit: {
        key: `${i}`,
        lines: [label(b), `${duration(b.seconds)} a step`, `aggregate ${bits(b.aggregateBits)}`],
      },
    }));
  }

  draw(scene: Scene, theme: Theme): void {
    const { box, x, y } = this.layout(scene.width, scene.height);
    axes(scene, theme, box, { scale: x, label: "aggregate", bytes: 8 },
         { scale: y, label: "time of a step", format: duration });
    const models = [...new Set(this.benches().map((b) => b.model))];
    const taken: { x: number; y: number; w: number }[] = [];
    this.spots(scene.width, scene.height).forEach((s, i) => {
      const bench = this.benches()[i]!;
      const colour = theme.series[models.indexOf(bench.model) % theme.series.length];
      scene.circle(s.x, s.y, 6, { fill: colour, stroke: theme.background });
      scene.count(1);
      // A name beside the dot, unless it would lie on another one or leave the picture.
      const text = bench.label || bench.policy;
      const w = Math.min(160, scene.measure(text, 11));
      const left = s.x + 10 + w <= box.x + box.w ? s.x + 10 : s.x - 10 - w;
      const free = taken.every((t) =>
        left > t.x + t.w || left + w < t.x || Math.abs(s.y - t.y) > 13);
      if (!free) return;
      taken.push({ x: left, y: s.y, w });
      scene.text(left, s.y, text, { size: 11, baseline: "middle", most: 161 });
    });
  }

  hit(px: number, py: number, width: number, height: number): Hit | null {
    return nearest(this.spots(width, height), px, py);
  }

  move(from: Hit | null, key: "left" | "right" | "up" | "down", width: number, height: number):
    Spot | null {
    return next(this.spots(width, height), from, key);
  }

  table(): ReturnType<Plot["table"]> {
    return {
      columns: ["file", "model", "policy", "device", "batch", "aggregate bits", "seconds a step"],
      rows: this.benches().map((b) =>
        [b.id, b.model, b.policy, b.device, b.batch, b.aggregateBits, b.seconds]),
    };
  }
}
