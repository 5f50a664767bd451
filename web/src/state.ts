// What the page shows and what is selected: one store. Every plot reads it when it draws, so what
// is selected in one plot is highlighted in all.
import type { Num, Plan, Report } from "./data";
import type { Theme } from "./scene";

// T with every Num as a number: NaN and infinities are numbers here. null still: there is none.
export type Decoded<T> = [T] extends [Num]
  ? [Num] extends [T] ? number | null : T
  : T extends (infer U)[]
    ? Decoded<U>[]
    : T extends object ? { [K in keyof T]: Decoded<T[K]> } : T;

export type Doc = Decoded<Report>;
export type Run = Doc["runs"][number];
export type { Plan };

// Runs that differ in nothing but the seed.
export interface Group {
  key: string;
  label: string;
  index: number; // the same as long as the page is open: colours do not change while runs go on
  runs: Run[]; // those that the filter lets through
}

export type Change = "data" | "selection" | "filter" | "tensor" | "step" | "pair";

export class Store {
  doc: Doc;
  readonly selected = new Set<string>(); // ids of runs
  focused: string | null = null; // the run that detail plots show; null: see focusedRun
  tensor: string | null = null;
  step: number | null = null;
  filter = "";
  pair: [string | null, string | null] = [null, null]; // two runs to compare; null: see compared

  private listeners = new Set<(change: Change) => void>();
  private groupIndex = new Map<string, number>();
  private byId = new Map<string, Run>();
  private visible: Run[] = [];
  private visibleGroups: Group[] = [];

  constructor(report: Report) {
    this.doc = decode(report);
    this.indexDoc();
  }

  // `listen` is called after each change. Returns how to stop that.
  subscribe(listen: (change: Change) => void): () => void {
    this.listeners.add(listen);
    return () => this.listeners.delete(listen);
  }

  // A newer document. Selections stay where what they name is still there.
  replace(report: Report): void {
    this.doc = decode(report);
    this.indexDoc();
    for (const id of [...this.selected]) if (!this.byId.has(id)) this.selected.delete(id);
    if (this.focused !== null && !this.byId.has(this.focused)) this.focused = null;
    for (const side of [0, 1] as const) {
      if (!this.byId.has(this.pair[side] ?? "")) this.pair[side] = null;
    }
    this.notify("data");
  }

  run(id: string): Run | undefined {
    return this.byId.get(id);
  }

  // Runs that the filter lets through.
  runs(): readonly Run[] {
    return this.visible;
  }

  groups(): readonly Group[] {
    return this.visibleGroups;
  }

  // The selected runs among them; all of them if none is selected.
  chosen(): readonly Run[] {
    const some = this.visible.filter((r) => this.selected.has(r.id));
    return some.length ? some : this.visible;
  }

  // The run whose tensors and memory are shown: the one that was clicked last, else the first shown
  // that has narrow tensors, else the first.
  focusedRun(): Run | null {
    if (this.focused !== null) return this.byId.get(this.focused) ?? null;
    return this.visible.find((r) => r.heat) ?? this.visible[0] ?? this.doc.runs[0] ?? null;
  }

  planOf(run: Run | null): Doc["plans"][number] | null {
    return run ? this.doc.plans[run.plan] ?? null : null;
  }

  // The two runs that are compared: those chosen for it, else the first two selected. What is left
  // is filled from the table: with a run of another configuration where there is one, if possible
  // in the same state and of the same seed. Two seeds of one configuration differ in nothing that
  // anybody asked about.
  compared(): [Run, Run] | null {
    const selected = this.visible.filter((r) => this.selected.has(r.id));
    const beside = (other: Run | undefined): Run | undefined => {
      if (!other) return selected[0] ?? this.visible[0];
      const apart = this.visible.filter((r) => r.group !== other.group);
      const alike = apart.filter((r) => r.state === other.state);
      return selected.find((r) => r !== other) ?? alike.find((r) => r.seed === other.seed) ??
        alike[0] ?? apart[0] ?? this.visible.find((r) => r !== other);
    };
    const second = this.byId.get(this.pair[1] ?? "");
    const first = this.byId.get(this.pair[0] ?? "") ?? beside(second);
    const other = second ?? beside(first);
    return first && other ? [first, other] : null;
  }

  compare(side: 0 | 1, id: string): void {
    this.pair[side] = id;
    this.notify("pair");
  }

  // Whether the run is drawn at full strength: it is selected, or nothing is.
  strong(run: Run): boolean {
    return this.selected.size === 0 || this.selected.has(run.id);
  }

  // Colours repeat after the last; then dashes tell groups apart.
  colour(group: string, theme: Theme): string {
    const i = this.groupIndex.get(group) ?? 0;
    return theme.series[i % theme.series.length] ?? theme.accent;
  }

  dash(group: string): number[] | undefined {
    return [undefined, [7, 3], [2, 3]][this.shape(group)];
  }

  // Likewise the number of a dot's shape.
  shape(group: string): number {
    return Math.floor((this.groupIndex.get(group) ?? 0) / 8) % 3;
  }

