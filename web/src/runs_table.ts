// The table of runs. Only the rows in view are in the page, so a thousand runs cost as much as
// twenty.
import { bits, bytes, duration, exact, percent } from "./axis";
import { button, el, type Table } from "./dom";
import type { Panel } from "./frame";
import { metricText } from "./plots/metric";
import type { Run, Store } from "./state";
import { theme } from "./theme";

const rowHeight = 30; // as in style.css

interface Column {
  name: string;
  title: string;
  text: (r: Run) => string;
  sort: (r: Run) => string | number | null;
  number?: boolean;
}

// How far a run is, between 0 and 1; null: not known.
function progress(r: Run): number | null {
  if (r.totalSteps > 0) return Math.min(1, r.steps / r.totalSteps);
  if (r.totalEpochs > 0 && r.epochs.epoch.length > 0) {
    return Math.min(1, (r.epochs.epoch[r.epochs.epoch.length - 1] as number) / r.totalEpochs);
  }
  return null;
}

// Where the loss is no number, neither is what the network says: its accuracy of 0% is no value.
function lastValue(run: Run): number | null {
  const loss = run.epochs.testLoss.at(-1) ?? 0; // what has none says nothing against its value
  return Number.isFinite(loss) ? run.summary.last : NaN;
}

const columns: readonly Column[] = [
  { name: "run", title: "the run's folder", text: (r) => r.id, sort: (r) => r.id },
  { name: "state", title: "running, stopped, done, diverged, failed or empty",
    text: (r) => r.state, sort: (r) => r.state },
  { name: "progress", title: "steps completed", number: true, sort: progress,
    text: (r) => {
      const share = progress(r);
      return share === null ? `${exact(r.steps)} steps` : percent(Math.floor(share * 1000) / 1000);
    } },
  { name: "best", title: "test value of the metric in the best epoch", number: true,
    text: (r) => metricText(r.metric, r.summary.best) +
      (r.summary.best === null ? "" : ` ${r.metric}`),
    sort: (r) => r.summary.best },
  { name: "last", title: "test value of the metric in the last epoch", number: true,
    text: (r) => metricText(r.metric, lastValue(r)), sort: lastValue },
  { name: "aggregate", title: "all tensors of a step at the start", number: true,
    text: (r) => bits(r.summary.aggregateBits), sort: (r) => r.summary.aggregateBits },
  { name: "peak", title: "what the run really took", number: true,
    text: (r) => bytes(r.summary.peakBytes), sort: (r) => r.summary.peakBytes },
  { name: "low", title: "elements stored low, as planned", number: true,
    text: (r) => percent(r.summary.lowPlanned), sort: (r) => r.summary.lowPlanned },
  { name: "promotions", title: "tensors that got a wider format", number: true,
    text: (r) => exact(r.summary.promotions), sort: (r) => r.summary.promotions },
  { name: "skipped", title: "steps without an update", number: true,
    text: (r) => exact(r.summary.skipped), sort: (r) => r.summary.skipped },
  { name: "time", title: "", number: true, text: (r) => duration(r.summary.seconds),
    sort: (r) => r.summary.seconds },
];

export class RunsTable implements Panel {
  readonly id = "runs";
  readonly title = "Runs";
  readonly about = "Click or Enter selects a run in all plots; with Ctrl or Shift, one more. The " +
    "arrow keys go through the rows. The colour is that of the configuration: its runs differ in " +
    "the seed only.";
  readonly element = el("div");
  private readonly status = el("p", { class: "status", attributes: { role: "status" } });
  private readonly box = el("div", {
    class: "scroll rows",
    attributes: {
      tabindex: "0", role: "grid", "aria-label": "Runs", "aria-multiselectable": "true",
    },
  });
  private readonly body = el("tbody");
  private readonly heads: HTMLElement[] = [];
  private readonly clear = button("Clear selection", "Select no run, tensor or step", () => {
    this.store.select([]);
    this.store.selectTensor(null);
    this.store.selectStep(null);
  });
  private readonly notes = el("ul", { class: "notes" });
  private sortBy: Column | null = null; // null: in the document's order
  private descending = false;
  private rows: Run[] = [];
  private active = 0;
  private all = false; // on paper

  constructor(private readonly store: Store) {
    const head = el("tr", { attributes: { role: "row" } });
    for (const c of columns) {
      const th = el("th", {
        class: c.number ? "number" : "", attributes: { scope: "col", role: "columnheader" },
      }, button(c.name, c.title || `Sort by ${c.name}`, () => this.sort(c)));
      this.heads.push(th);
      head.append(th);
    }
    this.box.append(el("table", {}, el("thead", {}, head), this.body));
    this.element.append(el("div", { class: "bar" }, this.status, this.clear), this.box, this.notes);
    this.box.addEventListener("scroll", () => this.render());
    this.box.addEventListener("keydown", (e) => this.key(e));
    this.body.addEventListener("click", (e) => {
      const row = (e.target as Element).closest("tr[data-row]");
      const more = e.ctrlKey || e.metaKey || e.shiftKey;
      if (row) this.pick(Number(row.getAttribute("data-row")), more);
    });
    new ResizeObserver(() => this.render()).observe(this.box);
  }

  empty(): string {
    if (this.store.doc.runs.length === 0) return "There are no runs.";
    return this.store.runs().length ? "" : "No run passes the filter.";
  }

