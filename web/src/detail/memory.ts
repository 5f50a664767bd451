// Memory over a step: address by time.
import {
  axes, byteTick, byteTicks, bytes, exact, inside, legend, legendHeight, plotBox, scale, wholeTicks,
  type Box, type LegendEntry,
} from "../axis";
import { select as dropDown } from "../controls";
import type { Block, PlanDetail } from "../data";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Plan } from "../state";
import { formatColour, inkOn, sortFormats, useColour, uses } from "./colours";
import { memo, type Focus } from "./focus";
import {
  extentOf, markAt, memoryMarks, memoryScale, phasesOf, usedBytes, type Extent, type Mark,
  type MemoryScale,
} from "./memory_data";
import { nextSpot, type Arrow } from "./marks";
import { plural } from "./numbers";

type Colouring = "use" | "format";

interface Shape {
  box: Box;
  extent: Extent;
  scale: MemoryScale;
  marks: Mark[];
  used: Float64Array; // bytes in each step
}

const left = 74, right = 18, bottom = 60;
const alpha = 0.92, paleAlpha = 0.45; // of rectangles, and of those beside a chosen one

class MemoryPlot implements Plot {
  readonly id = "memory";
  readonly title = "Memory over a step";
  readonly about = "Every tensor is a rectangle: its place in memory upwards, the operations " +
    "during which it is there to the right. Weights and optimizer state lie below address 0 and " +
    "stay.";
  private colouring: Colouring = "use";
  private state: "compressed" | "scale" = "compressed";

  constructor(private readonly focus: Focus) {}

  height = (width: number): number => Math.max(360, Math.min(620, width * 0.5)) + 40;

  controls = (): HTMLElement[] => [
    dropDown("memory-colour", "Colour by",
      () => [{ value: "use", text: "use" }, { value: "format", text: "format" }],
      () => this.colouring, (value) => { this.colouring = value as Colouring; }),
    dropDown("memory-state", "State",
      () => [{ value: "compressed", text: "compressed" }, { value: "scale", text: "to scale" }],
      () => this.state, (value) => { this.state = value as "compressed"; }),
  ];

  // Formats by name; the theme's colours are put in when they are drawn.
  private readonly shapes = memo(
    (plan: Plan, width: number, height: number, colouring: Colouring, state: string): Shape => {
      const detail = plan.detail!;
      const names = colouring === "use" ? usesOf(detail) : formatsOf(detail);
      const labels = [...names, peakText(plan)].map((label) => ({ label, colour: "" }));
      const top = 14 + legendHeight(labels, width - left - right);
      const box = plotBox({ width, height }, { left, right, top, bottom });
      const extent = extentOf(detail, plan.arenaBytes);
      const frame = { left: box.x, top: box.y, width: box.w, height: box.h };
      const scale = memoryScale(extent, frame, state === "compressed");
      const marks = memoryMarks(detail.blocks, scale, (b) => b[colouring]);
      return { box, extent, scale, marks, used: usedBytes(detail, extent.steps) };
    });

  private shape(width: number, height: number): Shape | null {
    const plan = this.focus.plan;
    return plan?.detail ? this.shapes(plan, width, height, this.colouring, this.state) : null;
  }

  private colour(block: Block, theme: Theme): string {
    return this.colouring === "use" ? useColour(block.use, theme)
      : formatColour(block.format, theme.dark);
  }

  draw(scene: Scene, theme: Theme): void {
    const shape = this.shape(scene.width, scene.height), plan = this.focus.plan;
    if (!shape || !plan?.detail) return;
    const { box, extent, scale: to, marks } = shape, detail = plan.detail;
    const steps = scale(0, Math.max(1, extent.steps), box.x, box.x + box.w);
    axes(scene, theme, box, { scale: steps, label: "", ticks: wholeTicks, grid: false }, null);
    scene.text(box.x + box.w / 2, box.y + box.h + 40, "operation of the step, in order", {
      align: "center", baseline: "top", most: scene.width,
    });
    this.addresses(scene, theme, shape);
    this.phases(scene, theme, shape, detail);
    const chosen = this.focus.tensor;
    const faint = chosen !== null && detail.blocks.some((b) => b.name === chosen);
    scene.clip(box.x, box.y, box.w, box.h, () => {
      for (const mark of marks) {
        const block = detail.blocks[mark.blocks[0]];
        // A hair of background tells neighbours apart where there is room for it.
        const gapX = mark.w > 4 ? 0.6 : 0, gapY = mark.h > 4 ? 0.6 : 0;
        scene.rect(mark.x, mark.y, Math.max(0.5, mark.w - gapX), Math.max(0.5, mark.h - gapY),
          { fill: this.colour(block, theme), alpha: faint ? paleAlpha : alpha });
      }
      if (!faint) return;
      for (const block of detail.blocks) {
        if (block.name !== chosen) continue;
        const x = to.x(block.first), y = to.y(block.offset + block.bytes);
        scene.rect(x, y, Math.max(2, to.x(block.last + 1) - x),
          Math.max(2, to.y(block.offset) - y),
          { fill: this.colour(block, theme), stroke: theme.text, width: 2 });
      }
    });
    this.peak(scene, theme, shape, plan);
    this.names(scene, theme, shape, plan, detail, faint ? chosen : null);
    legend(scene, theme, this.entries(plan, detail, theme), box.x, 4, box.w);
    scene.count(marks.length);
  }

