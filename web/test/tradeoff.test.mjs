// Memory against quality by every measure, and curves by every metric: what the page shows equals
// the files, and moves with them alone.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  begin, cell, changedLoss, changedMetrics, choose, end, lessPlanned, morePeak, moves, names, pages,
  roots,
} from "./changed.mjs";
import { near, same } from "./compare.mjs";
import { hover, marks, runs, save, see, settled } from "./page.mjs";
import { metrics, settings, stepsBefore, sum, summaries, summary } from "./raw.mjs";

before(begin("asMade", "measured", "judged", "otherwise"));
after(end);

const configuration = (run) => run.replace(/-seed\d+$/, "");
const base = ["group", "run", "seed", "state"];

// Rows of the two plots with a dot for each configuration. x, y: of a summary. `front`: which
// configurations no other beats.
async function scatter(rows, root, columns, x, y, front = () => []) {
  const all = (await summaries(root, names)).filter((s) => x(s) !== null && y(s) !== null);
  const rowOf = new Map(rows.slice(1).map((r) => [r[1], r]));
  assert.deepEqual([...rowOf.keys()].sort(), all.map((s) => s.run));
  const best = front(all);
  const wanted = [...base, ...columns, "group on the front"];
  same([rows[0], ...all.map((s) => rowOf.get(s.run))], wanted, all.map((s) => {
    const on = best.includes(configuration(s.run)) ? "yes" : "no";
    return [rowOf.get(s.run)[0], s.run, s.seed, s.state, x(s), y(s), on];
  }));
}

// Configurations that are done and have none beside them that is as good in both directions, and
// better in one of them: means over seeds. `less`: what is better if it is less.
const value = (cell) => (typeof cell === "number" ? cell : cell.value);
const paretoFront = (x, y) => (all) => {
  const groups = [...new Set(all.map((s) => configuration(s.run)))].map((name) => {
    const of = all.filter((s) => configuration(s.run) === name);
    const mean = (m) => (m.less ? -1 : 1) * sum(of.map((s) => value(m.of(s)))) / of.length;
    return { name, done: of.every((s) => s.state === "done"), x: mean(x), y: mean(y) };
  }).filter((g) => g.done);
  const beats = (a, b) => a.x >= b.x && a.y >= b.y && (a.x > b.x || a.y > b.y);
  return groups.filter((g) => !groups.some((other) => beats(other, g))).map((g) => g.name).sort();
};

const less = true;
const memory = {
  aggregate: { name: "aggregate at the start", of: (s) => s.aggregate, less },
  aggregateEnd: { name: "aggregate at the end", of: (s) => s.aggregateEnd, less },
  peak: { name: "peak", of: (s) => s.peak, less },
  planned: { name: "planned peak", of: (s) => s.plannedPeak, less },
  low: { name: "elements stored low", of: (s) => near(s.lowMean) },
};
const quality = {
  best: { name: "best acc", of: (s) => s.best },
  bestFp32: { name: "best, computed in fp32 acc", of: (s) => s.bestFp32 },
  last: { name: "last acc", of: (s) => s.last },
  trainLoss: { name: "training loss", of: (s) => s.trainLoss, less },
  testLoss: { name: "test loss", of: (s) => s.testLoss, less },
};

const shown = (axes, metric) => async (tab) => {
  for (const [control, key] of Object.entries(axes)) await choose(tab, control, key, "#tradeoff");
  if (metric) await choose(tab, "metric", metric, "#tradeoff");
};

// Which numbers move, and whether they change what is on the front: only where they do is it seen
// that the front is found anew.
const cases = [
  { axes: { memory: "aggregate", quality: "best" },
    front: "moves", moved: [["half-seed1", "best acc", 0.9375]] },
  // The epoch that is the best now is not the best in fp32.
  { axes: { memory: "aggregateEnd", quality: "bestFp32" },
    front: "stays",
    moved: [["half-seed0", "aggregate at the end"],
            ["half-seed1", "best, computed in fp32 acc", 0.6565]] },
  // What reaches most is dear now, so what takes more than the cheapest and reaches more than that
  // is beaten by none.
  { axes: { memory: "peak", quality: "last" },
    front: "moves", moved: [["all-low-seed1", "peak", morePeak]] },
  { axes: { memory: "planned", quality: "trainLoss" },
    front: "stays",
    moved: [["half-seed0", "planned peak", lessPlanned], ["s2fp8-seed1", "training loss", 0.625]] },
  // More is better in one direction, less in the other.
  { axes: { memory: "low", quality: "testLoss" },
    front: "moves",
    moved: [["half-seed0", "elements stored low"], ["s2fp8-seed0", "test loss", 0.3125]] },
];