  // Selects exactly these runs; the last of them is focused.
  select(ids: readonly string[]): void {
    this.selected.clear();
    for (const id of ids) if (this.byId.has(id)) this.selected.add(id);
    const last = ids[ids.length - 1];
    this.focused = last !== undefined && this.byId.has(last) ? last : null;
    this.notify("selection");
  }

  toggle(id: string): void {
    if (!this.byId.has(id)) return;
    if (this.selected.delete(id)) {
      if (this.focused === id) this.focused = [...this.selected].pop() ?? null;
    } else {
      this.selected.add(id);
      this.focused = id;
    }
    this.notify("selection");
  }

  focus(id: string): void {
    if (!this.byId.has(id) || this.focused === id) return;
    this.focused = id;
    this.notify("selection");
  }

  selectTensor(name: string | null): void {
    if (this.tensor === name) return;
    this.tensor = name;
    this.notify("tensor");
  }

  selectStep(step: number | null): void {
    if (this.step === step) return;
    this.step = step;
    this.notify("step");
  }

  setFilter(text: string): void {
    if (this.filter === text) return;
    this.filter = text;
    this.indexVisible();
    this.notify("filter");
  }

  private notify(change: Change): void {
    for (const listen of [...this.listeners]) listen(change);
  }

  private indexDoc(): void {
    this.byId.clear();
    for (const run of this.doc.runs) {
      this.byId.set(run.id, run);
      if (!this.groupIndex.has(run.group)) this.groupIndex.set(run.group, this.groupIndex.size);
    }
    this.indexVisible();
  }

  private indexVisible(): void {
    const wanted = terms(this.filter);
    this.visible = this.doc.runs.filter((run) => matches(run, wanted));
    const groups = new Map<string, Group>();
    for (const run of this.visible) {
      let group = groups.get(run.group);
      if (!group) {
        const index = this.groupIndex.get(run.group) ?? 0;
        group = { key: run.group, label: run.label || run.id, index, runs: [] };
        groups.set(run.group, group);
      }
      group.runs.push(run);
    }
    this.visibleGroups = [...groups.values()];
  }
}

function terms(filter: string): string[] {
  return filter.toLowerCase().split(/\s+/).filter((t) => t !== "");
}

// Every term must be found: `text` in the id, the label, the state or a setting's value;
// `name:text` in that setting; `-term` must not be found.
function matches(run: Run, wanted: readonly string[]): boolean {
  return wanted.every((term) =>
    term.length > 1 && term.startsWith("-") ? !found(run, term.slice(1)) : found(run, term));
}

function found(run: Run, term: string): boolean {
  const colon = term.indexOf(":");
  if (colon > 0) {
    const value = setting(run, term.slice(0, colon));
    if (value !== undefined) return value.toLowerCase().includes(term.slice(colon + 1));
  }
  if (run.id.toLowerCase().includes(term) || run.label.toLowerCase().includes(term)) return true;
  if (run.state.includes(term)) return true;
  return Object.values(run.settings).some((v) => v.toLowerCase().includes(term));
}

function setting(run: Run, name: string): string | undefined {
  if (name === "state") return run.state;
  if (name === "seed") return run.seed;
  for (const key of [name, name.replace(/_/g, "-"), name.replace(/-/g, "_")]) {
    if (Object.hasOwn(run.settings, key)) return run.settings[key];
  }
  return undefined;
}

export function decodeNum(value: Num): number | null {
  if (typeof value !== "string") return value;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;
}

// Decodes in place, field by field: elsewhere "nan" may be a name.
function decode(report: Report): Doc {
  const column = (values: Num[] | undefined): void => {
    values?.forEach((v, i) => {
      if (typeof v === "string") values[i] = decodeNum(v) as number;
    });
  };
  const record = (fields: object): void => {
    const all = fields as Record<string, Num>;
    for (const key of Object.keys(all)) {
      if (typeof all[key] === "string") all[key] = decodeNum(all[key] as Num);
    }
  };
  const columns = (fields: object): void => {
    for (const values of Object.values(fields)) if (Array.isArray(values)) column(values);
  };
  for (const run of report.runs) {
    record(run.summary);
    columns(run.epochs);
    for (const other of run.epochs.others) columns(other);
    columns(run.curve);
    column(run.promotions.ratio);
    if (run.heat) {
      for (const table of [run.heat.overflow, run.heat.underflow, run.heat.amax]) {
        table.forEach(column);
      }
      for (const format of Object.values(run.heat.formats)) record(format);
    }
    for (const s of run.shifted) for (const c of [s.mu, s.m, s.alpha, s.beta]) column(c);
  }
  for (const bench of report.benches) bench.aggregateBits = decodeNum(bench.aggregateBits);
  for (const experiment of report.leastSquares) {
    for (const v of experiment.variants) for (const c of [v.loss, v.excess, v.cancelled]) column(c);
  }
  return report as Doc;
}
