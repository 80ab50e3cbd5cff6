/** MessagePack and CBOR: self-describing binary formats. */

import { write } from "../api/json";
import { fromBase64, hexOf, integer, Reader, toBase64, Unreadable } from "./bytes";

const DEPTH_MAX = 100;
const BREAK = 0xff; // ends what has an indefinite length in CBOR

export function decodeMessagePack(bytes: Uint8Array): unknown {
  return whole(bytes, messagePack, "MessagePack");
}

export function decodeCbor(bytes: Uint8Array): unknown {
  return whole(bytes, cbor, "CBOR");
}

function whole(bytes: Uint8Array, read: (reader: Reader, depth: number) => unknown, name: string): unknown {
  const reader = new Reader(bytes);
  const value = read(reader, 0);
  if (reader.left > 0) throw new Unreadable(`${reader.left} bytes follow the ${name} value`);
  return value;
}

function items(reader: Reader, amount: number, item: () => unknown): unknown[] {
  if (amount > reader.left) throw new Unreadable(`${amount} items are claimed and ${reader.left} bytes are left`);
  return Array.from({ length: amount }, item);
}

function entries(reader: Reader, amount: number, item: () => unknown): Record<string, unknown> {
  return Object.fromEntries(items(reader, amount, () => [keyText(item()), item()]) as [string, unknown][]);
}

/** Keys may be anything; those of JSON are texts. */
function keyText(key: unknown): string {
  return typeof key === "string" ? key : write(key);
}

function messagePack(reader: Reader, depth: number): unknown {
  if (depth > DEPTH_MAX) throw new Unreadable(`the value is nested more than ${DEPTH_MAX} levels deep`);
  const inner = () => messagePack(reader, depth + 1);
  const byte = reader.byte();
  if (byte < 0x80) return byte;
  if (byte < 0x90) return entries(reader, byte & 15, inner);
  if (byte < 0xa0) return items(reader, byte & 15, inner);
  if (byte < 0xc0) return reader.text(byte & 31);
  if (byte >= 0xe0) return byte - 256;
  const size = (at: number) => [1, 2, 4][at] as 1 | 2 | 4;
  if (byte === 0xc0) return null;
  if (byte === 0xc2 || byte === 0xc3) return byte === 0xc3;
  if (byte >= 0xc4 && byte <= 0xc6) return toBase64(reader.take(reader.number(size(byte - 0xc4))));
  if (byte >= 0xc7 && byte <= 0xc9) return extension(reader, reader.number(size(byte - 0xc7)));
  if (byte === 0xca || byte === 0xcb) return reader.float(byte === 0xca ? 4 : 8);
  if (byte >= 0xcc && byte <= 0xce) return reader.number(size(byte - 0xcc));
  if (byte === 0xcf || byte === 0xd3) return integer(reader.long(byte === 0xd3));
  if (byte >= 0xd0 && byte <= 0xd2) return reader.number(size(byte - 0xd0), true);
  if (byte >= 0xd4 && byte <= 0xd8) return extension(reader, 1 << (byte - 0xd4));
  if (byte >= 0xd9 && byte <= 0xdb) return reader.text(reader.number(size(byte - 0xd9)));
  if (byte === 0xdc || byte === 0xdd) return items(reader, reader.number(byte === 0xdc ? 2 : 4), inner);
  if (byte === 0xde || byte === 0xdf) return entries(reader, reader.number(byte === 0xde ? 2 : 4), inner);
  throw new Unreadable(`byte ${byte} begins no MessagePack value`);
}

function extension(reader: Reader, length: number): unknown {
  return { extension: reader.number(1, true), data: toBase64(reader.take(length)) };
}

function cbor(reader: Reader, depth: number): unknown {
  if (depth > DEPTH_MAX) throw new Unreadable(`the value is nested more than ${DEPTH_MAX} levels deep`);
  const inner = () => cbor(reader, depth + 1);
  const first = reader.byte();
  const kind = first >> 5;
  const low = first & 31;
  if (kind === 7) return simple(reader, low);
  if (kind === 6) return tagged(cborSize(reader, low), inner());
  if (low === 31) return indefinite(reader, kind, inner);
  const size = cborSize(reader, low);
  const amount = Number(size);
  if (kind === 0) return integer(size);
  if (kind === 1) return integer(-1n - size);
  if (kind === 2) return toBase64(reader.take(amount));
  if (kind === 3) return reader.text(amount);
  if (kind === 4) return items(reader, amount, inner);
  return entries(reader, amount, inner);
}

/** Large integers come as bytes; what other tags say is left out. */
function tagged(tag: bigint, value: unknown): unknown {
  if ((tag !== 2n && tag !== 3n) || typeof value !== "string") return value;
  const bytes = fromBase64(value);
  const size = bytes.length === 0 ? 0n : BigInt(`0x${hexOf(bytes)}`);
  return integer(tag === 2n ? size : -1n - size);
}

function cborSize(reader: Reader, low: number): bigint {
  if (low < 24) return BigInt(low);
  if (low === 27) return reader.long();
  if (low > 27) throw new Unreadable(`the CBOR length ${low} is reserved`);
  return BigInt(reader.number([1, 2, 4][low - 24] as 1 | 2 | 4));
}

function indefinite(reader: Reader, kind: number, inner: () => unknown): unknown {
  if (kind < 2) throw new Unreadable("a CBOR integer cannot be of indefinite length");
  const parts: unknown[] = [];
  while (reader.bytes[reader.at] !== BREAK) {
    const begin = (reader.bytes[reader.at] ?? 0) >> 5;
    if (kind < 4 && begin !== kind) throw new Unreadable("a part of a CBOR string has another type");
    parts.push(inner());
  }
  reader.byte();
  if (kind === 2) return toBase64(Uint8Array.from(parts.flatMap((one) => [...fromBase64(String(one))])));
  if (kind === 3) return parts.join("");
  if (kind === 4) return parts;
  if (parts.length % 2 > 0) throw new Unreadable("a CBOR map ends after a key");
  const pairs = parts.flatMap((key, at) => (at % 2 ? [] : [[keyText(key), parts[at + 1]] as [string, unknown]]));
  return Object.fromEntries(pairs);
}

function simple(reader: Reader, low: number): unknown {
  if (low === 20 || low === 21) return low === 21;
  if (low === 22 || low === 23) return null;
  if (low < 20) return { simple: low };
  if (low === 24) return { simple: reader.byte() };
  if (low === 25) return half(reader.number(2));
  if (low === 26) return reader.float(4);
  if (low === 27) return reader.float(8);
  throw new Unreadable(`the CBOR value ${low} is not known`);
}

function half(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
}
