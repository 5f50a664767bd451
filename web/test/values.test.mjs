// Numbers in the page equal those in the files. Each plot's test compares what it saves with the
// files, then with a copy in which one number is another: that one moves, and nothing else.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  begin, cell, choose, compare, end, free, lessPlanned, morePeak, moves, names, pages, roots, still,
} from "./changed.mjs";
import { near, same } from "./compare.mjs";
import { readLines } from "./files.mjs";
import { run, runs, table, ulp } from "./page.mjs";
import {
  leastSquares, metrics, number, plan, settings, smoothed, stepsBefore, sum, summaries,
} from "./raw.mjs";

before(begin("asMade", "measured", "planned"));
after(end);

test("runs", async () => {
  const { tab } = pages.asMade;
  const labels = new Map((await table(tab, "runs")).slice(1).map((r) => [r[0], r[1]]));
  assert.equal(new Set(labels.values()).size, 6, "configurations");
  const [half0, half1, low1, s2fp8] =
    await summaries(runs, ["half-seed0", "half-seed1", "all-low-seed1", "s2fp8-seed1"]);
  await moves("runs", "measured", {
    keys: 1,
    check: async (rows, root) => {
      const columns = [
        "run", "group", "seed", "state", "steps", "total steps", "metric", "best", "best in fp32",
        "last", "training loss", "aggregate bits", "aggregate bits at the end", "peak bytes",
        "planned peak bytes", "low planned", "low last", "low mean", "promotions", "skipped",
        "seconds",
      ];
      same(rows, columns, (await summaries(root, names)).map((s) => [
        s.run, labels.get(s.run), s.seed, s.state, s.steps, s.totalSteps, "acc", s.best, s.bestFp32,
        s.last, s.trainLoss, s.aggregate, s.aggregateEnd, s.peak, s.plannedPeak, near(s.lowPlanned),
        s.lowLast, near(s.lowMean), s.promotions, s.skipped, near(s.seconds),
      ]));
    },
    moved: () => [
      cell("half-seed0", "low last", half0.lowLast, 0.375), cell("half-seed0", "low mean"),
      cell("half-seed0", "aggregate bits at the end"),
      cell("half-seed0", "planned peak bytes", half0.plannedPeak, lessPlanned),
      cell("half-seed1", "best", half1.best, 0.9375), cell("half-seed1", "best in fp32"),
      cell("all-low-seed1", "peak bytes", low1.peak, morePeak),
      cell("s2fp8-seed1", "training loss", s2fp8.trainLoss, 0.625),
    ],
  });
});

function sameCurves(rows, root, of) {
  const columns = ["run", "step", "training loss", "smoothed by 0.8", "lowest", "highest"];
  same(rows, columns, of.flatMap((name) => {
    const { step } = metrics(join(root, name));
    const loss = step.map((s) => number(s.loss));
    const smooth = smoothed(loss, 0.8);
    // A bucket holds one step, so its ends are the step's.
    return step.map((s, i) => {
      const mean = Number.isFinite(loss[i]) ? near(smooth[i]) : loss[i];
      return [name, s.step, loss[i], mean, loss[i], loss[i]];
    });
  }));
}

const lossMoved = () => {
  const was = metrics(join(runs, "half-seed0")).step.find((s) => s.step === 7).loss;
  const later = Array.from({ length: 24 - 7 + 1 }, (_, i) => 7 + i);
  return [
    ...["training loss", "lowest", "highest"].map((c) => cell("half-seed0 7", c, was, 2.5)),
    ...later.map((step) => cell(`half-seed0 ${step}`, "smoothed by 0.8")),
  ];
};

test("curves", () => moves("curves", "measured", {
  keys: 2, check: (rows, root) => sameCurves(rows, root, names), moved: lossMoved,
}));

