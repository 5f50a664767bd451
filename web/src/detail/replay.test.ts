import assert from "node:assert/strict";
import test from "node:test";
import type { Plan, Run } from "../state";
import { Replay } from "./replay";

const tensor = (name: string, format: string) => ({
  name, format, kind: "activation" as const, elements: 1, high: "bf16",
  op: "relu", bits: 8, group: 0, low: true,
});

// Not in the order of steps: "a" goes from e4m3 over e5m2 to bf16.
const promotions: Run["promotions"] = {
  step: [20, 8, 8], tensor: ["a", "a", "c"], from: ["e5m2", "e4m3", "e4m3"],
  to: ["bf16", "e5m2", "bf16"], ratio: [0.1, 0.02, 0.03],
};
const plan = { tensors: [tensor("a", "fp32"), tensor("b", "fp16")] } as unknown as Plan;
const heat = { tensors: [tensor("a", "e4m3")] } as unknown as Run["heat"];

test("a promotion counts from its step on", () => {
  const replay = new Replay({ promotions, heat }, plan);
  const formats = [0, 7, 8, 19, 20, 1e9].map((step) => replay.after("a", step));
  assert.deepEqual(formats, ["e4m3", "e4m3", "e5m2", "e5m2", "bf16", "bf16"]);
});

test("the step that promotes still has the old format", () => {
  const replay = new Replay({ promotions, heat }, plan);
  assert.deepEqual([8, 9, 20, 21].map((step) => replay.during("a", step)),
    ["e4m3", "e5m2", "e5m2", "bf16"]);
});

test("tensors that only the plan or only a promotion knows", () => {
  const replay = new Replay({ promotions, heat: null }, plan);
  assert.equal(replay.after("b", 100), "fp16");
  assert.equal(replay.after("c", 7), "e4m3");
  assert.equal(replay.after("c", 8), "bf16");
  assert.equal(replay.after("d", 8), "");
  assert.deepEqual(new Set(replay.formats()), new Set(["fp32", "fp16", "e4m3", "e5m2", "bf16"]));
});
