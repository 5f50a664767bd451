// A made-up document with large networks, for the plots of one run: branching graphs, thousands of
// blocks, hundreds of narrow tensors. Nothing in it was measured.
function random(seed) {
  let s = seed;
  return () => {
    s = (Math.imul(s, 1664525) + 1013904223) >>> 0;
    return s / 2 ** 32;
  };
}

// Nodes of a residual network: conv, statistics, norm, relu, and a sum around every two.
class Net {
  nodes = [];
  tensors = [];

  add(name, op, inputs, elements, weight = 0) {
    const weights = weight ? [`${name}.weight`] : [];
    this.nodes.push({ name, op, out: [`${name}.out`], in: inputs, weights });
    const group = this.tensors.length >> 3;
    this.tensors.push({ name: `${name}.out`, op, kind: "activation", elements, group },
      { name: `${name}.out.grad`, op, kind: "activation gradient", elements, group });
    if (weight) {
      this.tensors.push({ name: `${name}.weight`, op, kind: "weight", elements: weight, group },
        { name: `${name}.weight.grad`, op, kind: "weight gradient", elements: weight, group });
    }
    return this.nodes.length - 1;
  }

  normed(name, number, input, elements, weight, relu = true) {
    const conv = this.add(`${name}conv${number}`, "conv2d", [input], elements, weight);
    const norm = this.add(`${name}bn${number}`, "batch_norm", [conv], elements, elements / 1024);
    return relu ? this.add(`${name}relu${number}`, "relu", [norm], elements) : norm;
  }
}

export function resnet(stages, blocks) {
  const net = new Net();
  let at = net.add("input", "input", [], 98304);
  at = net.normed("", 1, at, 2097152, 1728);
  for (let stage = 1; stage <= stages; stage++) {
    for (let block = 0; block < blocks; block++) {
      const name = `layer${stage}.${block}.`, size = 2097152 / 2 ** (stage - 1), from = at;
      at = net.normed(name, 1, at, size, 36864 * 4 ** (stage - 1));
      at = net.normed(name, 2, at, size, 36864 * 4 ** (stage - 1), false);
      let around = from;
      if (stage > 1 && block === 0) {
        around = net.add(`${name}shortcut.conv`, "conv2d", [from], size, 8192 * 4 ** (stage - 1));
        around = net.add(`${name}shortcut.bn`, "batch_norm", [around], size, 128);
      }
      at = net.add(`${name}add`, "add", [at, around], size);
      at = net.add(`${name}relu2`, "relu", [at], size);
    }
  }
  at = net.add("pool", "global_avg_pool", [at], 16384);
  net.add("fc", "linear", [at], 320, 5120);
  return net;
}

export function mobilenet(blocks) {
  const net = new Net();
  let at = net.normed("", 1, net.add("input", "input", [], 98304), 1048576, 864);
  for (let block = 0; block < blocks; block++) {
    const name = `layers.${block}.`, size = 1572864 / (1 + (block >> 2)), from = at;
    at = net.normed(name, 1, at, size, 2304 * (1 + block));
    at = net.normed(name, 2, at, size, 864 * (1 + block));
    at = net.normed(name, 3, at, size / 6, 2304 * (1 + block), false);
    if (block % 2) at = net.add(`${name}add`, "add", [at, from], size / 6);
  }
  at = net.add("pool", "global_avg_pool", [at], 40960);
  net.add("fc", "linear", [at], 320, 12800);
  return net;
}

const bits = { "fp32": 32, "fp(6,9,0)": 16, "fp(4,3,4)": 8, "fp(5,2,0)": 8, "s2fp8": 8 };

