// All plots drawn outside of a browser, on the scene that makes SVG files.
import assert from "node:assert/strict";
import test from "node:test";
import { makeDetail } from "../../dev/detail_fixture.mjs";
import type { Hit, Plot, Theme } from "../scene";
import { Store } from "../state";
import { SvgScene } from "../svg";
import { Focus } from "./focus";
import { drawnPlots } from "./index";

const theme: Theme = {
  dark: false, text: "#111111", muted: "#555555", grid: "#dddddd", background: "#ffffff",
  panel: "#f6f8fa", accent: "#0b5cad", warn: "#b3261e",
  series: ["#0072b2", "#d55e00", "#00896a", "#b8578f", "#a87900", "#3a95cf", "#6a4fa3", "#5f5f5f"],
};

function page(run: string, change?: (report: ReturnType<typeof makeDetail>) => void) {
  const report = makeDetail();
  change?.(report);
  const store = new Store(report);
  store.focus(run);
  const plots = drawnPlots(new Focus(store));
  return { store, plots, plot: (id: string) => plots.find((plot) => plot.id === id)! };
}

function drawn(plot: Plot, width: number): { svg: string; marks: number; height: number } {
  const height = plot.height(width), scene = new SvgScene(width, height, theme);
  plot.draw(scene, theme);
  return { svg: scene.toString(), marks: scene.marks, height };
}

test("every plot draws at any width, in bounded marks and without holes", () => {
  for (const run of ["resnet18", "mobilenetv2", "resnet8"]) {
    for (const plot of page(run).plots) {
      if (plot.empty?.()) continue;
      for (const width of [320, 400, 1600]) {
        const { svg, marks, height } = drawn(plot, width);
        assert(!svg.includes("NaN") && !svg.includes("Infinity"), `${plot.id} at ${width}`);
        assert(marks > 0 && marks < width * height / 16, `${plot.id}: ${marks} marks`);
        // Names may be cut, numbers never.
        assert.deepEqual(svg.match(/>[−\d.]*…</g), null, `${plot.id} at ${width}`);
      }
    }
  }
});

test("what an arrow key reaches lies under the pointer at its place", () => {
  const { plots } = page("mobilenetv2");
  for (const plot of plots) {
    if (plot.empty?.()) continue;
    const width = 1200, height = plot.height(width);
    let hit: Hit | null = null;
    for (const key of ["down", "right", "right", "down", "right"] as const) {
      const next = plot.move!(hit, key, width, height);
      if (!next) break;
      ({ hit } = next);
      assert(next.hit.lines.length > 0, plot.id);
      const there = plot.hit!(next.x, next.y, width, height);
      assert.equal(there?.tensor, next.hit.tensor, `${plot.id} at ${next.x}, ${next.y}`);
    }
    assert(hit, plot.id);
  }
});

test("a click links the plots by tensor and step", () => {
  const { store, plot } = page("resnet18");
  const before = ["heat", "memory", "network", "overflow"].map((id) => drawn(plot(id), 1200).svg);
  const { hit } = plot("network").move!(null, "right", 1200, 600)!;
  plot("network").click!({ ...hit, tensor: "layer1.0.conv2.out" });
  assert.equal(store.tensor, "layer1.0.conv2.out");
  ["heat", "memory", "network", "overflow"].forEach((id, i) => {
    assert(drawn(plot(id), 1200).svg !== before[i], `${id} shows the chosen tensor`);
  });
  plot("heat").click!({ lines: [], tensor: "conv1.out", step: 40 });
  assert.deepEqual([store.tensor, store.step], ["conv1.out", 40]);
  plot("heat").click!({ lines: [], tensor: "conv1.out", step: 40 });
  assert.equal(store.tensor, null);
});

