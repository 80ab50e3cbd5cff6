import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "../src/api/json";
import { JsonSchema } from "../src/decoders/json-schema";

/** What is wrong with a value; empty if nothing is. */
function problem(schema: unknown, json: string, references: { name: string; text: string }[] = []): string {
  try {
    new JsonSchema(JSON.stringify(schema), references).check(parse(json));
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

const PERSON = { type: "object", properties: { name: { type: "string", minLength: 1 }, age: { type: "integer", minimum: 0, maximum: 150 }, mail: { $ref: "#/$defs/mail" } }, required: ["name"], additionalProperties: false, $defs: { mail: { type: "string", pattern: "^[^@]+@[^@]+$" } } };

test("a value that fits is accepted", () => {
  assert.equal(problem(PERSON, '{"name":"Ada","age":36,"mail":"a@b"}'), "");
  assert.equal(problem({ type: "integer" }, "9007199254740993"), "");
  assert.equal(problem(true, "null"), "");
});

test("what does not fit is named with its place", () => {
  const cases: [string, RegExp][] = [
    ["{}", /value\.name is missing/],
    ['{"name":""}', /value\.name has a length that is not 1/],
    ['{"name":"Ada","age":-1}', /value\.age must be 0 – 150/],
    ['{"name":"Ada","age":1.5}', /value\.age must be integer/],
    ['{"name":"Ada","mail":"x"}', /value\.mail must be /],
    ['{"name":"Ada","toString":1}', /value\.toString is not in the schema/],
    ["[]", /value must be object/],
  ];
  for (const [json, why] of cases) assert.match(problem(PERSON, json), why, json);
});

test("each keyword counts", () => {
  const cases: [unknown, string, string][] = [
    [{ enum: [1, { a: [1], b: 2 }] }, '{"b":2,"a":[1]}', "2"],
    [{ const: null }, "null", "0"],
    [{ allOf: [{ type: "number" }, { minimum: 5 }] }, "5", "4"],
    [{ anyOf: [{ type: "string" }, { minimum: 5 }] }, '"x"', "4"],
    [{ oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }, "4", "6"],
    [{ oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }, "9", "5"],
    [{ not: { type: "null" } }, "1", "null"],
    [{ if: { type: "string" }, then: { maxLength: 2 }, else: { maximum: 2 } }, '"ab"', '"abc"'],
    [{ if: { type: "string" }, then: { maxLength: 2 }, else: { maximum: 2 } }, "2", "3"],
    [{ items: { type: "integer" }, minItems: 1, uniqueItems: true }, "[1,2]", "[1,1]"],
    [{ prefixItems: [{ type: "string" }], items: false }, '["a"]', '["a",1]'],
    [{ items: [{ type: "string" }], additionalItems: { type: "null" } }, '["a",null]', '["a",1]'],
    [{ contains: { const: 1 } }, "[0,1]", "[0]"],
    [{ patternProperties: { "^n": { type: "number" } }, additionalProperties: { type: "string" } }, '{"n1":1,"x":"y"}', '{"x":1}'],
    [{ propertyNames: { maxLength: 1 }, minProperties: 1 }, '{"a":1}', '{"ab":1}'],
    [{ dependentRequired: { a: ["b"] } }, '{"a":1,"b":1}', '{"a":1}'],
    [{ exclusiveMinimum: 1, exclusiveMaximum: 3 }, "2", "3"],
    [{ minimum: 1, exclusiveMinimum: true }, "2", "1"],
    [{ multipleOf: 0.01 }, "19.99", "19.999"],
    [{ type: ["string", "null"] }, "null", "1"],
    [{ maxLength: 1 }, '"𝄞"', '"ab"'],
    [false, "", "1"],
  ];
  for (const [schema, good, bad] of cases) {
    if (good) assert.equal(problem(schema, good), "", JSON.stringify(schema));
    assert.ok(problem(schema, bad), `${JSON.stringify(schema)} takes ${bad}`);
  }
});

test("schemas refer to themselves and to others", () => {
  const list = { $id: "list", properties: { next: { $ref: "#" }, of: { $ref: "https://shop.example/part.json#/definitions/n" } }, additionalProperties: false };
  const references = [{ name: "part.json", text: '{"$id":"https://shop.example/part.json","definitions":{"n":{"$ref":"#/definitions/m"},"m":{"type":"integer"}}}' }];
  assert.equal(problem(list, '{"next":{"next":{"of":1}}}', references), "");
  assert.match(problem(list, '{"next":{"next":{"of":"1"}}}', references), /value\.next\.next\.of must be integer/);
  assert.match(problem(list, '{"of":1}'), /refers to https:\/\/shop\.example/);
  assert.match(problem({ $ref: "#" }, "1"), /nested too deep/);
});
