import assert from "node:assert/strict";
import test from "node:test";
import { nextCell, nextSpot } from "./marks";

const spots = [
  { key: "middle", x: 0, y: 0 }, { key: "right", x: 10, y: 1 }, { key: "far right", x: 30, y: 0 },
  { key: "below", x: 2, y: 12 }, { key: "left", x: -9, y: -3 }, { key: "above", x: -1, y: -20 },
];

const from = (key: string) => ({ lines: [], key });

test("an arrow key goes to the nearest mark in its direction, if there is one", () => {
  const next = (key: string, arrow: "left" | "right" | "up" | "down") =>
    nextSpot(spots, from(key), arrow)?.key;
  assert.equal(nextSpot(spots, null, "left")?.key, "middle");
  assert.equal(nextSpot(spots, from("gone"), "left")?.key, "middle");
  assert.deepEqual(
    (["right", "left", "down", "up"] as const).map((arrow) => next("middle", arrow)),
    ["right", "left", "below", "above"]);
  assert.equal(next("right", "right"), "far right");
  assert.equal(next("far right", "right"), undefined);
  assert.equal(next("above", "up"), undefined);
  assert.equal(nextSpot([], null, "up"), null);
});

test("in a grid it stays inside", () => {
  assert.deepEqual(nextCell(null, "up", 3, 4), { row: 0, column: 0 });
  assert.deepEqual(nextCell({ row: 0, column: 3 }, "right", 3, 4), { row: 0, column: 3 });
  assert.deepEqual(nextCell({ row: 0, column: 3 }, "down", 3, 4), { row: 1, column: 3 });
  assert.deepEqual(nextCell({ row: 2, column: 3 }, "down", 3, 4), { row: 2, column: 3 });
  assert.deepEqual(nextCell({ row: 2, column: 0 }, "left", 3, 4), { row: 2, column: 0 });
});