export function planOf(net, model, low) {
  const count = net.tensors.length;
  const tensors = net.tensors.map((t, i) => {
    const isLow = i > count * 0.1 && i < count * 0.75;
    const lowFormat = t.kind === "activation gradient" && low !== "s2fp8" ? "fp(5,2,0)" : low;
    const format = isLow && t.kind !== "weight gradient" ? lowFormat : "fp(6,9,0)";
    return { ...t, format, bits: bits[format], low: isLow };
  });
  const steps = [], blocks = [];
  const n = net.nodes.length;
  const step = (phase) => ({ name, op }) => steps.push(
    { node: name, op, kernel: phase === "update" ? "fused" : "onednn", phase, more: 0 });
  net.nodes.forEach(step("forward"));
  [...net.nodes].reverse().forEach(step("backward"));
  net.nodes.filter((node) => node.weights.length).forEach(step("update"));
  let below = 0, top = 0;
  const byName = new Map(tensors.map((t) => [t.name, t]));
  for (const use of ["weights", "optimizer"]) {
    for (const t of tensors.filter((one) => one.kind === "weight")) {
      below -= t.elements * 4;
      const name = use === "weights" ? t.name : `${t.name}.momentum`;
      blocks.push({ name, use, format: "fp32", offset: below, bytes: t.elements * 4, first: 0,
        last: steps.length - 1 });
    }
  }
  net.nodes.forEach((node, i) => {
    const out = byName.get(node.out[0]), size = (out.elements * out.bits) / 8;
    const kept = node.op === "batch_norm" ? i + 1 : 2 * n - 1 - i;
    blocks.push({ name: out.name, use: "activations", format: out.format, offset: top, bytes: size,
      first: i, last: kept });
    const grad = byName.get(`${out.name}.grad`), gradSize = (grad.elements * grad.bits) / 8;
    blocks.push({ name: grad.name, use: "gradients", format: grad.format, offset: top + size,
      bytes: gradSize, first: Math.max(0, 2 * n - 2 - i), last: 2 * n - 1 - i });
    if (node.op === "conv2d") {
      blocks.push({ name: `workspace of ${node.name}`, use: "workspace", format: "",
        offset: top + size, bytes: size * 0.2, first: i, last: i });
    }
    if (node.op !== "batch_norm") top += size;
  });
  const arena = Math.max(...blocks.map((b) => b.offset + b.bytes));
  const use = { weights: 0, optimizer: 0, activations: 0, gradients: 0, workspace: 0, snapshot: 0 };
  for (const b of blocks) if (b.first <= n && b.last >= n) use[b.use] += b.bytes;
  return {
    model, device: "cpu", note: "", stateBytes: -below, arenaBytes: arena, peakBytes: arena - below,
    peakStep: n, aggregateBits: tensors.reduce((s, t) => s + t.elements * t.bits, 0), lowRatio: 0.6,
    use, tensors, detail: { steps, blocks, nodes: net.nodes },
  };
}

