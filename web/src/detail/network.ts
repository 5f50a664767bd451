// A map of the network: every node a box by the size and in the colour of the format of its output,
// as they are at the chosen step, with a strip in that of the output's gradient.
import { exact, legend, type LegendEntry } from "../axis";
import { slider } from "../controls";
import type { MapNode } from "../data";
import type { Hit, Plot, Scene, Theme } from "../scene";
import type { Plan } from "../state";
import { formatColour, sortFormats } from "./colours";
import { memo, type Focus } from "./focus";
import { player } from "./inputs";
import {
  barHeight, barTop, folded, layoutNetwork, opTop, stripGap, stripHeight, type DrawnNode,
  type NetworkLayout, type PlacedBox,
} from "./network_layout";
import { nextSpot, type Arrow } from "./marks";
import { elements } from "./numbers";

const top = 30;

type Tensor = Plan["tensors"][number];

const gradient = (name: string): string => `${name}.grad`;

class NetworkPlot implements Plot {
  readonly id = "network";
  readonly title = "The network, by format";
  readonly about = "Boxes are operators; their area goes by the elements of the output, their " +
    "colour by its format. The strip at a box is the gradient of its output. The bar below is its " +
    "weights, with a strip for theirs. The slider replays promotions.";

  constructor(private readonly focus: Focus) {}

  private readonly tensors = memo((plan: Plan) =>
    new Map(plan.tensors.map((tensor): [string, Tensor] => [tensor.name, tensor])));
  private readonly nodes = memo((plan: Plan): DrawnNode[] => folded(plan.detail!.nodes));
  private readonly layouts = memo((plan: Plan, width: number): NetworkLayout => {
    const nodes = this.nodes(plan), known = this.tensors(plan);
    const size = (node: number) =>
      Math.max(0, ...nodes[node].out.map((name) => known.get(name)?.elements ?? 0));
    return layoutNetwork(nodes, { width, elements: size });
  });

  private layout(width: number): NetworkLayout | null {
    const plan = this.focus.plan;
    return plan?.detail ? this.layouts(plan, width) : null;
  }

  height = (width: number): number => top + (this.layout(width)?.height ?? 60);

  // The first step, every promotion, the end: what there is to see.
  private stops(): number[] {
    const run = this.focus.run;
    if (!run) return [];
    return [...new Set([0, ...run.promotions.step, run.steps])].sort((a, b) => a - b);
  }

  controls = (): HTMLElement[] => {
    const { focus } = this;
    return [
      focus.follow(slider("network-step", "Step",
        () => ({ min: 0, max: Math.max(0, focus.run?.steps ?? 0), step: 1 }),
        () => focus.step, (step) => focus.store.selectStep(step),
        (step) => `${exact(step)}, ${this.promotedText(step)}`)),
      focus.follow(player("network-play", () => this.stops(), () => focus.step,
        (step) => focus.store.selectStep(step))),
    ];
  };

  private promotedText(step: number): string {
    const all = this.focus.run?.promotions.step ?? [];
    return `${all.filter((s) => s <= step).length} of ${all.length} promoted`;
  }

  private format(tensor: string): string {
    return this.focus.replay?.after(tensor, this.focus.step) ?? "";
  }

  // The largest output and the largest parameter of a node are what it is drawn by.
  private largest(plan: Plan, names: string[]): Tensor | undefined {
    const known = this.tensors(plan);
    let best: Tensor | undefined;
    for (const name of names) {
      const tensor = known.get(name);
      if (tensor && (!best || tensor.elements > best.elements)) best = tensor;
    }
    return best;
  }

  draw(scene: Scene, theme: Theme): void {
    const plan = this.focus.plan, layout = this.layout(scene.width);
    if (!plan?.detail || !layout) return;
    const nodes = this.nodes(plan);
    this.blocks(scene, theme, layout);
    for (const edge of layout.edges) {
      const points = edge.points.map((p, i) => (i % 2 ? p + top : p));
      scene.line(points, { stroke: theme.muted, width: 1, alpha: 0.6 });
    }
    const weights = nodes.map((node) => this.largest(plan, node.weights)?.elements ?? 0);
    const heaviest = Math.max(1, ...weights);
    const used = new Set<string>();
    for (const box of layout.boxes) {
      this.box(scene, theme, plan, layout, box, heaviest, used);
    }
    const entries: LegendEntry[] = sortFormats([...used].filter((f) => f !== ""))
      .map((label) => ({ label, colour: formatColour(label, theme.dark) }));
    if (used.has("")) {
      entries.push({ label: "not counted", colour: theme.background, outline: theme.muted });
    }
    legend(scene, theme, entries, 8, 4, scene.width - 16);
    scene.count(layout.boxes.length + layout.edges.length);
  }

  private blocks(scene: Scene, theme: Theme, layout: NetworkLayout): void {
    for (const label of layout.labels) {
      const y = top + label.y;
      scene.line([label.x, y + 12.5, label.x + label.w, y + 12.5], { stroke: theme.grid });
      scene.text(label.x, y + 10, label.text, {
        size: 11, fill: theme.muted, baseline: "bottom", most: label.w,
      });
    }
  }

