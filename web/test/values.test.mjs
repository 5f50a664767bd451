// Numbers in the page equal those in the files. Each plot's test compares what it saves with the
// files, then with a copy in which one number is another: that one moves, and nothing else.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  atStep, begin, cell, choose, compare, end, focus, free, moves, names, overflown, pages, promotion,
  roots, still,
} from "./changed.mjs";
import { near, same, single } from "./compare.mjs";
import { readLines, readRanges } from "./files.mjs";
import { run, runs, table, ulp } from "./page.mjs";
import {
  bitsOf, formatsDuring, leastSquares, metrics, number, plan, settings, smoothed, stepsBefore, sum,
  summary,
} from "./raw.mjs";

before(begin);
after(end);

const summaries = (root, of = names) => Promise.all(of.map((n) => summary(join(root, n))));

test("runs", async () => {
  const { tab } = pages.asMade;
  const labels = new Map((await table(tab, "runs")).slice(1).map((r) => [r[0], r[1]]));
  assert.equal(new Set(labels.values()).size, 6, "configurations");
  const [half0, half1, s2fp8] =
    await summaries(runs, ["half-seed0", "half-seed1", "s2fp8-seed1"]);
  await moves("runs", "measured", {
    keys: 1,
    check: async (rows, root) => {
      const columns = [
        "run", "group", "seed", "state", "steps", "total steps", "metric", "best", "best in fp32",
        "last", "training loss", "aggregate bits", "aggregate bits at the end", "peak bytes",
        "planned peak bytes", "low planned", "low last", "low mean", "promotions", "skipped",
        "seconds",
      ];
      same(rows, columns, (await summaries(root)).map((s) => [
        s.run, labels.get(s.run), s.seed, s.state, s.steps, s.totalSteps, "acc", s.best, s.bestFp32,
        s.last, s.trainLoss, s.aggregate, s.aggregateEnd, s.peak, s.plannedPeak, near(s.lowPlanned),
        s.lowLast, near(s.lowMean), s.promotions, s.skipped, near(s.seconds),
      ]));
    },
    moved: () => [
      cell("half-seed0", "low last", half0.lowLast, 0.375), cell("half-seed0", "low mean"),
      cell("half-seed1", "best", half1.best, 0.9375), cell("half-seed1", "best in fp32"),
      cell("s2fp8-seed1", "training loss", s2fp8.trainLoss, 0.625),
    ],
  });
});

// Rows of the two plots with a dot for each configuration. `front`: labels of those that no other
// beats.
async function scatter(rows, root, columns, x, y, has, front = () => []) {
  const all = (await summaries(root)).filter((s) => has(s));
  const rowOf = new Map(rows.slice(1).map((r) => [r[1], r]));
  assert.deepEqual([...rowOf.keys()].sort(), all.map((s) => s.run));
  const labels = new Map([...rowOf].map(([run, [label]]) => [run, label]));
  const best = front(all, labels);
  same([rows[0], ...all.map((s) => rowOf.get(s.run))], columns, all.map((s) => {
    const label = labels.get(s.run);
    return [label, s.run, s.seed, s.state, x(s), y(s), best.includes(label) ? "yes" : "no"];
  }));
}

// Configurations that are done and have none beside them that takes as little and reaches as much,
// and does better in one of the two: means over seeds.
function paretoFront(all, labels) {
  const groups = [...new Set(labels.values())].map((label) => {
    const of = all.filter((s) => labels.get(s.run) === label);
    const mean = (name) => sum(of.map((s) => s[name])) / of.length;
    const done = of.every((s) => s.state === "done");
    return { label, done, bits: mean("aggregate"), best: mean("best") };
  }).filter((g) => g.done);
  const beats = (a, b) => a.bits <= b.bits && a.best >= b.best &&
    (a.bits < b.bits || a.best > b.best);
  return groups.filter((g) => !groups.some((other) => beats(other, g))).map((g) => g.label);
}

test("tradeoff", async () => {
  const { best } = await summary(join(runs, "half-seed1"));
  const columns = [
    "group", "run", "seed", "state", "aggregate at the start", "best acc", "group on the front",
  ];
  await moves("tradeoff", "measured", {
    keys: 2,
    check: (rows, root) => scatter(rows, root, columns, (s) => s.aggregate, (s) => s.best,
                                   (s) => s.aggregate !== null && s.best !== null, paretoFront),
    // The better run takes its configuration to the front.
    moved: (rows) => {
      const [group] = rows.find((r) => r[1] === "half-seed1");
      return [cell(`${group} half-seed1`, "best acc", best, 0.9375),
              ...["half-seed0", "half-seed1"].map((run) =>
                cell(`${group} ${run}`, "group on the front", "no", "yes"))];
    },
  });
});