// Other numbers of a step. A run that has never cancelled an update has no line of that.
for (const [series, key, title, run, at, to] of [
  ["lr", "lr", "learning rate", "all-low-seed1", 5, 0.0078125],
  ["scale", "scale", "loss scale", "all-low-seed1", 6, 4096],
  ["cancelled", "cancelled", "updates that rounding cancelled", "half-seed0", 8, 0.4375],
]) {
  const noisy = series === "cancelled";
  const smooth = "smoothed by 0.8";
  test(`curves: ${title}`, async () => {
    const steps = metrics(join(runs, run)).step;
    await moves("curves", "measured", {
      show: (tab) => choose(tab, "series", series),
      keys: 2,
      check: (rows, root) => {
        const columns = ["run", "step", title, ...(noisy ? [smooth] : [])];
        same(rows, columns, names.flatMap((name) => {
          const { step } = metrics(join(root, name));
          const values = step.map((s) => s[key]);
          if (noisy && !values.some((v) => v > 0)) return [];
          const mean = smoothed(values, 0.8);
          return step.map((s, i) => [name, s.step, values[i], ...(noisy ? [near(mean[i])] : [])]);
        }));
      },
      moved: () => [
        cell(`${run} ${at}`, title, steps.find((s) => s.step === at)[key], to),
        ...(noisy ? steps.filter((s) => s.step >= at) : [])
          .map((s) => cell(`${run} ${s.step}`, smooth)),
      ],
    });
    for (const { tab } of [pages.asMade, pages.measured]) await choose(tab, "series", "loss");
  });
}

test("difference-curves", () => moves("difference-curves", "measured", {
  show: compare("half-seed0", "half-seed1"),
  keys: 2,
  check: (rows, root) => sameCurves(rows, root, ["half-seed0", "half-seed1"]),
  moved: lossMoved,
}));

test("curves-metric", async () => {
  const was = metrics(join(runs, "half-seed1")).epoch[1].test_acc;
  await moves("curves-metric", "measured", {
    keys: 2,
    check: (rows, root) => same(rows, ["run", "step", "test acc"], names.flatMap((name) => {
      const at = join(root, name);
      return metrics(at).epoch.map((e) => [name, stepsBefore(at, e.epoch), e.test_acc]);
    })),
    moved: () => [cell("half-seed1 12", "test acc", was, 0.9375)],
  });
});

// Settings that differ, then numbers.
async function sameDifference(rows, root, pair) {
  const [a, b] = pair.map((n) => settings(join(root, n)));
  // Where they were written differs always.
  const options = [...a.keys()].filter((k) => k !== "out" && a.get(k) !== b.get(k)).sort();
  const [x, y] = await summaries(root, pair);
  const numbers = [
    ["best acc", "best"], ["best acc, computed in fp32", "bestFp32"], ["last acc", "last"],
    ["training loss", "trainLoss"], ["aggregate at the start", "aggregate"],
    ["aggregate at the end", "aggregateEnd"], ["peak", "peak"], ["planned peak", "plannedPeak"],
    ["elements stored low, planned", "lowPlanned"],
    ["elements stored low, last epoch", "lowLast"],
    ["promotions", "promotions"], ["skipped steps", "skipped"], ["steps", "steps"],
    ["time", "seconds"],
  ];
  const computed = (name) => name === "seconds" || name === "lowPlanned";
  same(rows, ["what", ...pair, "second − first"], [
    ...options.map((k) => [k, a.get(k), b.get(k), null]),
    ...numbers.map(([what, k]) => (computed(k)
      ? [what, near(x[k]), near(y[k]), { value: y[k] - x[k], of: "near" }]
      : [what, x[k], y[k], y[k] - x[k]])),
  ]);
}

test("difference", async () => {
  const pair = ["s2fp8-seed0", "s2fp8-seed1"];
  const [, { trainLoss }] = await summaries(runs, pair);
  await moves("difference", "measured", {
    show: compare(...pair),
    keys: 1,
    check: (rows, root) => sameDifference(rows, root, pair),
    moved: () => [cell("training loss", pair[1], trainLoss, 0.625),
                  cell("training loss", "second − first")],
  });
});

test("difference: settings", () => {
  const pair = ["fp32-seed0", "fp32-seed1"];
  return moves("difference", "planned", {
    show: compare(...pair),
    keys: 1,
    check: (rows, root) => sameDifference(rows, root, pair),
    // One that differed is another, and one more differs: its row was not there.
    moved: () => [cell("seed", pair[1], "1", "5"), cell("lr", "")],
  });
});

