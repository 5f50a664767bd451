// What the unit tests use of Node and of made-up documents, which the page itself must not see.
declare module "node:test" {
  export default function test(name: string, body: () => void | Promise<void>): void;
}
declare module "node:assert/strict" {
  interface Assert {
    (value: unknown, message?: string): asserts value;
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
  }
  const assert: Assert;
  export default assert;
}
declare module "*/detail_fixture.mjs" {
  export function makeDetail(): import("../data").Report;
}
declare module "*/fixture.mjs" {
  export function make(kind: string): import("../data").Report;
}