test("lowratio", async () => {
  const { lowLast } = await summary(join(runs, "half-seed0"));
  await moves("lowratio", "measured", {
    keys: 2,
    check: (rows, root) => scatter(rows, root, [
      "group", "run", "seed", "state", "planned", "last epoch", "group on the front",
    ], (s) => near(s.lowPlanned), (s) => s.lowLast, (s) => s.lowPlanned > 0 && s.lowLast !== null),
    moved: (rows) => {
      const [group] = rows.find((r) => r[1] === "half-seed0");
      return [cell(`${group} half-seed0`, "last epoch", lowLast, 0.375)];
    },
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

const kinds = {
  activation: "activation", activation_grad: "activation gradient", weight: "weight",
  weight_grad: "weight gradient",
};

test("heat", () => moves("heat", "measured", {
  show: async (tab) => {
    await focus("half-seed0")(tab);
    await choose(tab, "heat-measure", "amax");
  },
  keys: 3,
  check: (rows, root) => {
    const at = join(root, "half-seed0");
    const { tensors, records } = readRanges(join(at, "ranges.bin"));
    const during = formatsDuring(at);
    const columns = ["tensor", "kind", "step", "format", "overflow", "underflow", "amax"];
    const all = Object.keys(kinds).flatMap((kind) =>
      tensors.flatMap((t, i) => (t.kind === kind ? [i] : [])));
    assert.equal(all.length, tensors.length);
    same(rows, columns, all.flatMap((i) => records.map((r) => [
      tensors[i].name, kinds[tensors[i].kind], r.step, during(tensors[i].name, r.step),
      single(r.overflow[i]), single(r.underflow[i]), single(r.amax[i]),
    ])));
  },
  moved: (rows) => {
    const was = rows.find((r) => r[0] === "conv1.out" && r[2] === "24")[6];
    return [cell("conv1.out activation 24", "amax", was, 1.625)];
  },
}));

test("overflow", () => moves("overflow", "measured", {
  show: focus("all-low-seed1"),
  keys: 2,
  check: (rows, root) => {
    const at = join(root, "all-low-seed1");
    const { tensors, records } = readRanges(join(at, "ranges.bin"));
    const during = formatsDuring(at);
    const most = tensors.map((_, i) => Math.max(...records.map((r) => r.overflow[i])));
    const worst = tensors.map((_, i) => i).sort((a, b) => most[b] - most[a]).slice(0, 5);
    same(rows, ["tensor", "step", "format", "overflow"], worst.flatMap((i) => records.map((r) =>
      [tensors[i].name, r.step, during(tensors[i].name, r.step), single(r.overflow[i])])));
  },
  moved: (rows) => {
    const { tensor, step, value } = overflown;
    const was = rows.find((r) => r[0] === tensor && r[1] === `${step}`)[3];
    return [cell(`${tensor} ${step}`, "overflow", was, value)];
  },
}));

test("histograms", () => moves("histograms", "measured", {
  show: focus("all-low-seed0"),
  keys: 5,
  check: (rows, root) => {
    const one = readLines(join(root, "all-low-seed0", "histograms.jsonl"))
      .find((l) => l.tensor === "conv1.out" && l.step === 24);
    const all = sum(one.counts) + one.zero + one.infinite + one.nan;
    const counts = [
      ...one.counts.map((c, i) => [one.lowest + i, c]).filter(([, c]) => c > 0),
      ["zero", one.zero], ["infinite", one.infinite], ["nan", one.nan],
    ];
    same(rows, ["tensor", "of", "step", "format", "exponent", "count", "share"],
         counts.map(([e, c]) => ["conv1.out", "x", 24, one.format, e, c, near(c / all)]));
  },
  // More elements in one place are a smaller share everywhere else.
  moved: (rows) => {
    const head = (r) => r.slice(0, 5).join(" ");
    const one = rows.slice(1).filter((r) => /^-?\d+$/.test(r[4]))[3];
    return [
      cell(head(one), "count", Number(one[5]), Number(one[5]) + 1000),
      ...rows.slice(1).filter((r) => r[5] !== "0").map((r) => cell(head(r), "share")),
    ];
  },
}));

test("shifted", () => moves("shifted", "measured", {
  show: focus("s2fp8-seed0"),
  keys: 2,
  check: (rows, root) => {
    const all = readLines(join(root, "s2fp8-seed0", "histograms.jsonl")).filter((l) => "mu" in l);
    const like = [...new Set(all.filter((l) => l.kind === all[0].kind).map((l) => l.tensor))];
    same(rows, ["tensor", "step", "mu", "m", "alpha", "beta"], like.flatMap((tensor) =>
      all.filter((l) => l.tensor === tensor)
        .map((l) => [tensor, l.step, l.mu, l.m, l.alpha, l.beta])));
  },
  moved: (rows) => {
    const was = rows.find((r) => r[0] === "conv1.out" && r[1] === "12")[2];
    return [cell("conv1.out 12", "mu", was, -0.8125)];
  },
}));

test("difference", async () => {
  const pair = ["s2fp8-seed0", "s2fp8-seed1"];
  const [, { trainLoss }] = await summaries(runs, pair);
  await moves("difference", "measured", {
    show: compare(...pair),
    keys: 1,
    check: async (rows, root) => {
      const [a, b] = pair.map((n) => settings(join(root, n)));
      const options = [...a.keys()].filter((k) => a.get(k) !== b.get(k)).sort();
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
    },
    moved: () => [cell("training loss", pair[1], trainLoss, 0.625),
                  cell("training loss", "second − first")],
  });
});

// Rows of the map of the network: outputs and weights of its operators at the chosen step.
async function sameNetwork(rows, root, step) {
  const at = join(root, "all-low-seed0");
  const known = new Map((await plan(at)).tensors.map((t) => [t.name, t]));
  const during = formatsDuring(at);
  assert.deepEqual(rows[0],
    ["node", "operator", "tensor", "role", "elements", "format", "group", "step"]);
  const counted = rows.slice(1).filter((r) => known.has(r[2]));
  for (const [, , name, role, elements, format, group, shown] of counted) {
    const t = known.get(name);
    const wanted = [
      t.kind === "weight" ? "weight" : "output", t.elements, during(name, step + 1) ?? t.format,
      t.group, step,
    ];
    assert.deepEqual([role, elements, format, group, shown], wanted.map(String), name);
  }
  // All that is computed forward and counts is there.
  const wanted = [...known.values()].filter((t) => !t.kind.endsWith("_grad")).map((t) => t.name);
  assert.deepEqual([...new Set(counted.map((r) => r[2]))].sort(), wanted.sort());
  for (const [, , name, , elements, format] of rows.slice(1).filter((r) => !known.has(r[2]))) {
    assert.deepEqual([elements, format], ["", ""], name);
  }
}

test("network", async () => {
  const { step, tensor, from, to } = promotion;
  const key = (rows) => rows.find((r) => r[2] === tensor).slice(0, 3).join(" ");
  // The promotion comes a step later.
  await moves("network", "measured", {
    show: atStep("all-low-seed0", step),
    keys: 3,
    check: (rows, root) => sameNetwork(rows, root, step),
    moved: (rows) => [cell(key(rows), "format", to, from)],
  });
  // Half as many examples: half as many elements in what depends on them. Areas go by their shares.
  await moves("network", "planned", {
    show: atStep("all-low-seed0", 0),
    keys: 3,
    check: (rows, root) => sameNetwork(rows, root, 0),
    picture: false,
    moved: (rows) => rows.slice(1).filter((r) => r[3] === "output" && r[4] !== "").map((r) =>
      cell(r.slice(0, 3).join(" "), "elements", Number(r[4]), Number(r[4]) / 2)),
  });
});

// Bytes of a tensor: they begin at whole multiples of 64.
const bytesOf = (elements, format) => Math.ceil((elements * bitsOf(format)) / 8 / 64) * 64;

test("memory", async () => {
  const { tensors } = await plan(join(runs, "all-low-seed0"));
  const known = new Map(tensors.map((t) => [t.name, t]));
  await moves("memory", "planned", {
    show: focus("all-low-seed0"),
    keys: 1,
    check: async (rows, root) => {
      const now = await plan(join(root, "all-low-seed0"));
      assert.deepEqual(rows[0], ["tensor", "use", "format", "offset", "bytes", "first", "last"]);
      const blocks = rows.slice(1).map(([tensor, use, format, ...numbers]) => {
        const [offset, bytes, first, last] = numbers.map(Number);
        return { tensor, use, format, offset, bytes, first, last };
      });
      const counted = blocks.filter((b) => known.has(b.tensor));
      assert(counted.length > 80, `${counted.length} tensors`);
      for (const { tensor, format, bytes } of counted) {
        const { elements } = now.tensors.find((t) => t.name === tensor);
        assert.equal(bytes, bytesOf(elements, format), tensor);
      }
      // The fullest step has what the plan counts at the peak, but for gaps between work spaces.
      const all = (of) => sum(of.map((b) => b.bytes));
      const steps = Math.max(...blocks.map((b) => b.last)) + 1;
      const during = (step) => blocks.filter((b) => b.first <= step && step <= b.last);
      const full = Array.from({ length: steps }, (_, i) => during(i))
        .reduce((a, b) => (all(b) > all(a) ? b : a));
      for (const use of ["weights", "optimizer", "activations", "gradients"]) {
        assert.equal(all(full.filter((b) => b.use === use)), now.bytes[use], use);
      }
      const state = all(blocks.filter((b) => b.offset < 0));
      assert.equal(state + Math.max(...blocks.map((b) => b.offset + b.bytes)), now.peak_bytes);
    },
    // Half as many examples: what is computed forward takes half as much, weights as before.
    pick: (rows) => rows.filter(([tensor, use]) =>
      tensor === "tensor" || (known.has(tensor) && ["weights", "activations"].includes(use)))
      .map(([tensor, use, format, , bytes]) => [tensor, use, format, bytes]),
    moved: (rows) => rows.slice(1).filter((r) => r[1] === "activations")
      .map(([tensor, , format, bytes]) =>
        cell(tensor, "bytes", Number(bytes), bytesOf(known.get(tensor).elements / 2, format))),
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
      return [...parts, ["all others", others]].map(([n, of]) => [bars[i], n, near(seconds(of))]);
    }));
  },
  moved: (rows) => {
    const [bar, part, was] = rows.find((r) => r[1] === "relu: fused");
    return [cell(`${bar} ${part}`, "value", was, 0.0625 / 1e3)];
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
