// The page: header, navigation, sections.
import "./style.css";
import type { Report } from "./data";
import { refreshControls, select } from "./controls";
import { detailPlots } from "./detail/index";
import { button, el } from "./dom";
import { drawAll, mount, type Section } from "./frame";
import { follow } from "./live";
import { Curves } from "./plots/curves";
import { Difference, DifferenceMemory } from "./plots/difference";
import { LeastSquaresPlot } from "./plots/least_squares";
import { Speed, SpeedAggregate } from "./plots/speed";
import { LowRatio, Tradeoff } from "./plots/tradeoff";
import { RunsTable } from "./runs_table";
import { Store } from "./state";
import { onTheme, setPrinting, theme, toggleTheme } from "./theme";

function read(): Report {
  const report = JSON.parse(document.getElementById("document")?.textContent ?? "") as Report;
  if (report.version !== 1) throw new Error(`its version is ${String(report.version)}, not 1`);
  return report;
}

function sections(store: Store, runs: RunsTable): Section[] {
  const compared = (): ReturnType<Store["runs"]> => store.compared() ?? [];
  return [
    { id: "overview", title: "Overview", items: [runs, new Tradeoff(store), new LowRatio(store)] },
    {
      id: "training", title: "Training", items: [
        new Curves(store, {
          id: "curves", title: "Training curves", series: "loss",
          about: "One line a run; smoothed lines are drawn over the measured ones. Drag to zoom, " +
            "double click for all. A cross marks where a run stopped being finite.",
        }),
        new Curves(store, {
          id: "curves-metric", title: "Quality over training", series: "test",
          about: "The same for what is measured once an epoch. The cursor is shared with the " +
            "curves above.",
        }),
      ],
    },
    {
      id: "detail", title: "One run in detail", head: focusControl(store),
      items: detailPlots(store),
    },
    {
      id: "comparison", title: "Comparison", items: [
        new Difference(store),
        new DifferenceMemory(store),
        new Curves(store, {
          id: "difference-curves", title: "Curves of both", series: "loss", runs: compared,
          about: "The two compared runs, whatever else is selected.",
        }),
      ],
    },
    {
      id: "measurements", title: "Speed and updates", items: [
        new Speed(store), new SpeedAggregate(store),
        new LeastSquaresPlot(store, false), new LeastSquaresPlot(store, true),
      ],
    },
  ];
}

// Which run the detail plots show. A click anywhere changes it too.
function focusControl(store: Store): HTMLElement {
  const host = el("div", { class: "controls" }, select(
    "focus", "Run", () => store.runs().map((r) => ({ value: r.id, text: r.id })),
    () => store.focusedRun()?.id ?? "", (id) => store.focus(id)));
  store.subscribe((change) => {
    if (change !== "tensor" && change !== "step") refreshControls(host);
  });
  return host;
}

// What the whole report has to say; many notes are folded away.
function notes(store: Store): HTMLElement {
  const host = el("div", { class: "report-notes" });
  let shown = "";
  const refresh = (): void => {
    const all = store.doc.notes;
    const key = all.join("\n");
    if (key === shown && host.childElementCount > 0) return;
    shown = key;
    host.hidden = all.length === 0;
    const list = el("ul", { class: "notes" }, ...all.map((n) => el("li", { text: n })));
    const open = host.querySelector("details")?.open ?? false;
    const details = el("details", {}, el("summary", { text: `${all.length} notes` }), list);
    details.open = open;
    host.replaceChildren(all.length > 3 ? details : list);
  };
  refresh();
  store.subscribe((change) => { if (change === "data") refresh(); });
  return host;
}

function header(store: Store, all: readonly Section[]): HTMLElement {
  const title = el("h1");
  const made = el("p", { class: "made" });
  const status = el("span", { class: "live", attributes: { role: "status" } });
  status.hidden = true;
  const refresh = (): void => {
    const { doc } = store;
    title.textContent = doc.title || "Ulp report";
    document.title = `${doc.title || "report"} – Ulp`;
    made.textContent = `Ulp ${doc.ulp}, ${doc.made.replace("T", " ").replace("Z", " UTC")}`;
  };
  refresh();
  store.subscribe((change) => { if (change === "data") refresh(); });

  const filter = el("input", {
    title: "Words that a run must have in its name, label or settings; name:value looks in one " +
      "setting; -word leaves runs out",
    attributes: {
      id: "filter", type: "search", placeholder: "Filter runs: policy:size model:resnet18 -seed:3",
      "aria-label": "Filter runs", autocomplete: "off", spellcheck: "false",
    },
  });
  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => store.setFilter(filter.value.trim()), 120);
  });

  const toggle = button("", "Switch between light and dark", toggleTheme);
  toggle.id = "theme";
  const name = (): void => { toggle.textContent = theme().dark ? "Light" : "Dark"; };
  name();
  onTheme(name);

  follow(store, (text, lost) => {
    status.hidden = false;
    status.textContent = text;
    status.classList.toggle("lost", lost);
  });
  const links = el("nav", { attributes: { "aria-label": "Sections" } },
    ...all.map((s) => el("a", { text: s.title, attributes: { href: `#${s.id}` } })));
  return el("header", { class: "page" },
    el("div", { class: "top" }, el("div", { class: "names" }, title, made), status, filter, toggle),
    links);
}

function start(): void {
  let report: Report;
  try {
    report = read();
  } catch (error) {
    const why = `The document in this page cannot be read: ${(error as Error).message}`;
    document.body.append(el("main", {}, el("p", { class: "nothing", text: why })));
    return;
  }
  const store = new Store(report);
  const runs = new RunsTable(store);
  const all = sections(store, runs);
  const main = el("main", {}, notes(store));
  document.body.append(header(store, all), main);
  for (const s of all) {
    const attributes = { id: s.id, "aria-label": s.title };
    const section = el("section", { class: "group", attributes }, el("h2", { text: s.title }),
                       s.head ?? null);
    const items = el("div", { class: "items" });
    section.append(items);
    main.append(section);
    for (const item of s.items) mount(item, store, items);
  }
  const print = (on: boolean): void => {
    setPrinting(on);
    runs.showAll(on);
    for (const d of document.querySelectorAll("details")) d.open = on || d.open;
    drawAll();
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
}

start();
