// Numbers in the plots of one run equal those in its files, and what the doctor says is what the
// program prints. Each plot's test compares what it saves with the files, then with a copy in which
// single numbers are others: those move, and nothing else.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  atStep, begin, cell, choose, end, focus, further, moves, overflown, pages, promotion, regraded,
  roots, shifts,
} from "./changed.mjs";
import { near, same, single } from "./compare.mjs";
import { readLines, readRanges } from "./files.mjs";
import { run, runs, see, ulp } from "./page.mjs";
import { bitsOf, formatsDuring, plan, sum } from "./raw.mjs";

before(begin("asMade", "measured", "planned"));
after(end);

const kinds = {
  activation: "activation", activation_grad: "activation gradient", weight: "weight",
  weight_grad: "weight gradient",
};

async function sameHeat(rows, root) {
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
}

// Numbers of each column are others; those that the picture shows move it.
for (const measure of ["overflow", "underflow", "amax", "format"]) {
  test(`heat: ${measure}`, () => moves("heat", "measured", {
    show: async (tab) => {
      await focus("half-seed0")(tab);
      await choose(tab, "heat-measure", measure);
    },
    keys: 3,
    check: sameHeat,
    moved: (rows) => {
      const moved = (tensor, kind, step, column, to) => {
        const row = rows.find((r) => r[0] === tensor && r[2] === `${step}`);
        return cell(`${tensor} ${kind} ${step}`, column, row[rows[0].indexOf(column)], to);
      };
      const later = rows.filter((r) => r[0] === further.tensor && Number(r[2]) > further.step);
      assert(later.length > 0);
      return [
        moved("bn1.out", "activation", 3, "overflow", 0.125),
        moved("conv1.weight", "weight", 10, "underflow", 0.25),
        moved("conv1.out", "activation", 24, "amax", 1.625),
        ...later.map((r) => moved(r[0], r[1], r[2], "format", "fp32")),
      ];
    },
  }));
}

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
  moved: (rows) => shifts.map(([step, column, value]) => {
    const row = rows.find((r) => r[0] === "conv1.out" && r[1] === `${step}`);
    return cell(`conv1.out ${step}`, column, row[rows[0].indexOf(column)], value);
  }),
}));

// Rows of the map of the network: outputs and weights of its operators, and their gradients, at the
// chosen step.
const roles = {
  activation: "output", activation_grad: "gradient of output", weight: "weight",
  weight_grad: "gradient of weight",
};

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
      roles[t.kind], t.elements, during(name, step + 1) ?? t.format, t.group, step,
    ];
    assert.deepEqual([role, elements, format, group, shown], wanted.map(String), name);
  }
  // All that counts is there.
  assert.deepEqual([...new Set(counted.map((r) => r[2]))].sort(), [...known.keys()].sort());
  for (const [, , name, , elements, format] of rows.slice(1).filter((r) => !known.has(r[2]))) {
    assert.deepEqual([elements, format], ["", ""], name);
  }
}

test("network", async () => {
  const { step, tensor, from, to } = promotion;
  const row = (rows, name) => rows.find((r) => r[2] === name);
  const key = (rows, name) => row(rows, name).slice(0, 3).join(" ");
  const { tensor: other } = regraded;
  // The promotion comes a step later, and another one is of the gradient.
  await moves("network", "measured", {
    show: atStep("all-low-seed0", step),
    keys: 3,
    check: (rows, root) => sameNetwork(rows, root, step),
    moved: (rows) => [
      cell(key(rows, tensor), "format", to, from),
      cell(key(rows, other), "format", regraded.to, regraded.from),
      cell(key(rows, `${other}.grad`), "format", row(rows, `${other}.grad`)[5], regraded.to),
    ],
  });
  // Half as many examples: half as many elements in what depends on them. Areas go by their shares.
  await moves("network", "planned", {
    show: atStep("all-low-seed0", 0),
    keys: 3,
    check: (rows, root) => sameNetwork(rows, root, 0),
    picture: false,
    moved: (rows) => rows.slice(1).filter((r) => r[3].endsWith("output") && r[4] !== "").map((r) =>
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

// What the program prints for the run, with its first line above.
test("doctor", async () => {
  const said = {};
  for (const name of ["asMade", "measured"]) {
    const { tab } = pages[name];
    for (const one of ["half-seed0", "all-low-seed1", "s2fp8-seed0"]) {
      await focus(one)(tab);
      await see(tab, "doctor");
      const at = join(roots[name], one);
      const printed = (await run(ulp, ["doctor", at])).stdout;
      const sentence = await tab.textContent("#doctor .doctor-sentence");
      assert.equal(sentence, printed.split("\n")[0], `${name}: ${one}`);
      // Each line once: the sentence is not said again below.
      const shown = await tab.textContent("#doctor .doctor-text");
      assert.equal(`${sentence}\n\n${shown}`, printed.trim(), `${name}: ${one}`);
      said[`${name} ${one}`] = shown;
    }
  }
  // More of one tensor overflows than of all others.
  assert.notEqual(said["asMade half-seed0"], said["measured half-seed0"]);
  assert.match(said["measured half-seed0"], /bn1\.out.*12\.5%/s);
  assert.equal(said["asMade s2fp8-seed0"], said["measured s2fp8-seed0"]);
});
