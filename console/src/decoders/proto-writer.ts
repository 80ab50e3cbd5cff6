/** JSON as Protobuf data, checked while it is written. */

import { t } from "../texts";
import { fromBase64 } from "./bytes";
import { FIXED_4, FIXED_8, mapEntry, VARINTS, type ProtoField, type ProtoMessage, type ProtoSchema } from "./proto-file";
import { integerOf, numberOf, objectAt, Writer, wrong } from "./writing";

const BITS: Record<string, [bits: number, isSigned: boolean]> = {
  int32: [32, true], sint32: [32, true], sfixed32: [32, true], uint32: [32, false], fixed32: [32, false],
  int64: [64, true], sint64: [64, true], sfixed64: [64, true], uint64: [64, false], fixed64: [64, false],
};
const INTEGER = /^-?\d+$/;

export class ProtoWriter {
  constructor(private readonly schema: ProtoSchema) {}

  encode(message: ProtoMessage, value: unknown, path = "value"): Uint8Array {
    const out = new Writer();
    const fields = new Map([...message.fields.values()].flatMap((field) => [[field.name, field] as const, [jsonName(field.name), field] as const]));
    for (const [name, item] of Object.entries(objectAt(value, path))) {
      const field = fields.get(name);
      if (!field) throw new Error(t.produce.unknownField(`${path}.${name}`));
      if (item !== null) this.field(out, field, item, message, `${path}.${name}`);
    }
    return out.done();
  }

  private field(out: Writer, field: ProtoField, value: unknown, owner: ProtoMessage, path: string): void {
    const { map } = field;
    if (map) {
      const entry = mapEntry(map, owner);
      for (const [key, item] of Object.entries(objectAt(value, path))) this.sized(out, field.number, this.encode(entry, { key: mapKey(map.key, key), value: item }, `${path}.${key}`));
    } else if (!field.isRepeated) this.tagged(out, field, value, owner, path);
    else if (!Array.isArray(value)) throw wrong(path, "array");
    else if (field.isPacked && this.wireOf(field.type, owner) !== 2) {
      const packed = new Writer();
      value.forEach((item, at) => this.value(packed, field.type, item, owner, `${path}[${at}]`));
      if (value.length > 0) this.sized(out, field.number, packed.done());
    } else value.forEach((item, at) => this.tagged(out, field, item, owner, `${path}[${at}]`));
  }

  private tagged(out: Writer, field: ProtoField, value: unknown, owner: ProtoMessage, path: string): void {
    out.varint(BigInt(field.number * 8 + this.wireOf(field.type, owner)));
    this.value(out, field.type, value, owner, path);
  }

  private wireOf(type: string, owner: ProtoMessage): number {
    if (FIXED_8.has(type)) return 1;
    if (FIXED_4.has(type)) return 5;
    return VARINTS.has(type) || this.schema.enumOf(type, owner) ? 0 : 2;
  }

  private value(out: Writer, type: string, value: unknown, owner: ProtoMessage, path: string): void {
    if (type === "bool") {
      if (typeof value !== "boolean") throw wrong(path, "boolean");
      return out.byte(value ? 1 : 0);
    }
    if (type === "float" || type === "double") return out.float(numberOf(value, path), type === "float" ? 4 : 8);
    if (type in BITS) {
      const number = integer(type, value, path);
      if (type.includes("fixed")) return out.fixed(number, type.endsWith("32") ? 4 : 8);
      return type.startsWith("s") ? out.zigzag(number) : out.varint(number);
    }
    if (type === "string") {
      if (typeof value !== "string") throw wrong(path, "string");
      return lengthAnd(out, new TextEncoder().encode(value));
    }
    if (type === "bytes") return lengthAnd(out, base64(value, path));
    const names = this.schema.enumOf(type, owner);
    if (names) return out.varint(enumValue(names, value, path));
    const message = this.schema.messageOf(type, owner);
    if (!message) throw new Error(t.produce.noMessage(type));
    lengthAnd(out, this.encode(message, value, path));
  }

  private sized(out: Writer, number: number, bytes: Uint8Array): void {
    out.varint(BigInt(number * 8 + 2));
    lengthAnd(out, bytes);
  }
}

function lengthAnd(out: Writer, bytes: Uint8Array): void {
  out.varint(BigInt(bytes.length));
  out.bytes(bytes);
}

/** 64-bit integers may be texts, as in the JSON of Protobuf. */
function integer(type: string, value: unknown, path: string): bigint {
  const [bits, isSigned] = BITS[type] as [number, boolean];
  const read = typeof value === "string" && INTEGER.test(value) ? BigInt(value) : integerOf(value);
  if (read === undefined || (isSigned ? BigInt.asIntN(bits, read) : BigInt.asUintN(bits, read)) !== read) throw wrong(path, t.produce.ofBits(type, bits));
  return read;
}

function enumValue(names: Map<number, string>, value: unknown, path: string): bigint {
  const named = [...names].find(([, name]) => name === value);
  const number = named ? BigInt(named[0]) : integerOf(value);
  if (number === undefined || BigInt.asIntN(32, number) !== number) throw wrong(path, [...names.values()].join(", "));
  return number;
}

function base64(value: unknown, path: string): Uint8Array {
  try {
    if (typeof value === "string") return fromBase64(value);
  } catch {
    // Said below.
  }
  throw wrong(path, "base64");
}

function mapKey(type: string, key: string): unknown {
  return type === "bool" ? key === "true" : key;
}

function jsonName(name: string): string {
  return name.replace(/_([a-z])/g, (_whole, letter: string) => letter.toUpperCase());
}