for (const { axes, front, moved } of cases) {
  const [x, y] = [memory[axes.memory], quality[axes.quality]];
  const fronts = []; // of the files, as the runs are and with the changed numbers
  test(`${x.name} against ${y.name}`, () => moves("tradeoff", "measured", {
    show: shown(axes),
    keys: 2,
    check: (rows, root) => scatter(rows, root, [x.name, y.name], x.of, y.of, (all) => {
      fronts.push(paretoFront(x, y)(all));
      return fronts.at(-1);
    }),
    moved: (rows) => {
      assert.equal(fronts.length, 2);
      const same = fronts[0].join() === fronts[1].join();
      assert.equal(same ? "stays" : "moves", front, JSON.stringify(fronts));
      const all = rows.slice(1);
      const key = (r) => `${r[0]} ${r[1]}`;
      const [was, is] = fronts.map((best) => (r) =>
        (best.includes(configuration(r[1])) ? "yes" : "no"));
      return [
        ...moved.map(([run, column, to]) => {
          const row = all.find((r) => r[1] === run);
          const from = row[rows[0].indexOf(column)];
          return to === undefined ? cell(key(row), column) : cell(key(row), column, from, to);
        }),
        ...all.filter((r) => was(r) !== is(r))
          .map((r) => cell(key(r), "group on the front", was(r), is(r))),
      ];
    },
  }));
}

// One number of one seed moves both ends of what is said.
test("a dot is at the mean of its seeds and says their range", async () => {
  for (const name of ["asMade", "measured"]) {
    const { tab } = pages[name];
    await shown({ memory: "aggregate", quality: "best" })(tab);
    const seeds = await summaries(roots[name], ["half-seed0", "half-seed1"]);
    const best = seeds.map((s) => s.best).sort((a, b) => a - b);
    const read = (v) => `${Number((100 * v).toPrecision(4))}%`;
    const { text } = await hover(tab, "tradeoff", [`best acc: ${read(sum(best) / 2)}\n`]);
    // The label has the options in which configurations differ.
    const options = settings(join(roots[name], "half-seed0"));
    const label = ["policy", "lo", "promote"].map((o) => options.get(o));
    assert.equal(text.split("\n")[0], `${label[0]}, lo ${label[1]}, promote ${label[2]}`);
    const range = `best acc from ${read(best[0])} to ${read(best[1])}`;
    assert(text.includes(`mean of 2 seeds; ${range}`), text);
  }
});

test("low share at the start and at the end", async () => {
  const { lowLast } = await summary(join(runs, "half-seed0"));
  await moves("lowratio", "measured", {
    keys: 2,
    // All in fp32 says nothing there.
    check: (rows, root) => scatter(rows, root, ["planned", "last epoch"],
      (s) => (s.lowPlanned > 0 ? near(s.lowPlanned) : null), (s) => s.lowLast),
    moved: (rows) => {
      const [group] = rows.find((r) => r[1] === "half-seed0");
      return [cell(`${group} half-seed0`, "last epoch", lowLast, 0.375)];
    },
  });
});

// Runs whose tasks measure a second metric. It has no direction: there is no front.
const both = names.filter((name) => /^(half|fp32)-/.test(name));
const epochs = (root, name) => metrics(join(root, name)).epoch;
const fp32 = (e) => e.test_auc_fp32 ?? e.test_auc;
const bestEpoch = (of) => of.reduce((a, b) => (b.test_acc > a.test_acc ? b : a));

for (const [key, name, of, to] of [
  ["best", "best auc", (all) => bestEpoch(all).test_auc, changedMetrics.test_auc],
  ["bestFp32", "best, computed in fp32 auc", (all) => fp32(bestEpoch(all)),
   changedMetrics.test_auc_fp32],
  ["last", "last auc", (all) => all.at(-1).test_auc, changedMetrics.test_auc],
]) {
  test(`another metric: ${name}`, () => moves("tradeoff", "otherwise", {
    from: "judged",
    show: shown({ memory: "aggregate", quality: key }, "auc"),
    keys: 2,
    check: (rows, root) => {
      const auc = (s) => (both.includes(s.run) ? of(epochs(root, s.run)) : null);
      return scatter(rows, root, [memory.aggregate.name, name], (s) => s.aggregate, auc);
    },
    moved: (rows) => {
      const row = rows.find((r) => r[1] === "half-seed0");
      return [cell(`${row[0]} half-seed0`, name, row[5], to)];
    },
  }));
}