test("a number that changes is seen to change", () => {
  const find = (table: ReturnType<Plot["table"]>, where: Record<string, unknown>, what: string) => {
    const at = (name: string) => table.columns.indexOf(name);
    const matches = (row: unknown[]) =>
      Object.entries(where).every(([name, value]) => row[at(name)] === value);
    return table.rows.find(matches)?.[at(what)];
  };
  let chosen = "";
  const { plot, store } = page("resnet18", (report) => {
    const run = report.runs[0], heat = run.heat!;
    heat.overflow[heat.tensors.findIndex((t) => t.name === "conv1.out")][3] = 0.625;
    report.plans[0].detail!.blocks.find((b) => b.name === "conv1.out")!.bytes = 12345;
    report.plans[0].tensors.find((t) => t.name === "conv1.out")!.elements = 777;
    const last = run.histograms[run.histograms.length - 1];
    last.counts[-19 - last.lowest] = 4242;
    chosen = last.tensor;
  });
  store.selectTensor(chosen);
  const tensor = "conv1.out";
  assert.equal(find(plot("heat").table(), { tensor, step: 4 }, "overflow"), 0.625);
  assert.equal(plot("overflow").table().rows[0][0], tensor);
  assert.equal(find(plot("memory").table(), { tensor }, "bytes"), 12345);
  assert.equal(find(plot("network").table(), { tensor }, "elements"), 777);
  const exponent = { tensor: chosen, exponent: -19 };
  assert.equal(find(plot("histograms").table(), exponent, "count"), 4242);
});

test("the network's formats follow the step", () => {
  const { store, plot } = page("resnet18");
  const run = store.focusedRun()!, { step, tensor, from, to } = run.promotions;
  const at = (when: number) => {
    store.selectStep(when);
    const { columns, rows } = plot("network").table();
    return rows.find((row) => row[2] === tensor[0])?.[columns.indexOf("format")];
  };
  assert.deepEqual([at(step[0] - 1), at(step[0])], [from[0], to[0]]);
});

test("the network shows gradients beside what they are of, and their promotions", () => {
  const name = "layer1.0.conv2.out", at = 5;
  const shown = (promoted: string[], step: number) => {
    const { store, plot } = page("resnet18", (report) => {
      report.runs[0].promotions = {
        step: promoted.map(() => at), tensor: promoted, from: promoted.map(() => "fp(5,2,0)"),
        to: promoted.map(() => "fp(6,9,0)"), ratio: promoted.map(() => 0.02),
      };
    });
    store.selectStep(step);
    const { columns, rows } = plot("network").table();
    const of = (tensor: string) => rows.find((row) => row[2] === tensor)!;
    const roleAndFormat = (tensor: string) =>
      ["role", "format"].map((column) => of(tensor)[columns.indexOf(column)]);
    const { svg } = drawn(plot("network"), 1200);
    return { output: roleAndFormat(name), grad: roleAndFormat(`${name}.grad`), svg };
  };
  const before = shown([`${name}.grad`], at - 1), after = shown([`${name}.grad`], at);
  assert.deepEqual(before.grad, ["gradient of output", "fp(5,2,0)"]);
  assert.deepEqual(after.grad, ["gradient of output", "fp(6,9,0)"]);
  assert.deepEqual(after.output, before.output);
  // One strip has another colour.
  const fills = (svg: string) => [...svg.matchAll(/<(?:rect|path)[^>]*fill="([^"]+)"/g)].map((m) => m[1]);
  const [a, b] = [fills(before.svg), fills(after.svg)];
  assert.equal(a.length, b.length);
  assert.equal(a.filter((fill, i) => fill !== b[i]).length, 1);
});

test("who has nothing to draw says why, and what would help", () => {
  const { plots } = page("resnet8", (report) => {
    const run = report.runs[2];
    Object.assign(run, { heat: null, histograms: [], shifted: [], plan: -1 });
    run.settings.policy = "fp32";
  });
  for (const plot of plots) assert((plot.empty?.() ?? "").length > 20, plot.id);
  for (const plot of page("none", (report) => { report.runs = []; }).plots) {
    assert(plot.empty!().includes("ulp train"), plot.id);
  }
});