  refresh(): void {
    const { store } = this;
    const chosen = store.runs().filter((r) => store.selected.has(r.id)).length;
    const all = store.doc.runs.length;
    const shown = store.runs().length;
    this.status.textContent = (shown === all ? `${all} runs` : `${shown} of ${all} runs`) +
      (chosen ? `, ${chosen} selected` : "");
    this.clear.hidden =
      store.selected.size === 0 && store.tensor === null && store.step === null;
    this.rows = [...store.runs()];
    const by = this.sortBy;
    if (by) {
      const sign = this.descending ? -1 : 1;
      // Runs without a value stand last, whichever way.
      const missing = (v: string | number | null): boolean => v === null || Number.isNaN(v);
      this.rows.sort((p, q) => {
        const [a, b] = [by.sort(p), by.sort(q)];
        if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
        return sign * (typeof a === "string" ? a.localeCompare(String(b), "en", { numeric: true })
          : (a as number) - (b as number));
      });
    }
    columns.forEach((c, i) => {
      const order = c !== by ? "none" : this.descending ? "descending" : "ascending";
      this.heads[i]?.setAttribute("aria-sort", order);
    });
    this.active = Math.min(this.active, Math.max(0, this.rows.length - 1));
    this.box.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.render();
    this.showNotes();
  }

  // What is odd about the selected runs.
  private showNotes(): void {
    const runs = this.store.selected.size ? this.store.chosen() : [];
    this.notes.replaceChildren(...runs.slice(0, 10).flatMap((r) =>
      r.notes.slice(0, 20).map((n) => el("li", { text: `${r.id}: ${n}` }))));
  }

  // The rows in view, between two rows as high as those left out.
  private render(): void {
    const total = this.rows.length;
    let first = 0;
    let last = total;
    if (!this.all && total > 60) {
      first = Math.max(0, Math.floor(this.box.scrollTop / rowHeight) - 10);
      last = Math.min(total, first + Math.ceil(this.box.clientHeight / rowHeight) + 20);
    }
    const space = (rows: number): HTMLElement | null => {
      if (rows <= 0) return null;
      const cell = el("td", { attributes: { colspan: String(columns.length) } });
      cell.style.height = `${rows * rowHeight}px`;
      return el("tr", { class: "space", attributes: { "aria-hidden": "true" } }, cell);
    };
    const rows = this.rows.slice(first, last).map((r, i) => this.row(r, first + i));
    const parts = [space(first), ...rows, space(total - last)];
    this.body.replaceChildren(...parts.filter((p): p is HTMLElement => p !== null));
    this.box.setAttribute("aria-activedescendant", `run-row-${this.active}`);
  }

  private row(run: Run, index: number): HTMLElement {
    const chosen = this.store.selected.has(run.id);
    const row = el("tr", {
      class: `${index === this.active ? "active" : ""} ${run.state}`,
      attributes: {
        id: `run-row-${index}`, role: "row", "aria-selected": String(chosen),
        "aria-rowindex": String(index + 2), "data-row": String(index), "data-run": run.id,
      },
    });
    columns.forEach((c, i) => {
      const text = c.text(run);
      const cell = el("td", { class: c.number ? "number" : "", attributes: { role: "gridcell" } });
      if (i === 0) {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = this.store.colour(run.group, theme());
        cell.title = [run.id, `group: ${run.label || run.group}`, ...run.notes].join("\n");
        cell.append(swatch, run.notes.length ? `${text} (!)` : text);
      } else {
        cell.textContent = text;
      }
      row.append(cell);
    });
    return row;
  }

  private sort(column: Column): void {
    if (this.sortBy !== column) {
      this.sortBy = column;
      this.descending = column.number ?? false;
    } else if (this.descending === (column.number ?? false)) {
      this.descending = !this.descending;
    } else {
      this.sortBy = null;
    }
    this.refresh();
  }

  private pick(index: number, more: boolean): void {
    const run = this.rows[index];
    if (!run) return;
    this.active = index;
    const { selected } = this.store;
    if (more) this.store.toggle(run.id);
    else this.store.select(selected.size === 1 && selected.has(run.id) ? [] : [run.id]);
  }

  private key(e: KeyboardEvent): void {
    if (e.target !== this.box) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / rowHeight) - 2);
    const moves: Record<string, number> = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    };
    const by = moves[e.key];
    if (by !== undefined) {
      e.preventDefault();
      this.active = Math.max(0, Math.min(this.rows.length - 1, this.active + by));
      const top = this.active * rowHeight;
      const view = this.box.clientHeight - 2 * rowHeight;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      if (top > this.box.scrollTop + view) this.box.scrollTop = top - view;
      this.render();
    } else if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      this.pick(this.active, e.ctrlKey || e.metaKey || e.shiftKey);
    } else if (e.key === "Escape") {
      this.box.blur();
    }
  }

  showAll(all: boolean): void {
    this.all = all;
    this.render();
  }

  table(): Table {
    return {
      columns: [
        "run", "group", "seed", "state", "steps", "total steps", "metric", "best", "best in fp32",
        "last", "training loss", "aggregate bits", "aggregate bits at the end", "peak bytes",
        "planned peak bytes", "low planned", "low last", "low mean", "promotions", "skipped",
        "seconds",
      ],
      rows: this.rows.map((r) => {
        const s = r.summary;
        return [r.id, r.label, r.seed, r.state, r.steps, r.totalSteps, r.metric, s.best, s.bestFp32,
                s.last, s.trainLoss, s.aggregateBits, s.aggregateBitsEnd, s.peakBytes,
                s.plannedPeakBytes, s.lowPlanned, s.lowLast, s.lowMean, s.promotions, s.skipped,
                s.seconds];
      }),
    };
  }
}
