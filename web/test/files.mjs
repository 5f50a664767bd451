// Changing single numbers in the files of a run, and comparing tables before and after.
import { cpSync, readFileSync, writeFileSync } from "node:fs";

// Lines of JSON: `change` gets each with its number and returns true for the one it has changed.
export function changeLines(path, change) {
  let changed = 0;
  const lines = readFileSync(path, "utf8").split("\n");
  const made = lines.map((text, i) => {
    if (text === "") return text;
    const line = JSON.parse(text);
    if (!change(line, i)) return text;
    changed++;
    return JSON.stringify(line);
  });
  if (changed !== 1) throw new Error(`${path}: ${changed} lines were changed, not 1`);
  writeFileSync(path, made.join("\n"));
}

export const readLines = (path) =>
  readFileSync(path, "utf8").split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));

// One option of a config.toml.
export function changeOption(path, name, value) {
  const text = readFileSync(path, "utf8");
  const line = new RegExp(`^${name} = .*$`, "m");
  if (!line.test(text)) throw new Error(`${path} has no ${name}`);
  writeFileSync(path, text.replace(line, () => `${name} = ${value}`));
}

const crcOf = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  return crc;
});

function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) crc = (crc >>> 8) ^ crcOf[(crc ^ byte) & 255];
  return ~crc >>> 0;
}

// ulp/run/ranges.h: a line of JSON, then records of a head of 32 bytes and three floats a tensor.
// The head: step, loss, scale, flags, and at byte 28 the checksum of all others.
const head = 32;
const checksumAt = 28;
const fields = ["amax", "overflow", "underflow"];

export function readRanges(path) {
  const bytes = readFileSync(path);
  const begin = bytes.indexOf("\n") + 1;
  const { tensors } = JSON.parse(bytes.subarray(0, begin).toString());
  const size = head + 12 * tensors.length;
  const records = [];
  for (let at = begin; at + size <= bytes.length; at += size) {
    const record = { at, step: Number(bytes.readBigUInt64LE(at)) };
    fields.forEach((f, k) => {
      record[f] = tensors.map((_, i) => bytes.readFloatLE(at + head + 12 * i + 4 * k));
    });
    records.push(record);
  }
  return { bytes, tensors, size, records };
}

export function changeRange(path, step, tensor, field, value) {
  const { bytes, tensors, size, records } = readRanges(path);
  const record = records.find((r) => r.step === step);
  const i = tensors.findIndex((t) => t.name === tensor);
  if (!record || i < 0) throw new Error(`${path} has no ${tensor} at step ${step}`);
  bytes.writeFloatLE(value, record.at + head + 12 * i + 4 * fields.indexOf(field));
  seal(bytes.subarray(record.at, record.at + size));
  writeFileSync(path, bytes);
}

// The checksum of a record, for what stands in it now.
function seal(record) {
  const sum = crc32(Buffer.concat([record.subarray(0, checksumAt), record.subarray(head)]));
  record.writeUInt32LE(sum, checksumAt);
}

// Records of other steps, again and again from the first.
export function repeatRanges(path, steps) {
  const { bytes, size, records } = readRanges(path);
  const made = steps.map((step, i) => {
    const { at } = records[i % records.length];
    const record = Buffer.from(bytes.subarray(at, at + size));
    record.writeBigUInt64LE(BigInt(step), 0);
    seal(record);
    return record;
  });
  writeFileSync(path, Buffer.concat([bytes.subarray(0, records[0].at), ...made]));
}

export const copy = (from, to) => cpSync(from, to, { recursive: true });

// Cells that differ between two tables: rows are told apart by their first cells, so many of them.
// What is in one table only is a difference too.
export function differences(before, after, keys) {
  const found = [];
  const columns = before[0];
  if (columns.join() !== after[0].join()) throw new Error("the columns are others");
  const index = (rows) => {
    const byKey = new Map();
    for (const row of rows.slice(1)) {
      const key = row.slice(0, keys).join(" ");
      if (byKey.has(key)) throw new Error(`two rows are ${key}`);
      byKey.set(key, row);
    }
    return byKey;
  };
  const [left, right] = [index(before), index(after)];
  for (const key of new Set([...left.keys(), ...right.keys()])) {
    const [a, b] = [left.get(key), right.get(key)];
    if (!a || !b) {
      found.push({ key, column: "", from: a?.join() ?? "", to: b?.join() ?? "" });
      continue;
    }
    columns.forEach((column, i) => {
      if (a[i] !== b[i]) found.push({ key, column, from: a[i], to: b[i] });
    });
  }
  return found;
}

// The size in pixels of a PNG file; throws for what is none.
export function pngSize(bytes) {
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  if (!bytes.subarray(0, 8).equals(signature)) throw new Error("it is no PNG file");
  if (!bytes.subarray(-12).equals(Buffer.from("0000000049454e44ae426082", "hex"))) {
    throw new Error("the PNG file does not end");
  }
  return [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
}