const controlOf = (plot) => `#${plot} .control:has(select[data-control=metric])`;

test("the front is there for metrics that have a direction", async () => {
  const { tab } = pages.judged;
  const texts = async () => (await save(tab, "tradeoff", "SVG")).bytes.toString();
  for (const [metric, there] of [["acc", true], ["auc", false]]) {
    await shown({ quality: "best" }, metric)(tab);
    assert.equal((await texts()).includes("Pareto front"), there, metric);
  }
  await shown({}, "acc")(tab);
});

test("the metric can be chosen where there is a choice", async () => {
  const offered = async (tab, plot) => {
    await see(tab, plot);
    if (!await tab.isVisible(controlOf(plot))) return null;
    return tab.$$eval(`${controlOf(plot)} option`, (all) => all.map((o) => o.value));
  };
  const { tab } = pages.judged;
  for (const [key, wanted] of [["best", ["acc", "auc"]], ["testLoss", null],
                               ["last", ["acc", "auc"]], ["trainLoss", null]]) {
    await shown({ quality: key })(tab);
    assert.deepEqual(await offered(tab, "tradeoff"), wanted, key);
  }
  for (const [key, wanted] of [["loss", null], ["test", ["acc", "auc"]], ["lr", null]]) {
    await choose(tab, "series", key, "#curves");
    assert.deepEqual(await offered(tab, "curves"), wanted, key);
  }
  await choose(tab, "series", "loss", "#curves");
  // One metric is none.
  for (const plot of ["tradeoff", "curves", "curves-metric"]) {
    assert.equal(await offered(pages.asMade.tab, plot), null, plot);
  }
});

test("the loss is that of all runs, whatever metric was shown", () => moves("tradeoff", "otherwise", {
  from: "judged",
  show: async (tab) => {
    await shown({ quality: "best" }, "auc")(tab);
    await shown({ quality: "testLoss" })(tab);
  },
  keys: 2,
  check: (rows, root) => scatter(rows, root, [memory.aggregate.name, "test loss"],
    memory.aggregate.of, quality.testLoss.of, paretoFront(memory.aggregate, quality.testLoss)),
  moved: (rows) => {
    const [group, , , , , was] = rows.find((r) => r[1] === "fp32-seed1");
    // It reaches most, and is on the front for it.
    return [cell(`${group} fp32-seed1`, "test loss", was, changedLoss),
            ...["fp32-seed0", "fp32-seed1"].map((run) =>
              cell(`${group} ${run}`, "group on the front", "no", "yes"))];
  },
}));

for (const [series, column, of, to] of [
  ["test", "test auc", (e) => e.test_auc, changedMetrics.test_auc],
  ["testFp32", "test auc, computed in fp32", fp32, changedMetrics.test_auc_fp32],
  ["train", "training auc", (e) => e.train_auc, changedMetrics.train_auc],
]) {
  test(`curves of another metric: ${column}`, () => moves("curves-metric", "otherwise", {
    from: "judged",
    show: async (tab) => {
      await choose(tab, "series", series, "#curves-metric");
      await choose(tab, "metric", "auc", "#curves-metric");
    },
    keys: 2,
    check: (rows, root) => same(rows, ["run", "step", column], both.flatMap((name) =>
      epochs(root, name).map((e) => [name, stepsBefore(join(root, name), e.epoch), of(e)]))),
    moved: (rows) => {
      const row = rows.filter((r) => r[0] === "half-seed0").at(-1);
      return [cell(`half-seed0 ${row[1]}`, column, row[2], to)];
    },
  }));
}

test("what leads to no data leads back", async () => {
  const { tab } = pages.asMade;
  const series = "#curves select[data-control=series]";
  // A run that has never cancelled an update has no line of that.
  const without = names.find((name) =>
    metrics(join(runs, name)).step.every((s) => s.cancelled === 0));
  assert(without !== undefined, "every run has cancelled an update");
  await tab.$eval(`#runs tr[data-run="${without}"] td`, (cell) => cell.click());
  await settled(tab);
  await see(tab, "curves");
  await choose(tab, "series", "cancelled", "#curves");
  assert.notEqual(await tab.textContent("#curves.without-data > .nothing"), "");
  assert(await tab.isVisible(series));
  assert(!await tab.isVisible("#curves .buttons"), "there is nothing to save");
  await choose(tab, "series", "loss", "#curves");
  assert.equal(await tab.$("#curves.without-data"), null);
  assert(await marks(tab, "curves") > 0);
  assert.deepEqual(pages.asMade.wrong, []);
});
