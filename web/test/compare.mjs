// Comparing a table of the page with the rows that it must have.
import assert from "node:assert/strict";

// A cell is a text, a number to its last digit, null, or one of these two: a number that was
// computed in another order, or one of 32 bits.
export const near = (value) => (value === null ? null : { value, of: "near" });
export const single = (value) => ({ value, of: "single" });

// A cell as it is saved.
export function text(value) {
  if (value === null) return "";
  if (typeof value !== "number") return value;
  return Number.isNaN(value) ? "nan" : `${value}`.replace("Infinity", "inf");
}

export function same(found, columns, rows) {
  assert.deepEqual(found[0], columns);
  assert.equal(found.length - 1, rows.length, "rows");
  rows.forEach((row, r) => row.forEach((wanted, c) => {
    const cell = found[r + 1][c];
    const where = `row ${r + 1}, ${columns[c]}: ${cell}`;
    if (wanted?.of === "near") {
      const far = Math.abs(Number(cell) - wanted.value);
      assert(cell !== "" && far <= 1e-12 * Math.abs(wanted.value), `${where}, not ${wanted.value}`);
    } else if (wanted?.of === "single") {
      assert.equal(cell === "nan" ? NaN : Math.fround(Number(cell)), wanted.value, where);
    } else {
      assert.equal(cell, text(wanted), where);
    }
  }));
}
