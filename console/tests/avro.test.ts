import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, write } from "../src/api/json";
import { AvroType } from "../src/decoders/avro";
import { fromHex, hexOf } from "../src/decoders/bytes";

const text = (schema: unknown) => JSON.stringify(schema);

/** The value as JSON text, after writing and reading it. */
function again(schema: unknown, json: string, ...references: unknown[]): string {
  const type = new AvroType([...references.map(text), text(schema)]);
  return write(type.decode(type.encode(parse(json))));
}

function refused(schema: unknown, json: string, why: RegExp): void {
  assert.throws(() => new AvroType([text(schema)]).encode(parse(json)), why);
}

const record = (...fields: unknown[]) => ({ type: "record", name: "R", fields: fields.map((type, at) => ({ name: `f${at}`, type })) });

test("numbers are written as the specification says", () => {
  const long = new AvroType(['"long"']);
  for (const [value, hex] of [["0", "00"], ["-1", "01"], ["1", "02"], ["-64", "7f"], ["64", "8001"], ["9223372036854775807", "feffffffffffffffff01"], ["-9223372036854775808", "ffffffffffffffffff01"]] as const) {
    assert.equal(hexOf(long.encode(parse(value))), hex, value);
    assert.equal(write(long.decode(fromHex(hex))), value);
  }
});

test("integers have the range of their type", () => {
  for (const json of ["2147483648", "-2147483649", "1.5", '"1"', "null"]) refused("int", json, /value must be int/);
  refused("long", "9223372036854775808", /64 bits/);
  assert.equal(again("int", "-2147483648"), "-2147483648");
});

test("a record is the same again, with all types", () => {
  const schema = record("null", "boolean", "int", "long", "float", "double", "string", "bytes", { type: "array", items: "long" }, { type: "map", values: "string" }, ["null", "string"], { type: "enum", name: "E", symbols: ["A", "B"] }, { type: "fixed", name: "F", size: 3 });
  const json = '{"f0":null,"f1":true,"f2":-7,"f3":9007199254740993,"f4":0.5,"f5":1e-300,"f6":"grüße","f7":"\\u0000ÿ","f8":[1,2,3],"f9":{"a":"b"},"f10":"x","f11":"B","f12":"a\u0080ÿ"}';
  assert.equal(again(schema, json), json);
});

test("bytes and fixed are a character for each byte, and no others", () => {
  assert.equal(hexOf(new AvroType(['"bytes"']).encode("\u00ff\u0000")), "04ff00");
  refused("bytes", '"€"', /U\+00FF/);
  refused({ type: "fixed", name: "F", size: 2 }, '"abc"', /2 bytes/);
});

test("names are looked up in the namespace of the name itself", () => {
  const inner = { type: "record", name: "Inner", fields: [{ name: "n", type: "int" }] };
  const outer = { type: "record", name: "com.shop.Outer", fields: [{ name: "a", type: inner }, { name: "b", type: "Inner" }, { name: "c", type: ["null", "com.shop.Inner"] }] };
  const json = '{"a":{"n":1},"b":{"n":2},"c":{"n":3}}';
  assert.equal(again(outer, json), json);
  assert.equal(again({ ...outer, name: "Outer", namespace: "com.shop" }, json), json);
});

test("an empty namespace is none, and a type may contain itself", () => {
  const plain = { type: "record", name: "Plain", namespace: "", fields: [{ name: "n", type: "int" }] };
  const schema = { type: "record", name: "a.List", fields: [{ name: "head", type: plain }, { name: "again", type: "Plain" }, { name: "tail", type: ["null", "List"] }] };
  const json = '{"head":{"n":1},"again":{"n":2},"tail":{"head":{"n":3},"again":{"n":4},"tail":null}}';
  assert.equal(again(schema, json), json);
});

test("schemas refer to others", () => {
  const address = { type: "record", name: "Address", namespace: "shop", fields: [{ name: "city", type: "string" }] };
  const person = { type: "record", name: "Person", namespace: "shop", fields: [{ name: "home", type: "shop.Address" }, { name: "work", type: ["null", "Address"] }] };
  const json = '{"home":{"city":"Köln"},"work":{"city":"Bonn"}}';
  assert.equal(again(person, json, address), json);
  assert.throws(() => again(person, json), /shop.Address is not defined/);
});