  private entries(plan: Plan, detail: PlanDetail, theme: Theme): LegendEntry[] {
    const shown: LegendEntry[] = this.colouring === "format"
      ? formatsOf(detail).map((label) => ({ label, colour: formatColour(label, theme.dark) }))
      : usesOf(detail).map((label) => ({ label, colour: useColour(label, theme) }));
    return [...shown, { label: peakText(plan), colour: theme.warn, mark: "line", dash: [5, 3] }];
  }

  private addresses(scene: Scene, theme: Theme, { box, extent, scale: to }: Shape): void {
    const zero = to.y(0);
    const ticks = byteTicks(0, extent.high, Math.max(2, (zero - box.y) / 45));
    for (const tick of ticks) {
      const y = Math.round(to.y(tick)) + 0.5;
      scene.line([box.x, y, box.x + box.w, y], { stroke: theme.grid });
      scene.text(box.x - 6, y, byteTick(tick, extent.high), {
        align: "right", baseline: "middle", size: 11, fill: theme.muted,
      });
    }
    scene.line([box.x, zero, box.x + box.w, zero], { stroke: theme.muted });
    scene.text(12, (box.y + zero) / 2, "address", {
      rotate: -90, align: "center", baseline: "middle",
    });
    const room = box.y + box.h - zero;
    if (extent.low < 0 && room > 14) {
      scene.text(box.x - 6, zero + room / 2 + 3, "state", {
        align: "right", baseline: "middle", size: 11, fill: theme.text,
      });
      if (room > 42) {
        scene.text(box.x - 6, zero + room / 2 + 17, bytes(-extent.low), {
          align: "right", baseline: "middle", size: 11, fill: theme.muted,
        });
      }
    }
  }

  private phases(scene: Scene, theme: Theme, { box, scale: to }: Shape, detail: PlanDetail): void {
    let free = -Infinity;
    for (const phase of phasesOf(detail)) {
      const x = to.x(phase.first), end = to.x(phase.end);
      if (phase.first > 0) {
        scene.line([x, box.y, x, box.y + box.h + 22], { stroke: theme.muted, dash: [2, 3] });
      }
      const half = scene.measure(phase.name, 11, true) / 2, middle = (x + end) / 2;
      if (end - x < 2 * half + 4 || middle - half < free) continue;
      free = middle + half + 4;
      scene.text(middle, box.y + box.h + 23, phase.name, {
        align: "center", baseline: "top", size: 11, bold: true,
      });
    }
  }

  // The planned peak is a sum, not an address: with fragments the highest address may be above it.
  private peak(scene: Scene, theme: Theme, { box, extent, scale: to }: Shape, plan: Plan): void {
    const y = to.y(plan.peakBytes + extent.low);
    if (y >= box.y - 1 && y <= box.y + box.h) {
      scene.line([box.x, y, box.x + box.w, y], { stroke: theme.warn, width: 1.5, dash: [6, 4] });
    }
    if (plan.peakStep >= 0 && plan.peakStep < extent.steps) {
      const x = (to.x(plan.peakStep) + to.x(plan.peakStep + 1)) / 2;
      scene.line([x, box.y, x, box.y + box.h], { stroke: theme.warn, width: 1.5, dash: [6, 4] });
    }
  }

