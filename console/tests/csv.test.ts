import assert from "node:assert/strict";
import { test } from "node:test";
import { cell } from "../src/state/csv";

test("cells that spreadsheets would run become text", () => {
  for (const text of ["=1+1", "+1", "@SUM(A1)", "-2+3+cmd|' /C calc'!A0", "-", "\t=1", "\r=1", "\n=1", "－1", "1=1"]) {
    assert.equal(cell(text), text === "1=1" ? '"1=1"' : `"'${text}"`, text);
  }
});

test("numbers stay numbers, and quotes are doubled", () => {
  for (const text of ["-1", "-1.5", "-1.5e-7", "0", ""]) assert.equal(cell(text), `"${text}"`);
  assert.equal(cell('a "b",\n'), '"a ""b"",\n"');
});
