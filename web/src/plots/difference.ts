// Two runs beside each other: settings, numbers, memory.
import { bits, bytes, duration, exact, percent } from "../axis";
import type { Axis } from "../axis";
import { refreshControls, select } from "../controls";
import { el } from "../dom";
import type { Panel } from "../frame";
import type { Hit } from "../scene";
import type { Run, Store } from "../state";
import { type Bar, Bars } from "./bars";
import { finite, metricText } from "./metric";

interface Row {
  name: string;
  a: string;
  b: string;
  difference: string;
  cells: (string | number | null)[]; // in the CSV
}

type Number_ = number | null;

// Signed, in the number's own unit, and in percent of the first. Of percent the difference is in
// points: a share of a share would be misread.
function difference(a: Number_, b: Number_, text: (v: Number_) => string): string {
  if (!finite(a) || !finite(b)) return "";
  if (a === b) return "equal";
  const d = b - a;
  const sign = d > 0 ? "+" : "−";
  const size = text(Math.abs(d));
  if (size.endsWith("%")) return `${sign}${size.slice(0, -1)} points`;
  const share = a !== 0 ? ` (${sign}${percent(Math.abs(d / a))})` : "";
  return `${sign}${size}${share}`;
}

function settingRows(a: Run, b: Run): Row[] {
  const names = [...new Set([...Object.keys(a.settings), ...Object.keys(b.settings)])].sort();
  // Where a run was written differs always and says nothing that its name does not.
  const differs = (n: string): boolean => n !== "out" && a.settings[n] !== b.settings[n];
  return names.filter(differs).map((name) => {
    const [x, y] = [a.settings[name] ?? "–", b.settings[name] ?? "–"];
    return { name, a: x, b: y, difference: "", cells: [name, x, y, null] };
  });
}

function numberRows(a: Run, b: Run): Row[] {
  const metric = (run: Run) => (v: Number_): string => metricText(run.metric, v);
  const same = a.metric === b.metric;
  const all: [string, (r: Run) => Number_, (run: Run) => (v: Number_) => string][] = [
    [`best ${same ? a.metric : "metric"}`, (r) => r.summary.best, metric],
    [`best ${same ? a.metric : "metric"}, computed in fp32`, (r) => r.summary.bestFp32, metric],
    [`last ${same ? a.metric : "metric"}`, (r) => r.summary.last, metric],
    ["training loss", (r) => r.summary.trainLoss, () => exact],
    ["aggregate at the start", (r) => r.summary.aggregateBits, () => bits],
    ["aggregate at the end", (r) => r.summary.aggregateBitsEnd, () => bits],
    ["peak", (r) => r.summary.peakBytes, () => bytes],
    ["planned peak", (r) => r.summary.plannedPeakBytes, () => bytes],
    ["elements stored low, planned", (r) => r.summary.lowPlanned, () => percent],
    ["elements stored low, last epoch", (r) => r.summary.lowLast, () => percent],
    ["promotions", (r) => r.summary.promotions, () => exact],
    ["skipped steps", (r) => r.summary.skipped, () => exact],
    ["steps", (r) => r.steps, () => exact],
    ["time", (r) => r.summary.seconds, () => duration],
  ];
  return all.filter(([, value]) => value(a) !== null || value(b) !== null)
    .map(([name, value, text]) => {
      const [x, y] = [value(a), value(b)];
      const comparable = same || text !== metric;
      return {
        name, a: text(a)(x), b: text(b)(y),
        difference: comparable ? difference(x, y, (v) => text(a)(v)) : "",
        cells: [name, x, y, comparable && finite(x) && finite(y) ? y - x : null],
      };
    });
}

export class Difference implements Panel {
  readonly id = "difference";
  readonly title = "Two runs compared";
  readonly about = "Settings that differ and the numbers of both runs: of the first two selected " +
    "ones, unless others are chosen here.";
  readonly element = el("div", { class: "difference" });
  private readonly choice = el("div", { class: "controls" });
  private readonly settings = el("tbody");
  private readonly numbers = el("tbody");
  private readonly heads: HTMLElement[] = [];