test("difference-memory", async () => {
  const pair = ["all-low-seed0", "all-low-seed1"];
  const [was, now] = await Promise.all(
    [runs, roots.planned].map(async (root) => (await plan(join(root, pair[0]))).bytes));
  await moves("difference-memory", "planned", {
    show: compare(...pair),
    keys: 2,
    check: async (rows, root) => {
      const plans = await Promise.all(pair.map((n) => plan(join(root, n))));
      // In the order of the stack.
      const uses = ["weights", "optimizer", "activations", "gradients", "workspace", "snapshot"];
      same(rows.map(([bar, ...others]) => [bar.split(":")[0], ...others]), ["bar", "part", "value"],
           pair.flatMap((n, i) => uses.filter((u) => plans[i].bytes[u] > 0)
             .map((u) => [n, u, plans[i].bytes[u]])));
    },
    // A bar's name ends with the peak.
    pick: (rows) => rows.map(([bar, ...others]) => [bar.split(":")[0], ...others]),
    moved: () => ["activations", "gradients", "workspace"].map((use) =>
      cell(`${pair[0]} ${use}`, "value", was[use], now[use])),
  });
});

const benches = (root) => readLines(join(root, "step.json"));

test("speed", () => moves("speed", "measured", {
  keys: 2,
  check: (rows, root) => {
    const name = (k) => `${k.op}: ${k.kernel}`;
    const seconds = (kernels) => sum(kernels.map((k) => k.ms)) / 1e3;
    const all = benches(root).flatMap((b) => b.kernels);
    const names = [...new Set(all.map(name))];
    const time = (n) => seconds(all.filter((k) => name(k) === n));
    const largest = names.sort((a, b) => time(b) - time(a)).slice(0, 8);
    const bars = [...new Set(rows.slice(1).map((r) => r[0]))];
    same(rows, ["bar", "part", "value"], benches(root).flatMap((b, i) => {
      assert(bars[i].includes(`, ${b.policy}, batch ${b.batch}`), bars[i]);
      const part = (n) => b.kernels.filter((k) => name(k) === n);
      const others = b.kernels.filter((k) => !largest.includes(name(k)));
      const parts = largest.filter((n) => part(n).length).map((n) => [n, part(n)]);
      const shown = [...parts, ["all others", others]]
        .map(([n, of]) => [bars[i], n, near(seconds(of))]);
      // A difference of near numbers: their digits that are alike are lost.
      const outside = b.ms / 1e3 - seconds(b.kernels);
      const left = rows.find((r) => r[0] === bars[i] && r[1] === "outside kernels");
      assert.equal(left !== undefined, outside > 0, bars[i]);
      if (!left) return shown;
      assert(Math.abs(Number(left[2]) - outside) < 1e-9 * b.ms, `${left[2]}, not ${outside}`);
      return [...shown, left];
    }));
  },
  // A bar's name ends with the time in kernels.
  pick: (rows) => rows.map(([bar, ...others]) => [bar.replace(/: [^:]*$/, ""), ...others]),
  moved: (rows) => {
    const [bar, part, was] = rows.find((r) => r[1] === "relu: fused");
    // What takes longer leaves less outside.
    return [cell(`${bar} ${part}`, "value", was, 0.03125 / 1e3),
            cell(`${bar} outside kernels`, "value")];
  },
}));

test("speed-aggregate", async () => {
  const was = benches(runs)[2].ms / 1e3;
  await moves("speed-aggregate", "planned", {
    keys: 1,
    check: async (rows, root) => {
      const columns = [
        "file", "model", "policy", "device", "batch", "aggregate bits", "seconds a step",
      ];
      same(rows, columns, await Promise.all(benches(root).map(async (b, i) => {
        const options = ["model", "width", "input", "batch", "policy", "optimizer"]
          .flatMap((o) => [`--${o}`, `${b[o]}`]);
        const made = JSON.parse((await run(ulp, ["plan", ...options, "--json"])).stdout);
        return [`step.json:${i + 1}`, b.model, b.policy, b.device, b.batch, made.aggregate_bits,
                near(b.ms / 1e3)];
      })));
    },
    moved: () => [cell("step.json:3", "seconds a step", was, 1.25 / 1e3)],
  });
});

for (const [id, value, window] of [["leastsquares", "loss", free],
                                   ["leastsquares-cancelled", "cancelled", still]]) {
  test(id, () => moves(id, "measured", {
    keys: 2,
    check: (rows, root) => {
      const all = leastSquares(join(root, "least-squares"));
      assert.equal(all.length, 7 * 25);
      same(rows, ["variant", "step", value], all.map((w) => [w.variant, w.step, w[value]]));
    },
    moved: () => {
      const key = `${window.variant} ${window.step}`;
      const now = leastSquares(join(roots.measured, "least-squares"))
        .find((w) => `${w.variant} ${w.step}` === key);
      return [cell(key, value, window[value], now[value])];
    },
  }));
}
