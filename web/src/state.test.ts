import assert from "node:assert/strict";
import test from "node:test";
import { make } from "../dev/fixture.mjs";
import type { Report } from "./data";
import { decodeNum, Store, type Change } from "./state";

const small = (change?: (report: Report) => void): Store => {
  const report = make("small") as Report;
  change?.(report);
  return new Store(report);
};

test("numbers that JSON does not have", () => {
  assert(Number.isNaN(decodeNum("nan")));
  assert.equal(decodeNum("inf"), Infinity);
  assert.equal(decodeNum("-inf"), -Infinity);
  assert.equal(decodeNum(null), null);
  assert.equal(decodeNum(0), 0);
});

test("columns and summaries are decoded, names are not", () => {
  const store = small((report) => {
    const run = report.runs[0]!;
    run.id = "nan";
    run.label = "inf";
    run.settings.policy = "-inf";
    run.summary.best = "nan";
    run.curve.loss[1] = "inf";
    run.epochs.test[0] = "-inf";
    const heat = report.runs.find((r) => r.heat)!.heat!;
    heat.amax[0]![0] = "nan";
    heat.tensors[0]!.name = "nan";
  });
  const run = store.run("nan")!;
  assert.equal(run.label, "inf");
  assert.equal(run.settings.policy, "-inf");
  assert(Number.isNaN(run.summary.best));
  assert.equal(run.curve.loss[1], Infinity);
  assert.equal(run.epochs.test[0], -Infinity);
  const heat = store.runs().find((r) => r.heat)!.heat!;
  assert(Number.isNaN(heat.amax[0]![0]));
  assert.equal(heat.tensors[0]!.name, "nan");
});

test("the filter: words, settings, and what is left out", () => {
  const store = small();
  const all = store.runs().length;
  const ids = (filter: string): string[] => {
    store.setFilter(filter);
    return store.runs().map((r) => r.id);
  };
  const policies = new Set(store.runs().map((r) => r.settings.policy));
  assert(policies.size > 1);
  for (const policy of policies) {
    const found = ids(`policy:${policy}`);
    assert(found.length > 0 && found.length < all);
    for (const id of found) assert(store.run(id)!.settings.policy!.includes(policy!));
    // What is left out is all the others.
    assert.equal(ids(`-policy:${policy}`).length, all - found.length);
  }
  assert.deepEqual(ids("SEED:0"), ids("seed:0"));
  assert.deepEqual(ids("no such run"), []);
  assert.deepEqual(ids("  "), store.doc.runs.map((r) => r.id));
  for (const state of new Set(store.doc.runs.map((r) => r.state))) {
    assert.deepEqual(ids(`state:${state}`),
                     store.doc.runs.filter((r) => r.state === state).map((r) => r.id));
  }
  // Words of a pattern language are only words.
  assert.deepEqual(ids(".*"), []);
  assert.deepEqual(ids("__proto__:x"), []);
});

test("selection: one, several, none, and what is drawn then", () => {
  const store = small();
  const seen: Change[] = [];
  store.subscribe((change) => seen.push(change));
  const [a, b] = store.runs().map((r) => r.id) as [string, string];
  store.select(["no such run", a, b]);
  assert.deepEqual(store.chosen().map((r) => r.id), [a, b]);
  assert(store.strong(store.run(a)!));
  assert(store.runs().slice(2).every((r) => !store.strong(r)));
  store.toggle(b);
  assert.deepEqual(store.chosen().map((r) => r.id), [a]);
  assert.equal(store.focusedRun()!.id, a);
  store.select([]);
  assert.equal(store.chosen().length, store.runs().length);
  assert(store.runs().every((r) => store.strong(r)));
  assert.deepEqual(seen, ["selection", "selection", "selection"]);
});

test("at first two configurations are compared, not two seeds of one", () => {
  const store = small();
  const pair = () => store.compared()!.map((r) => r.id);
  const [a, b] = store.compared()!;
  assert.equal(a, store.runs()[0]);
  assert(a.group !== b.group);
  assert.deepEqual([a.seed, a.state], [b.seed, b.state]);
  // One that is selected, and one beside it.
  const last = store.runs().at(-1)!;
  store.select([last.id]);
  const [first, second] = store.compared()!;
  assert.equal(first, last);
  assert(second.group !== last.group);
  // What is chosen is taken as it is.
  const seeds = store.runs().filter((r) => r.group === a.group).map((r) => r.id);
  assert(seeds.length > 1);
  store.select(seeds.slice(0, 2));
  assert.deepEqual(pair(), seeds.slice(0, 2));
  store.select([]);
  store.compare(1, a.id);
  assert(store.compared()![0].group !== a.group);
  store.compare(0, seeds[1]!);
  assert.deepEqual(pair(), [seeds[1], a.id]);
  // Where there is but one configuration its seeds are what there is.
  const alone = small((report) => {
    report.runs = report.runs.filter((r) => r.group === a.group);
  });
  assert.deepEqual(alone.compared()!.map((r) => r.group), [a.group, a.group]);
});

test("a newer document keeps what is still there", () => {
  const store = small();
  const [first, second] = store.runs();
  const colour = { series: ["a", "b", "c", "d", "e", "f", "g", "h"], accent: "" } as never;
  const before = store.colour(second!.group, colour);
  store.select([first!.id, second!.id]);
  const newer = make("small") as Report;
  newer.runs = newer.runs.slice(1);
  store.replace(newer);
  assert.deepEqual([...store.selected], [second!.id]);
  assert.equal(store.colour(second!.group, colour), before);
});
