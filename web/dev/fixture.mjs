// A made-up document, so that the page can be worked on without training anything. It looks like
// runs of a small network under several policies; nothing in it was measured.
//
//   node dev/fixture.mjs small|big|hostile|empty > dev/out/small.json

function random(seed) {
  let s = seed >>> 0;
  return () => {
    s = (s + 0x6d2b79f5) | 0;
    let t = Math.imul(s ^ (s >>> 15), 1 | s);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const layers = [
  "conv1",
  ...["layer1.0", "layer2.0", "layer3.0"].flatMap((b) => [`${b}.conv1`, `${b}.conv2`]),
  "fc",
];
const sizeOf = (i) => [50176, 50176, 50176, 25088, 25088, 12544, 12544, 10][i] * 64;

function plan(low, high, share, model) {
  const bits = { "fp(4,3,4)": 8, "fp(6,9,0)": 16, fp32: 32, s2fp8: 8, "fp(5,2,0)": 8 };
  const tensors = [];
  const blocks = [];
  const count = layers.length;
  layers.forEach((name, i) => {
    const isLow = i < count * share;
    for (const [suffix, kind, elements] of [
      [".out", "activation", sizeOf(i)],
      [".out.grad", "activation gradient", sizeOf(i)],
      [".weight", "weight", 432 * (i + 1) ** 2],
      [".weight.grad", "weight gradient", 432 * (i + 1) ** 2],
    ]) {
      const format = isLow
        ? kind === "activation gradient" && low !== "fp32"
          ? "fp(5,2,0)"
          : low
        : high;
      tensors.push({
        name: name + suffix,
        op: suffix === ".out" ? "conv2d" : "conv2d_grad",
        kind,
        elements,
        bits: bits[format],
        format,
        group: i,
        low: isLow,
      });
    }
  });
  const find = (name) => tensors.find((t) => t.name === name);
  const steps = [];
  const phases = [
    ["forward", layers.map((l, i) => [l, i])],
    ["backward", layers.map((l, i) => [l, i]).reverse()],
    ["update", layers.map((l, i) => [l, i])],
  ];
  for (const [phase, list] of phases) {
    for (const [l] of list) {
      steps.push({
        node: phase === "forward" ? l : `${l}.${phase}`,
        op: phase === "forward" ? "conv2d" : phase === "backward" ? "conv2d_backward" : "sgd",
        kernel: phase === "update" ? "fused" : "onednn",
        phase,
        more: phase === "forward" ? 1 : 0,
      });
    }
  }
  let below = 0;
  const add = (name, use, format, bytes, first, last, offset) =>
    blocks.push({ name, use, format, offset, bytes, first, last });
  layers.forEach((l) => {
    const w = find(`${l}.weight`);
    for (const [use, name] of [
      ["weights", w.name],
      ["optimizer", `${w.name}.momentum`],
    ]) {
      below -= w.elements * 4;
      add(name, use, "fp32", w.elements * 4, 0, steps.length - 1, below);
    }
  });
  let top = 0;
  layers.forEach((l, i) => {
    const t = find(`${l}.out`);
    const size = (t.elements * t.bits) / 8;
    add(t.name, "activations", t.format, size, i, 2 * count - 1 - i, top);
    const g = find(`${l}.out.grad`);
    const after = top + size;
    add(
      g.name,
      "gradients",
      g.format,
      (g.elements * g.bits) / 8,
      2 * count - 1 - i,
      Math.min(3 * count - 1, 2 * count - i),
      after,
    );
    top = after;
  });
  const arena = Math.max(...blocks.map((b) => b.offset + b.bytes));
  add("workspace", "workspace", "", arena * 0.04, 3, 5, arena);
  const use = { weights: 0, optimizer: 0, activations: 0, gradients: 0, workspace: 0, snapshot: 0 };
  const peakStep = count;
  for (const b of blocks) if (b.first <= peakStep && b.last >= peakStep) use[b.use] += b.bytes;
  return {
    model,
    device: "cpu",
    note: "",
    stateBytes: -below,
    arenaBytes: Math.round(arena * 1.04),
    peakBytes: Math.round(arena * 1.04) - below,
    peakStep,
    aggregateBits: tensors.reduce((s, t) => s + t.elements * t.bits, 0),
    lowRatio:
      tensors.filter((t) => t.low).reduce((s, t) => s + t.elements, 0) /
      tensors.reduce((s, t) => s + t.elements, 0),
    use,
    tensors,
    detail: {
      steps,
      blocks,
      nodes: [
        { name: "input", op: "input", out: ["input.out"], in: [], weights: [] },
        ...layers.map((l, i) => ({
          name: l,
          op: i + 1 === count ? "linear" : "conv2d",
          out: [`${l}.out`],
          in: i > 1 && i % 2 === 0 && i + 1 < count ? [i, i - 1] : [i],
          weights: [`${l}.weight`],
        })),
      ],
    },
  };
}

function run(k, options) {
  const {
    policy,
    planIndex,
    thePlan,
    seed,
    epochs,
    buckets,
    stride,
    state = "done",
    model = "resnet8",
  } = options;
  const rnd = random(k * 7919 + 13);
  const noise = (s) => (rnd() + rnd() + rnd() - 1.5) * s;
  const stepsAll = buckets * stride;
  const share = thePlan.lowRatio;
  const floor = 0.25 + share * 0.12 + noise(0.02);
  const done = state === "running" || state === "stopped" ? 0.6 : 1;
  const n = Math.round(buckets * done);
  const curve = {
    stride,
    step: [],
    loss: [],
    lossLow: [],
    lossHigh: [],
    lr: [],
    scale: [],
    cancelled: policy.startsWith("bf16") ? [] : [],
    skipped: [],
  };
  const diverges = state === "diverged";
  for (let i = 0; i < n; i++) {
    const x = (i + 1) / buckets;
    let loss = floor + 2 * Math.exp(-x * 9) + Math.abs(noise(0.12));
    if (diverges && x > 0.7) loss = loss * Math.exp((x - 0.7) * 20);
    const bad = diverges && x > 0.95;
    curve.step.push((i + 1) * stride);
    curve.loss.push(bad ? "nan" : loss);
    curve.lossLow.push(bad ? "nan" : stride > 1 ? loss * 0.85 : loss);
    curve.lossHigh.push(bad ? "inf" : stride > 1 ? loss * 1.2 : loss);
    curve.lr.push(0.1 * 0.5 * (1 + Math.cos(Math.PI * x)));
    curve.scale.push(share > 0 ? 2 ** (8 + Math.floor(x * 6) - (x > 0.5 ? 1 : 0)) : 1);
    curve.cancelled.push(share > 0 ? 0.3 + 0.5 * x + noise(0.02) : 0);
    curve.skipped.push(share > 0 && rnd() < 0.01 ? 1 : 0);
  }
  if (share === 0) {
    curve.cancelled = [];
    curve.skipped = [];
  }
  const e = {
    epoch: [],
    step: [],
    trainLoss: [],
    testLoss: [],
    train: [],
    test: [],
    testFp32: [],
    lowRatio: [],
    peakBytes: [],
    seconds: [],
    examplesPerSecond: [],
  };
  const complete = Math.floor(epochs * done);
  for (let i = 1; i <= complete; i++) {
    const x = i / epochs;
    const acc = 0.92 - share * 0.03 - 0.5 * Math.exp(-x * 6) + noise(0.006);
    e.epoch.push(i);
    e.step.push(Math.round((stepsAll * i) / epochs));
    e.trainLoss.push(floor + 2 * Math.exp(-x * 9));
    e.testLoss.push(floor * 1.1 + 2 * Math.exp(-x * 8) + Math.abs(noise(0.03)));
    e.train.push(Math.min(0.99, acc + 0.03 * x));
    e.test.push(diverges && x > 0.9 ? 0.1 : acc);
    if (share > 0) e.testFp32.push(acc + 0.002);
    e.lowRatio.push(share * (1 - 0.2 * x));
    e.peakBytes.push(thePlan.peakBytes);
    e.seconds.push(27 - 9 * share + noise(1));
    e.examplesPerSecond.push(2300 + 800 * share + noise(60));
  }
  const tensors = share === 0 ? [] : thePlan.tensors.filter((t) => t.low || thePlan.lowRatio > 0);
  const heatBuckets = Math.min(n, options.heatBuckets ?? 120);
  const promoted =
    share === 0 ? [] : thePlan.tensors.filter((t) => t.low && t.kind === "activation").slice(0, 3);
  const at = (i) => Math.round((stepsAll * (i + 1)) / 20);
  const heat =
    tensors.length === 0
      ? null
      : {
          tensors: tensors.map((t) => ({
            name: t.name,
            kind: t.kind,
            elements: t.elements,
            format: t.format,
            high: "fp(6,9,0)",
          })),
          step: Array.from({ length: heatBuckets }, (_, b) =>
            Math.round(((b + 1) * n * stride) / heatBuckets),
          ),
          overflow: tensors.map((t, i) =>
            Array.from({ length: heatBuckets }, (_, b) =>
              promoted.includes(t) && b / heatBuckets < 0.08
                ? 0.012 * rnd()
                : i % 5 === 0
                  ? 1e-4 * rnd()
                  : 0,
            ),
          ),
          underflow: tensors.map((t) =>
            Array.from({ length: heatBuckets }, () =>
              t.kind.endsWith("gradient") ? 0.1 * rnd() : 0.01 * rnd(),
            ),
          ),
          amax: tensors.map((t, i) =>
            Array.from({ length: heatBuckets }, (_, b) =>
              diverges && b > heatBuckets * 0.95
                ? "nan"
                : 2 ** (i % 7) *
                  (t.kind.endsWith("gradient") ? 1e-3 : 1) *
                  (1 + b / heatBuckets + rnd()),
            ),
          ),
          formats: {
            "fp(4,3,4)": { high: 4.9, low: -13 },
            "fp(5,2,0)": { high: 15.8, low: -16 },
            "fp(6,9,0)": { high: 32, low: -39 },
            s2fp8: { high: null, low: null },
          },
          words: Object.fromEntries(
            promoted.map((t) => [t.name, `${t.name} overflowed in fp(4,3,4) and was promoted.`]),
          ),
        };
  const last = (a) => (a.length ? a[a.length - 1] : null);
  const finite = e.test.filter((v) => typeof v === "number");
  return {
    id: `${model}-${policy.replace(/[:,()]/g, "_")}-${seed}`,
    state,
    notes: diverges
      ? ["the loss was not finite in 50 steps in a row; first in layer1.0.conv1.out"]
      : [],
    settings: {
      model,
      data: "fashion-mnist",
      policy,
      epochs: String(epochs),
      batch: "128",
      optimizer: "sgd",
      lr: "0.1",
      seed: String(seed),
      "loss-scale": share > 0 ? "dynamic" : "none",
      device: "cpu",
    },
    group: `${model} ${policy}`,
    label: policy,
    seed: String(seed),
    metric: "acc",
    higherIsBetter: true,
    steps: n * stride,
    totalSteps: stepsAll,
    totalEpochs: epochs,
    changed: "2026-01-31T11:00:00Z",
    summary: {
      best: finite.length ? Math.max(...finite) : null,
      bestFp32: finite.length ? Math.max(...finite) + (share > 0 ? 0.002 : 0) : null,
      last: last(e.test),
      trainLoss: last(e.trainLoss),
      aggregateBits: thePlan.aggregateBits,
      aggregateBitsEnd: thePlan.aggregateBits * (1 + 0.05 * share),
      peakBytes: thePlan.peakBytes * (1 + 0.01 * rnd()),
      plannedPeakBytes: thePlan.peakBytes,
      lowPlanned: share,
      lowLast: share * 0.8 + noise(0.01) * share,
      lowMean: share * 0.9,
      promotions: promoted.length,
      skipped: curve.skipped.reduce((a, b) => a + b, 0),
      seconds: e.seconds.reduce((a, b) => a + b, 0),
    },
    epochs: { ...e, others: [], best: e.test.indexOf(Math.max(...e.test)) },
    curve,
    promotions: {
      step: promoted.map((_, i) => at(i)),
      tensor: promoted.map((t) => t.name),
      from: promoted.map((t) => t.format),
      to: promoted.map(() => "fp(6,9,0)"),
      ratio: promoted.map(() => 0.011),
    },
    heat,
    histograms:
      options.heatBuckets === 0
        ? []
        : tensors.slice(0, 8).flatMap((t, i) =>
            ["x", "y"].map((of) => ({
              tensor: t.name,
              kind: t.kind,
              format: t.format,
              of,
              step: n * stride,
              lowest: -30,
              counts: Array.from({ length: 36 }, (_, j) =>
                Math.round(1e5 * Math.exp(-(((j - 22 + (i % 5) * 2) / 5) ** 2))),
              ),
              zero: 1000 * i,
              infinite: 0,
              nan: 0,
            })),
          ),
    shifted:
      policy === "s2fp8"
        ? tensors.slice(0, 8).map((t, i) => ({
            tensor: t.name,
            kind: t.kind,
            step: [...Array(50).keys()].map((b) => (b + 1) * Math.ceil(stepsAll / 50)),
            mu: [...Array(50)].map(() => -8 - i + noise(0.5)),
            m: [...Array(50)].map(() => 2 + noise(0.5)),
            alpha: [...Array(50)].map(() => 1.7 + noise(0.1)),
            beta: [...Array(50)].map(() => 12 + i + noise(0.6)),
          }))
        : [],
    doctor:
      share > 0
        ? {
            sentence: `${promoted.length} tensors overflowed and were promoted.`,
            text:
              "tensor   overflow   words\n" +
              promoted.map((t) => `${t.name}  1.1%  promoted\n`).join(""),
          }
        : null,
    plan: planIndex,
  };
}

export function make(kind) {
  const policies = [
    ["fp32", "fp32", 0],
    ["size:0.3", "fp(4,3,4)", 0.3],
    ["size:0.6", "fp(4,3,4)", 0.6],
    ["s2fp8", "s2fp8", 1],
  ];
  const plans = policies.map(([, low, share]) =>
    plan(low, share > 0 ? "fp(6,9,0)" : "fp32", share, "resnet8"),
  );
  const runs = [];
  const count = kind === "big" ? 200 : kind === "thousand" ? 1000 : kind === "empty" ? 0 : 12;
  for (let k = 0; k < count; k++) {
    const p = Math.floor(k / 3) % policies.length;
    const state =
      count > 12
        ? "done"
        : k === 2
          ? "running"
          : k === 8
            ? "stopped"
            : k === 11
              ? "diverged"
              : "done";
    const model =
      count > 12
        ? ["resnet8", "resnet20", "squeezenet", "densenet"][Math.floor(k / 12) % 4]
        : "resnet8";
    const r = run(k, {
      policy: policies[p][0],
      planIndex: p,
      thePlan: plans[p],
      seed: (k % 3) + 1,
      state,
      model,
      epochs: kind === "big" ? 200 : kind === "thousand" ? 3 : 30,
      buckets: kind === "big" ? (k === 0 ? 4000 : 500) : kind === "thousand" ? 20 : 1200,
      stride: count > 12 ? 25 : 10,
      heatBuckets: kind === "big" ? (k < 20 ? 60 : 0) : kind === "thousand" ? 0 : 120,
    });
    if (count > 12) {
      r.id = `${r.id}-${k}`;
      if (k >= 48) {
        r.settings.lr = String(0.1 / (1 + Math.floor(k / 48)));
        r.group += r.settings.lr;
        r.label += ` lr ${r.settings.lr}`;
      }
      if (model !== "resnet8") r.label = `${model} ${r.label}`;
      if (kind === "big" && k >= 20) {
        r.heat = null;
      }
    }
    runs.push(r);
  }
  const report = {
    version: 1,
    title: kind === "big" ? "sweep" : "runs/assign",
    made: "2026-01-31T12:00:00Z",
    ulp: "0.9.0",
    live: false,
    runs,
    plans: count ? plans : [],
    benches:
      kind === "empty"
        ? []
        : policies.map(([policy], i) => ({
            id: `bench-${i}.json`,
            model: "resnet8",
            policy,
            label: policy,
            device: "H200",
            batch: 128,
            seconds: 0.012 - 0.002 * i,
            plannedBytes: plans[i].peakBytes,
            aggregateBits: plans[i].aggregateBits,
            kernels: Array.from({ length: 14 }, (_, j) => ({
              op: ["conv2d", "conv2d_dx", "conv2d_dw", "batchnorm", "relu", "sgd", "add"][j % 7],
              kernel: j < 7 ? "cudnn" : "generic",
              operands: "fp(4,3,4)",
              seconds: (0.012 - 0.002 * i) / 2 / (j + 1.3),
              calls: 8,
            })),
          })),
    leastSquares:
      kind === "empty"
        ? []
        : [
            {
              id: "ls.json",
              title: "least squares, d = 10",
              variants: ["fp32", "bf16 nearest", "bf16 stochastic", "bf16 kahan"].map(
                (name, i) => ({
                  name,
                  step: Array.from({ length: 200 }, (_, j) => Math.round(1.05 ** (j + 1)) + j),
                  loss: Array.from(
                    { length: 200 },
                    (_, j) => 10 / (j + 1) ** 1.5 + [1e-6, 0.08, 2e-3, 2e-6][i],
                  ),
                  excess: Array.from({ length: 200 }, () => [1e-6, 0.08, 2e-3, 2e-6][i]),
                  cancelled: Array.from(
                    { length: 200 },
                    (_, j) => [0, 0.9, 0.5, 0][i] * (1 - Math.exp(-j / 40)),
                  ),
                }),
              ),
            },
          ],
    notes:
      kind === "empty"
        ? ["runs/none holds no run"]
        : ["runs/assign/old: config.toml cannot be read"],
  };
  if (kind === "hostile") {
    const evil = "<img src=x onerror=alert(1)>\"'&</script><script>document.title='evil'</script>";
    runs.forEach((r, i) => {
      r.id = `${evil}${i}`;
      r.label = `${evil}${r.label}`;
      r.notes.push(evil);
      r.settings[evil] = evil;
      r.metric = evil;
    });
    report.title = evil;
    report.notes.push(evil);
    report.leastSquares[0].variants[1].name = evil;
    report.benches[0].kernels[0].op = evil;
    report.benches[0].label = evil;
  }
  return report;
}

// Not where it is a part of a bundle.
if (process.argv[1]?.endsWith("fixture.mjs")) {
  process.stdout.write(JSON.stringify(make(process.argv[2] ?? "small")));
}
