import assert from "node:assert/strict";
import { test } from "node:test";
import { write } from "../src/api/json";
import { fromHex } from "../src/decoders/bytes";
import { decodeCbor, decodeMessagePack } from "../src/decoders/packed";

// From appendix A of RFC 8949.
const CBOR: [string, string][] = [
  ["00", "0"], ["1818", "24"], ["1bffffffffffffffff", "18446744073709551615"], ["3bffffffffffffffff", "-18446744073709551616"], ["c249010000000000000000", "18446744073709551616"], ["c349010000000000000000", "-18446744073709551617"],
  ["f90000", "0"], ["f93c00", "1"], ["f97bff", "65504"], ["f90001", "5.960464477539063e-8"], ["fa47c35000", "100000"], ["fb3ff199999999999a", "1.1"], ["f97c00", '"Infinity"'], ["f97e00", '"NaN"'],
  ["f4", "false"], ["f5", "true"], ["f6", "null"], ["f7", "null"], ["f0", '{"simple":16}'], ["f8ff", '{"simple":255}'], ["c074323031332d30332d32315432303a30343a30305a", '"2013-03-21T20:04:00Z"'],
  ["4401020304", '"AQIDBA=="'], ["60", '""'], ["62c3bc", '"ü"'], ["80", "[]"], ["8301820203820405", "[1,[2,3],[4,5]]"], ["a201020304", '{"1":2,"3":4}'], ["a26161016162820203", '{"a":1,"b":[2,3]}'],
  ["5f42010243030405ff", '"AQIDBAU="'], ["7f657374726561646d696e67ff", '"streaming"'], ["9fff", "[]"], ["9f018202039f0405ffff", "[1,[2,3],[4,5]]"], ["bf61610161629f0203ffff", '{"a":1,"b":[2,3]}'], ["a1820102f5", '{"[1,2]":true}'],
];

const MESSAGE_PACK: [string, string][] = [
  ["c0", "null"], ["c3", "true"], ["7f", "127"], ["e0", "-32"], ["ccff", "255"], ["cfffffffffffffffff", "18446744073709551615"], ["d3ffffffffffffffff", "-1"], ["d0ff", "-1"], ["ca3f800000", "1"], ["cb3ff199999999999a", "1.1"],
  ["a3616263", '"abc"'], ["d90161", '"a"'], ["c40201ff", '"Af8="'], ["93010203", "[1,2,3]"], ["dc00020102", "[1,2]"], ["82a161 01a162c2".replaceAll(" ", ""), '{"a":1,"b":false}'], ["8101a178", '{"1":"x"}'], ["d6ff00000001", '{"extension":-1,"data":"AAAAAQ=="}'], ["c70203abcd", '{"extension":3,"data":"q80="}'],
];

test("CBOR is read as its standard says", () => {
  for (const [hex, json] of CBOR) assert.equal(write(decodeCbor(fromHex(hex))), json, hex);
});

test("MessagePack is read as its specification says", () => {
  for (const [hex, json] of MESSAGE_PACK) assert.equal(write(decodeMessagePack(fromHex(hex))), json, hex);
});

test("broken data is refused and nothing worse", () => {
  for (const hex of ["", "18", "62c3", "5bffffffffffffffff", "9f", "bf01ff", "1c", "0000", "1f", "5f01ff", "ff", "81".repeat(200), "9a7fffffff"]) assert.throws(() => decodeCbor(fromHex(hex)), undefined);
  for (const hex of ["", "c1", "a261", "dd7fffffff", "df7fffffff", "0000", "91".repeat(200), "a1ff"]) assert.throws(() => decodeMessagePack(fromHex(hex)), undefined);
});