  constructor(private readonly store: Store) {
    for (const side of [0, 1] as const) {
      const control = select(
        side === 0 ? "first" : "second", side === 0 ? "First" : "Second",
        () => store.doc.runs.map((r) => ({ value: r.id, text: r.id })),
        () => store.compared()?.[side].id ?? "",
        (id) => store.compare(side, id));
      this.choice.append(control);
    }
    this.element.append(this.choice, this.tableOf("Settings that differ", this.settings, "Setting"),
                        this.tableOf("Numbers", this.numbers, "Number"));
  }

  private tableOf(caption: string, body: HTMLElement, first: string): HTMLElement {
    const heads = [0, 1].map(() => el("th", { attributes: { scope: "col" } }));
    this.heads.push(...heads);
    const last = caption === "Numbers" ? el("th", { text: "Second − first" }) : null;
    return el("div", { class: "scroll" },
      el("table", {}, el("caption", { text: caption }),
         el("thead", {}, el("tr", {}, el("th", { text: first }), ...heads, last)), body));
  }

  empty(): string {
    return this.store.compared() ? "" : "There are no two runs to compare.";
  }

  refresh(): void {
    const pair = this.store.compared();
    if (!pair) return;
    refreshControls(this.choice);
    this.heads.forEach((h, i) => { h.textContent = pair[i % 2 === 0 ? 0 : 1].id; });
    const fill = (body: HTMLElement, rows: Row[], withDifference: boolean): void => {
      body.replaceChildren(...rows.map((r) => el("tr", {},
        el("th", { text: r.name, attributes: { scope: "row" } }), el("td", { text: r.a }),
        el("td", { text: r.b }), withDifference ? el("td", { text: r.difference }) : null)));
    };
    const settings = settingRows(...pair);
    fill(this.settings, settings, false);
    if (!settings.length) {
      this.settings.append(el("tr", {},
        el("td", { text: "All settings are equal.", attributes: { colspan: "3" } })));
    }
    fill(this.numbers, numberRows(...pair), true);
  }

  table(): { columns: string[]; rows: (string | number | null)[][] } {
    const pair = this.store.compared();
    if (!pair) return { columns: ["what", "first", "second", "second − first"], rows: [] };
    return {
      columns: ["what", pair[0].id, pair[1].id, "second − first"],
      rows: [...settingRows(...pair), ...numberRows(...pair)].map((r) => r.cells),
    };
  }
}

const uses = ["weights", "optimizer", "activations", "gradients", "workspace", "snapshot"] as const;

export class DifferenceMemory extends Bars {
  readonly id = "difference-memory";
  readonly title = "Memory of both at the peak of a step";
  readonly about = "What the planned peak is made of, before the first step.";

  constructor(private readonly store: Store) {
    super();
  }

  private planned(): Run[] {
    return (this.store.compared() ?? []).filter((r) => this.store.planOf(r));
  }

  protected bars(): Bar[] {
    return this.planned().map((run, i) => {
      const plan = this.store.planOf(run)!;
      return {
        key: `${i} ${run.id}`,
        label: `${run.id}: ${bytes(plan.peakBytes)}`,
        run: run.id,
        strong: true,
        parts: uses.filter((u) => plan.use[u] > 0).map((u) => ({
          name: u, value: plan.use[u],
          lines: [`${u}: ${bytes(plan.use[u])}`, `${exact(plan.use[u])} bytes`],
        })),
      };
    });
  }

  protected parts(): { name: string; colour: number }[] {
    return uses.map((name, colour) => ({ name, colour }));
  }

  protected axis(): Omit<Axis, "scale"> {
    return { label: "memory at the peak", bytes: 1 };
  }

  empty(): string {
    return this.planned().length ? "" : "Neither of the two runs could be planned.";
  }

  click(hit: Hit): void {
    if (hit.run !== undefined) this.store.focus(hit.run);
  }
}
