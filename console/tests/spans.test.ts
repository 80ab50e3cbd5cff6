import assert from "node:assert/strict";
import { test } from "node:test";
import type { History } from "../src/api/types";
import { extended, spanOf, SPANS_MS } from "../src/state/spans";

function history(from: number, until: number, stepMs: number): History {
  const times = Array.from({ length: (until - from) / stepMs }, (_unused, at) => from + at * stepMs);
  return { step_ms: stepMs, times, series: { in_per_s: times.map((time) => time / stepMs) }, nodes: [1], missing_nodes: [], kept_ms: 0 };
}

test("what is new replaces the last value and follows it", () => {
  const joined = extended(history(0, 900_000, 10_000), history(890_000, 920_000, 10_000), 900_000);
  assert.equal(joined?.times.at(-1), 910_000);
  assert.deepEqual(joined?.series["in_per_s"], joined?.times.map((time) => time / 10_000));
});

test("a span does not grow however long one looks", () => {
  let now = history(0, 900_000, 10_000);
  for (let last = 890_000; last < 4_000_000; last += 10_000) now = extended(now, history(last, last + 20_000, 10_000), SPANS_MS["15m"]) ?? now;
  assert.equal(now.times.at(-1), 4_000_000);
  assert.equal(now.times.length, 91);
  assert.equal(now.series["in_per_s"]?.length, 91);
});

test("values of another step do not fit", () => {
  assert.equal(extended(history(0, 3_600_000, 20_000), history(3_580_000, 3_600_000, 10_000), 3_600_000), undefined);
});

test("after a long absence nothing is left of what was known", () => {
  assert.equal(extended(history(0, 900_000, 10_000), history(8_000_000, 8_900_000, 10_000), 900_000), undefined);
  assert.equal(extended(history(0, 900_000, 10_000), { ...history(0, 0, 10_000) }, 900_000), undefined);
});

test("an address with another span has the shortest", () => {
  assert.equal(spanOf("2d"), "15m");
  assert.equal(spanOf("toString"), "15m");
  assert.equal(spanOf("6h"), "6h");
});
