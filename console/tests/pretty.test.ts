import assert from "node:assert/strict";
import { test } from "node:test";
import { prettyJson } from "../src/parts/pretty";

test("JSON gets line breaks and keeps every digit", () => {
  assert.equal(prettyJson('{"a":1.50,"b":[10000000000000000001,{}]}'), '{\n  "a": 1.50,\n  "b": [\n    10000000000000000001,\n    {}\n  ]\n}');
});

test("a message of nothing but brackets stays small", () => {
  const deep = "[".repeat(500_000) + "]".repeat(500_000);
  assert.ok(prettyJson(deep).length < 50 * deep.length);
});

test("brackets that close too often do no harm", () => {
  assert.equal(prettyJson("]]]"), "\n]\n]\n]");
});
