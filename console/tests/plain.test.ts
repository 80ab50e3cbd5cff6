import assert from "node:assert/strict";
import { test } from "node:test";
import { toBase64 } from "../src/decoders/bytes";
import { toForm } from "../src/decoders/plain";

test("text is text, with line feeds and tabs where the form has lines", () => {
  assert.deepEqual(toForm("a\n\tb", "utf8"), { text: "a\n\tb", encoding: "utf8" });
  assert.deepEqual(toForm(toBase64(new TextEncoder().encode("grüße")), "base64"), { text: "grüße", encoding: "utf8" });
  assert.deepEqual(toForm("", "utf8"), { text: "", encoding: "utf8" });
});

test("what a form would change is base64", () => {
  for (const text of ["a\r\nb", "\u0000\u0000\u0000\u0000\u0001x", "\u001b[31m", "\u007f"]) assert.deepEqual(toForm(text, "utf8"), { text: btoa(text), encoding: "base64" }, text);
  assert.deepEqual(toForm("a\nb", "utf8", true), { text: btoa("a\nb"), encoding: "base64" });
  assert.deepEqual(toForm("//4=", "base64"), { text: "//4=", encoding: "base64" });
});

test("null is not the empty text", () => {
  assert.deepEqual(toForm(null, "utf8"), { text: "", encoding: "null" });
});