test("logical types are read as people write them, and back", () => {
  const of = (type: unknown, logicalType: string, more = {}) => (typeof type === "string" ? { type, logicalType, ...more } : { ...(type as object), logicalType, ...more });
  const fixed = (size: number) => ({ type: "fixed", name: "F", size });
  const cases: [unknown, string][] = [
    [of("int", "date"), '"2026-11-19"'],
    [of("int", "date"), '"1969-12-31"'],
    [of("int", "time-millis"), '"23:59:59.999"'],
    [of("long", "time-micros"), '"00:00:00.000001"'],
    [of("long", "timestamp-millis"), '"2026-11-19T15:00:00.123Z"'],
    [of("long", "timestamp-millis"), '"1969-12-31T23:59:59.999Z"'],
    [of("long", "timestamp-micros"), '"2026-11-19T15:00:00.123456Z"'],
    [of("long", "timestamp-nanos"), '"2026-11-19T15:00:00.123456789Z"'],
    [of("long", "local-timestamp-millis"), '"2026-11-19T15:00:00.000"'],
    [of("long", "timestamp-millis"), "9000000000000000"],
    [of("bytes", "decimal", { precision: 9, scale: 2 }), '"-12.05"'],
    [of("bytes", "decimal", { precision: 40 }), '"12345678901234567890123456789"'],
    [of(fixed(8), "decimal", { precision: 9, scale: 3 }), '"-0.001"'],
    [of("string", "uuid"), '"not checked"'],
    [of(fixed(16), "uuid"), '"0af76519-16cd-43dd-8448-eb211c80319c"'],
    [of(fixed(12), "duration"), '{"months":1,"days":2,"millis":4294967295}'],
    [of("int", "unknown"), "7"],
  ];
  for (const [schema, json] of cases) assert.equal(again(schema, json), json, json);
});

test("logical types are written as other tools write them", () => {
  const hex = (schema: unknown, json: string) => hexOf(new AvroType([text(schema)]).encode(parse(json)));
  assert.equal(hex({ type: "bytes", logicalType: "decimal", precision: 4, scale: 2 }, '"1.28"'), "040080");
  assert.equal(hex({ type: "bytes", logicalType: "decimal", precision: 4, scale: 2 }, '"-1.28"'), "0280");
  assert.equal(hex({ type: "int", logicalType: "date" }, '"1970-01-02"'), "02");
  assert.equal(hex({ type: "long", logicalType: "timestamp-millis" }, '"1970-01-01T01:00:00.001+01:00"'), "02");
  refused({ type: "bytes", logicalType: "decimal", precision: 4, scale: 2 }, '"1.285"', /decimal/);
  refused({ type: "fixed", name: "F", size: 1, logicalType: "decimal", precision: 4 }, '"128"', /decimal/);
  refused({ type: "int", logicalType: "date" }, '"tomorrow"', /date/);
  refused({ type: "long", logicalType: "timestamp-millis" }, '"2026-11-19T15:00:00.1234Z"', /timestamp-millis/);
});

test("a union takes the first branch that fits, or the one that is named", () => {
  const union = ["null", "long", "string", "bytes", { type: "record", name: "a.R", fields: [{ name: "n", type: "int" }] }];
  const hex = (json: string) => hexOf(new AvroType([text(union)]).encode(parse(json)));
  assert.equal(hex("null"), "00");
  assert.equal(hex("7"), "020e");
  assert.equal(hex('"a"'), "040261");
  assert.equal(hex('{"bytes":"a"}'), "060261");
  assert.equal(hex('{"n":1}'), "0802");
  assert.equal(hex('{"a.R":{"n":1}}'), "0802");
  refused(union, '{"n":"x"}', /must be null, long, string, bytes, a\.R/);
  refused(["null", record("int")], '{"f0":"x"}', /value\.f0 must be int/);
});

test("missing, unknown and default fields", () => {
  const schema = { type: "record", name: "R", fields: [{ name: "a", type: "int" }, { name: "b", type: ["null", "int"], default: null }, { name: "toString", type: "string", default: "x" }] };
  assert.equal(again(schema, '{"a":1}'), '{"a":1,"b":null,"toString":"x"}');
  refused(schema, '{"b":1}', /value\.a is missing/);
  refused(schema, '{"a":1,"c":1}', /value\.c is not in the schema/);
  refused(schema, "[]", /value must be object/);
});

test("numbers that JSON does not have are named", () => {
  for (const json of ['"NaN"', '"Infinity"', '"-Infinity"']) assert.equal(again("double", json), json);
  refused("double", '"much"', /must be number/);
});

test("broken data is refused and nothing worse", () => {
  const type = new AvroType([text(record("long", "string", { type: "array", items: "null" }, ["null", "int"]))]);
  for (const hex of ["", "80", "0206616161", "0002610100", "00026100", "000261fe01", "ffffffffffffffffffffff", "00ffffffffffffffff7f"]) assert.throws(() => type.decode(fromHex(hex)));
  assert.throws(() => new AvroType(['{"type":"array","items":"R"}']).decode(fromHex("0200")), /R is not defined/);
});