function runOf(id, plan, planIndex, low) {
  const rnd = random(7 + planIndex), buckets = 260, steps = 9380;
  const tensors = plan.tensors.filter((t) => t.format !== "fp32");
  const step = Array.from({ length: buckets }, (_, b) =>
    b < 60 ? b + 1 : Math.round(60 + ((b - 59) * (steps - 60)) / (buckets - 60)));
  const promotions = { step: [], tensor: [], from: [], to: [], ratio: [] };
  const overflow = tensors.map((t, i) => {
    const promoted = low !== "s2fp8" && t.kind !== "weight gradient" && i % 23 === 5
      ? Math.floor(buckets * rnd()) : -1;
    if (promoted >= 0 && t.format !== "fp(6,9,0)") {
      promotions.step.push(step[promoted]);
      promotions.tensor.push(t.name);
      promotions.from.push(t.format);
      promotions.to.push("fp(6,9,0)");
      promotions.ratio.push(0.01 + 0.02 * rnd());
    }
    return step.map((_, b) => {
      if (promoted >= 0 && b > promoted) return 0;
      if (b === promoted) return 0.013;
      return i % 4 === 1 ? 10 ** (-6 + 3.8 * (0.6 * (b / buckets) + 0.4 * rnd())) : 0;
    });
  });
  const underflow = tensors.map((t, i) => step.map((_, b) => t.kind.includes("gradient")
    ? 0.4 * rnd() * (b / buckets) : i % 3 ? 0 : 1e-5 * rnd()));
  const amax = tensors.map((t, i) => step.map((_, b) => i === 9 && b > 250 ? "nan"
    : 2 ** ((t.kind.includes("gradient") ? -10 : 2) + 3 * Math.sin(i) + b / 100 + rnd())));
  const pick = tensors.filter((_, i) => i % 9 === 2).slice(0, 14);
  const histograms = pick.flatMap((t, i) => [100, 4000, steps].flatMap((at, j) =>
    (low === "s2fp8" ? ["x", "y"] : ["x"]).map((of) => {
      const middle = of === "y" ? 22 : 18 - (i % 5) * 2 + j;
      return {
        tensor: t.name, kind: t.kind, format: t.format, of, step: at, lowest: -26,
        counts: Array.from({ length: 44 }, (_, k) => {
          const x = (k - middle) / 5;
          return Math.floor(2e5 * Math.exp(-x * x) + (k > 4 && k < 30 ? 3 * rnd() : 0));
        }),
        zero: 5000 * (i % 3), infinite: 0, nan: i === 3 ? 7 : 0,
      };
    })));
  const shifted = low !== "s2fp8" ? [] : pick.map((t, i) => ({
    tensor: t.name, kind: t.kind, step,
    mu: step.map((_, b) => -3 - i / 2 - 4 * (1 - Math.exp(-b / 50)) + 0.4 * rnd()),
    m: step.map(() => 1 + i / 4 + 0.3 * rnd()),
    alpha: step.map((_, b) => 2 + 3 * (1 - Math.exp(-b / 60)) + 0.1 * rnd()),
    beta: step.map((_, b) => 8 + 12 * (1 - Math.exp(-b / 60)) + 0.5 * rnd()),
  }));
  const none = { trainLoss: null, aggregateBits: null, aggregateBitsEnd: null, peakBytes: null };
  return {
    id, state: "done", notes: [], group: id, label: id, seed: "0", metric: "acc",
    settings: {
      model: plan.model, policy: low === "s2fp8" ? "uniform" : "size:0.6", promote: "default",
    },
    higherIsBetter: true, steps, totalSteps: steps, totalEpochs: 20,
    changed: "2026-01-31T12:00:00Z",
    summary: { ...none, best: 0.9, bestFp32: 0.9, last: 0.9, plannedPeakBytes: plan.peakBytes,
      lowPlanned: 0.6, lowLast: 0.55, lowMean: 0.57, promotions: promotions.step.length, skipped: 0,
      seconds: 100 },
    epochs: { epoch: [], step: [], trainLoss: [], testLoss: [], train: [], test: [], testFp32: [],
      lowRatio: [], peakBytes: [], seconds: [], examplesPerSecond: [], others: [], best: -1 },
    curve: { stride: 1, step: [], loss: [], lossLow: [], lossHigh: [], lr: [], scale: [],
      cancelled: [], skipped: [] },
    promotions,
    heat: {
      tensors: tensors.map(({ name, kind, elements, format }) => (
        { name, kind, elements, format, high: "fp(6,9,0)" })),
      step, overflow, underflow, amax,
      formats: { "fp(4,3,4)": { high: 4.906890595608519, low: -13 },
        "fp(5,2,0)": { high: 16.807354922057606, low: -16 },
        "fp(6,9,0)": { high: 32.99859042974533, low: -39 }, "s2fp8": { high: null, low: null } },
      words: Object.fromEntries(promotions.tensor.map((name) => [name,
        `Forward overflow in ${name}: up to 1.3% of it was beyond 30, the largest of fp(4,3,4).`])),
    },
    histograms, shifted,
    doctor: { sentence: "Forward overflow in layer1.0.conv1.out since step 1.",
      text: `Steps             1 to ${steps}\nLoss scale        65536 at first\n` +
        "First to overflow layer1.0.conv1.out at step 1: 89.0% of its 16384 elements\n" },
    plan: planIndex,
  };
}

export function makeDetail() {
  const plans = [planOf(resnet(4, 2), "resnet18", "fp(4,3,4)"),
    planOf(mobilenet(17), "mobilenetv2", "s2fp8"), planOf(resnet(3, 1), "resnet8", "fp(4,3,4)")];
  return {
    version: 1, title: "made up", made: "2026-01-31T12:00:00Z", ulp: "0.1.0", live: false,
    runs: [runOf("resnet18", plans[0], 0, "fp(4,3,4)"), runOf("mobilenetv2", plans[1], 1, "s2fp8"),
      runOf("resnet8", plans[2], 2, "fp(4,3,4)")],
    plans, benches: [], leastSquares: [], notes: [],
  };
}
