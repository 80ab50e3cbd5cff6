import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, write } from "../src/api/json";
import { fromHex, hexOf } from "../src/decoders/bytes";
import { ProtoFile } from "../src/decoders/protobuf";

const ORDER = `// An order
syntax = "proto3";
package shop.v1;
import "shop/common.proto";
import "google/protobuf/timestamp.proto";
option java_package = "x; message Fake {";
message Order {
  enum Status { option allow_alias = true; UNKNOWN = 0; PAID = 1; ODD = -1; reserved 5; }
  message Line { string sku = 1; sint32 change = 2; }
  int64 id = 1;
  Status status = 2;
  repeated Line lines = 3;
  map<string, int32> counts = 4;
  map<int64, Line> by_number = 5;
  oneof payment { string card = 6; common.Money cash = 7; }
  repeated int32 packed = 8;
  repeated int32 loose = 9 [packed = false, deprecated = true];
  bytes raw = 10;
  double ratio = 11;
  float part = 12;
  fixed64 mark = 13;
  sfixed32 shift = 14;
  bool is_new = 15;
  google.protobuf.Timestamp at = 16;
  .shop.v1.Order parent = 17;
  repeated string tags = 18;
  uint64 large = 19;
  optional string note = 20 [json_name = "remark"];
  map<bool, common.Kind> kinds = 21;
}
service Orders { rpc Get (Order) returns (Order) { option (x) = { a: "}" }; } }
message Second { message Deep { uint32 n = 1; } Deep deep = 1; }
`;
const COMMON = `syntax = "proto3"; package common; enum Kind { NONE = 0; SOME = 2; } message Money { string currency = 1; int64 units = 2; }`;
const file = new ProtoFile([COMMON, ORDER]);

function again(json: string, indexes = [0]): string {
  return write(file.decode(file.encode(parse(json), indexes), indexes));
}

test("a message is the same again, with all kinds of fields", () => {
  const json = '{"id":9007199254740993,"status":"ODD","lines":[{"sku":"a","change":-3},{"sku":"b"}],"counts":{"x":1,"__proto__":2},"by_number":{"-5":{"sku":"c"}},"cash":{"currency":"EUR","units":-7},"packed":[1,-1,300],"loose":[4,5],"raw":"AP8=","ratio":0.1,"part":0.5,"mark":18446744073709551615,"shift":-2,"is_new":true,"at":{"seconds":1795000000,"nanos":5},"parent":{"id":2},"tags":["","ü"],"large":18446744073709551615,"note":"","kinds":{"true":"SOME"}}';
  assert.equal(again(json), json);
});

test("data is what Protobuf writes", () => {
  const hex = (json: string, indexes = [0]) => hexOf(file.encode(parse(json), indexes));
  assert.equal(hex('{"id":150}'), "089601");
  assert.equal(hex('{"status":"PAID"}'), "1001");
  assert.equal(hex('{"status":-1}'), "10ffffffffffffffffff01");
  assert.equal(hex('{"packed":[1,2]}'), "42020102");
  assert.equal(hex('{"loose":[1,2]}'), "48014802");
  assert.equal(hex('{"counts":{"a":1}}'), "22050a01611001");
  assert.equal(hex('{"deep":{"n":1}}', [1]), "0a020801");
  assert.equal(hex('{"n":1}', [1, 0]), "0801");
  assert.equal(hex('{"byNumber":{}}'), "");
});

test("what does not fit is refused with its place", () => {
  const refused = (json: string, why: RegExp) => assert.throws(() => file.encode(parse(json), [0]), why);
  refused('{"id":"x"}', /value\.id must be int64/);
  refused('{"id":9223372036854775808}', /value\.id must be int64, of 64 bits/);
  refused('{"large":-1}', /value\.large must be uint64/);
  refused('{"lines":[{"sku":1}]}', /value\.lines\[0\]\.sku must be string/);
  refused('{"status":"LOST"}', /value\.status must be UNKNOWN, PAID, ODD/);
  refused('{"nothing":1}', /value\.nothing is not in the schema/);
  refused('{"raw":"%"}', /value\.raw must be base64/);
  refused('{"tags":"a"}', /value\.tags must be array/);
  refused('{"counts":{"a":"b"}}', /value\.counts\.a\.value must be int32/);
});

test("messages are found by their names", () => {
  assert.deepEqual(file.indexesOf(""), [0]);
  assert.deepEqual(file.indexesOf("Second"), [1]);
  assert.deepEqual(file.indexesOf("shop.v1.Second.Deep"), [1, 0]);
  assert.deepEqual(file.indexesOf("Line"), [0, 0]);
  assert.throws(() => file.indexesOf("Third"), /no message Third/);
  assert.throws(() => file.decode(fromHex(""), [2]), /no message 2/);
});

test("repeated numbers of proto2 are not packed", () => {
  const old = new ProtoFile(["message M { repeated int32 n = 1; required string s = 2; }"]);
  assert.equal(hexOf(old.encode({ n: [1, 2], s: "" }, [0])), "080108021200");
  assert.equal(write(old.decode(fromHex("0a020102"), [0])), '{"n":[1,2]}');
});

test("without a schema fields have their numbers", () => {
  const unknown = new ProtoFile(["message Unknown {}"]);
  assert.equal(write(unknown.decode(fromHex("0896011203616263 1a020801".replace(" ", "")), [0])), '{"1":150,"2":"abc","3":{"1":1}}');
});

test("broken data is refused and nothing worse", () => {
  for (const hex of ["08", "0a", "0aff", "00", "0b", "ffffffffffffffffffffff", "12ffffffff0f"]) assert.throws(() => file.decode(fromHex(hex), [0]), /./, );
  assert.throws(() => new ProtoFile(["message M {"]), /ends too early/);
});