  private box(
    scene: Scene, theme: Theme, plan: Plan, layout: NetworkLayout, box: PlacedBox, heaviest: number,
    used: Set<string>,
  ): void {
    const node = this.nodes(plan)[box.node], out = this.largest(plan, node.out);
    const format = out ? this.format(out.name) : "";
    used.add(format);
    const y = top + box.y, chosen = this.focus.tensor;
    const own = [...node.out, ...node.weights, ...node.inside.out];
    const here = chosen !== null && own.some((name) =>
      name === chosen || gradient(name) === chosen);
    const promoted = out !== undefined && format !== out.format;
    scene.rect(box.x, y, box.w, box.h, {
      fill: format ? formatColour(format, theme.dark) : theme.background,
      stroke: here ? theme.text : format ? theme.background : theme.muted, width: here ? 2.5 : 1,
    });
    if (promoted) {
      const r = 3, x = box.x + box.w - 5;
      scene.polygon([x - r, y + 7, x, y + 3, x + r, y + 7],
                    { fill: theme.text, stroke: theme.background });
    }
    this.strip(scene, theme, plan, out, [box.x, y + box.h + stripGap, box.w], used);
    if (here) {
      const h = box.h + stripGap + stripHeight + 8;
      scene.rect(box.x - 4, y - 4, box.w + 8, h, { stroke: theme.accent, width: 2 });
    }
    const middle = box.x + box.w / 2, base = this.lineBelow(layout, box);
    const weight = this.largest(plan, node.weights);
    if (weight) {
      const w = Math.max(5, (layout.cell - 16) * Math.sqrt(weight.elements / heaviest));
      const weightFormat = this.format(weight.name);
      used.add(weightFormat);
      const x = middle - w / 2, bar = base + barTop;
      scene.rect(x, bar, w, barHeight, { fill: formatColour(weightFormat, theme.dark) });
      this.strip(scene, theme, plan, weight, [x, bar + barHeight + stripGap, w], used);
    }
    scene.text(middle, base + opTop, node.op, {
      align: "center", baseline: "top", size: 10, fill: here ? theme.text : theme.muted,
      most: layout.cell - 5, bold: here,
    });
  }

  // Of the gradient of a tensor, which has as many elements.
  private strip(
    scene: Scene, theme: Theme, plan: Plan, of: Tensor | undefined,
    [x, y, w]: [number, number, number], used: Set<string>,
  ): void {
    if (!of || !this.tensors(plan).has(gradient(of.name))) return;
    const format = this.format(gradient(of.name));
    used.add(format);
    scene.rect(x, y, w, stripHeight, { fill: formatColour(format, theme.dark) });
  }

  // Bars and operators stand on a line, however small the box is.
  private lineBelow(_layout: NetworkLayout, box: PlacedBox): number {
    return top + box.y + box.h / 2 + 15;
  }

  private found(layout: NetworkLayout, box: PlacedBox): Hit {
    const plan = this.focus.plan!, node = this.nodes(plan)[box.node];
    const known = this.tensors(plan);
    const line = (name: string) => {
      const tensor = known.get(name);
      if (!tensor) return `${name}: not counted`;
      const now = this.format(name), start = tensor.format;
      const format = now === start ? now : `${now}, ${start} at first`;
      return `${name}: ${format}, ${elements(tensor.elements)}, group ${tensor.group}`;
    };
    const both = (name: string) =>
      (known.has(gradient(name)) ? [line(name), line(gradient(name))] : [line(name)]);
    const out = this.largest(plan, node.out) ?? known.get(node.out[0]);
    const blocks = `layer ${layout.layer[box.node] + 1} of ${Math.max(...layout.layer) + 1}`;
    return {
      lines: [node.name, `${node.op}, ${blocks}, after step ${exact(this.focus.step)}`,
        ...node.out.flatMap(both), ...node.weights.flatMap(both),
        ...(node.inside.nodes.length ? [`with ${node.inside.nodes.join(" and ")}`] : [])],
      run: this.focus.run?.id, tensor: out?.name ?? node.out[0], key: String(box.node),
    };
  }

  hit(x: number, y: number, width: number): Hit | null {
    const layout = this.layout(width);
    if (!layout) return null;
    const box = layout.boxes.find((b) => {
      const middle = b.x + b.w / 2, line = this.lineBelow(layout, b);
      const reach = Math.max(b.w / 2, layout.cell / 2 - 8);
      return Math.abs(x - middle) <= reach && y >= line - 30 && y <= line + 32;
    });
    return box ? this.found(layout, box) : null;
  }

  move(from: Hit | null, key: Arrow, width: number) {
    const layout = this.layout(width);
    if (!layout) return null;
    const spots = layout.boxes.map((box) => (
      { key: String(box.node), x: box.x + box.w / 2, y: top + box.y + box.h / 2, box }));
    const next = nextSpot(spots, from, key);
    return next && { hit: this.found(layout, next.box), x: next.x, y: next.y };
  }

  click(hit: Hit): void {
    this.focus.click(hit);
  }

  table() {
    const plan = this.focus.plan;
    const columns = ["node", "operator", "tensor", "role", "elements", "format", "group", "step"];
    const rows = (plan?.detail?.nodes ?? []).flatMap((node: MapNode) => {
      const known = this.tensors(plan!);
      const row = (name: string, role: string) => {
        const tensor = known.get(name);
        return [node.name, node.op, name, role, tensor?.elements ?? null,
          tensor ? this.format(name) : null, tensor?.group ?? null, this.focus.step];
      };
      const rowsOf = (names: string[], role: string) => names.flatMap((name) => {
        const grad = gradient(name);
        return known.has(grad) ? [row(name, role), row(grad, `gradient of ${role}`)]
          : [row(name, role)];
      });
      return [...rowsOf(node.out, "output"), ...rowsOf(node.weights, "weight")];
    });
    return { columns, rows };
  }

  empty(): string {
    const why = this.focus.noPlan();
    if (why) return why;
    return this.focus.plan!.detail!.nodes.length > 0 ? "" : "The plan has no network.";
  }
}

export function networkPlot(focus: Focus): Plot {
  return new NetworkPlot(focus);
}