  // Names inside what is large enough for them; where the lines of the peak would cross one, on a
  // piece of its rectangle's colour. Where a tensor is chosen, all others are pale.
  private names(
    scene: Scene, theme: Theme, { marks, scale: to, extent }: Shape, plan: Plan, detail: PlanDetail,
    chosen: string | null,
  ): void {
    const peakX = to.x(plan.peakStep + 0.5), peakY = to.y(plan.peakBytes + extent.low);
    for (const mark of marks) {
      if (mark.blocks.length > 1 || mark.w < 90 || mark.h < 17) continue;
      const block = detail.blocks[mark.blocks[0]], { name } = block;
      const w = scene.measure(name, 10), middle = mark.y + mark.h / 2;
      if (w > mark.w - 8) continue;
      const pale = chosen !== null && name !== chosen, colour = this.colour(block, theme);
      if (Math.abs(peakX - mark.x - 4 - w / 2) < w / 2 + 3 || Math.abs(peakY - middle) < 8) {
        const [x, y] = [Math.round(mark.x + 2), Math.round(middle - 6)];
        const shade = pale ? paleAlpha : name === chosen ? 1 : alpha;
        scene.rect(x, y, Math.round(w + 4), 13, { fill: theme.background });
        scene.rect(x, y, Math.round(w + 4), 13, { fill: colour, alpha: shade });
      }
      scene.text(mark.x + 4, middle, name, {
        size: 10, baseline: "middle", fill: pale ? theme.text : inkOn(colour),
      });
    }
  }

  private found(mark: Mark, detail: PlanDetail): Hit {
    const block = detail.blocks[mark.blocks[0]], end = block.last;
    const nameAt = (step: number) => {
      const at = detail.steps[step];
      return at ? `${step} (${at.phase} ${at.node}, ${at.op})` : String(step);
    };
    const lines = [
      block.name,
      `${block.use}${block.format ? `, ${block.format}` : ""}`,
      `${exact(block.bytes)} bytes${block.bytes >= 1024 ? ` (${bytes(block.bytes)})` : ""}` +
        (block.offset < 0 ? ", below address 0" : ` at ${exact(block.offset)}`),
      `from operation ${nameAt(block.first)}`, `to ${nameAt(end)}`,
    ];
    if (block.offset < 0) lines.splice(3, 2, "in all operations");
    if (mark.blocks.length > 1) {
      lines.push(`and ${plural(mark.blocks.length - 1, "more block")}, too thin to draw alone`);
    }
    return { lines, run: this.focus.run?.id, tensor: block.name, key: String(mark.blocks[0]) };
  }

  hit(x: number, y: number, width: number, height: number): Hit | null {
    const shape = this.shape(width, height), detail = this.focus.plan?.detail;
    if (!shape || !detail || !inside(shape.box, x, y)) return null;
    const mark = markAt(shape.marks, x, y);
    if (mark) return this.found(mark, detail);
    const step = shape.scale.step(x), at = detail.steps[step];
    if (!at) return null;
    const lines = [`operation ${step}: ${at.node}`, `${at.phase}, ${at.op}, kernel ${at.kernel}`,
      `${bytes(shape.used[step])} in use with state`];
    if (at.more > 0) lines.push(`${plural(at.more, "more node")} computed with it`);
    return { lines };
  }

  move(from: Hit | null, key: Arrow, width: number, height: number) {
    const shape = this.shape(width, height), detail = this.focus.plan?.detail;
    if (!shape || !detail) return null;
    const spots = shape.marks.map((mark) => (
      { key: String(mark.blocks[0]), x: mark.x + mark.w / 2, y: mark.y + mark.h / 2, mark }));
    const next = nextSpot(spots, from, key);
    return next && { hit: this.found(next.mark, detail), x: next.x, y: next.y };
  }

  click(hit: Hit): void {
    this.focus.click(hit);
  }

  table() {
    const detail = this.focus.plan?.detail;
    const columns = ["tensor", "use", "format", "offset", "bytes", "first", "last"];
    const rows = (detail?.blocks ?? []).map((b) => (
      [b.name, b.use, b.format, b.offset, b.bytes, b.first, b.last]));
    return { columns, rows };
  }

  empty(): string {
    const why = this.focus.noPlan();
    if (why) return why;
    return this.focus.plan!.detail!.blocks.length > 0 ? "" : "The plan holds no tensor.";
  }
}

// Text over the rectangles would hide the upper ones: it stands in the legend.
const peakText = (plan: Plan): string => `planned peak ${bytes(plan.peakBytes)} with state`;

function usesOf(detail: PlanDetail) {
  return uses.filter((use) => detail.blocks.some((b) => b.use === use));
}

function formatsOf(detail: PlanDetail): string[] {
  return sortFormats(detail.blocks.map((b) => b.format).filter((f) => f !== ""));
}

export function memoryPlot(focus: Focus): Plot {
  return new MemoryPlot(focus);
}

