/** Protobuf: binary data by the text of its .proto file, read and written, or by field numbers alone. */

import { t } from "../texts";
import { hexOf, integer, Reader, toBase64, Unreadable, utf8 } from "./bytes";
import { FIXED_4, FIXED_8, mapEntry, ProtoSchema, VARINTS, type ProtoField, type ProtoMessage } from "./proto-file";
import { ProtoWriter } from "./proto-writer";

const DEPTH_MAX = 64;
const UNKNOWN_BYTES_SHOWN = 4096;

export class ProtoFile {
  private readonly schema: ProtoSchema;

  /** `texts`: imported files first, the file of the data last. */
  constructor(texts: string[]) {
    this.schema = new ProtoSchema(texts);
  }

  /** The indexes of a message by its name; of the first one without a name. */
  indexesOf(name: string): number[] {
    const indexes = name ? this.schema.indexesOf(name) : [0];
    if (!indexes) throw new Unreadable(t.produce.noMessage(name));
    return indexes;
  }

  /** Data of the message at these indexes: a top-level message, then nested ones. */
  decode(bytes: Uint8Array, indexes: number[]): unknown {
    return this.read(this.schema.at(indexes), new Reader(bytes), 0);
  }

  /** What `decode` returns as data again; raises with the path to what does not fit. */
  encode(value: unknown, indexes: number[]): Uint8Array {
    return new ProtoWriter(this.schema).encode(this.schema.at(indexes), value);
  }

  private read(message: ProtoMessage | undefined, reader: Reader, depth: number): unknown {
    if (depth > DEPTH_MAX) throw new Unreadable(`the message is nested more than ${DEPTH_MAX} levels deep`);
    const result: Record<string, unknown> = {};
    while (reader.left > 0) {
      const tag = Number(reader.varint());
      const field = message?.fields.get(tag >>> 3);
      if (tag >>> 3 === 0) throw new Unreadable(`field number 0 at byte ${reader.at}`);
      const name = field?.name ?? String(tag >>> 3);
      this.put(result, name, field, this.value(field, tag & 7, reader, message, depth));
    }
    return result;
  }

  private put(result: Record<string, unknown>, name: string, field: ProtoField | undefined, value: unknown): void {
    const old = result[name];
    if (field?.map && value && typeof value === "object") {
      const entry = value as { key?: unknown; value?: unknown };
      result[name] = { ...(old as object | undefined), [String(entry.key ?? "")]: entry.value ?? null };
    } else if (field?.isRepeated) result[name] = [...((old as unknown[] | undefined) ?? []), ...(Array.isArray(value) ? value : [value])];
    else if (!field && old !== undefined) result[name] = [...(Array.isArray(old) ? old : [old]), value];
    else result[name] = value;
  }

  private value(field: ProtoField | undefined, wire: number, reader: Reader, owner: ProtoMessage | undefined, depth: number): unknown {
    const type = field?.type ?? "";
    if (wire === 0) return this.varint(type, reader, owner);
    if (wire === 1) return type === "double" ? reader.float(8, true) : integer(reader.long(type === "sfixed64", true));
    if (wire === 5) return type === "float" ? reader.float(4, true) : Number(new DataView(reader.take(4).slice().buffer)[type === "sfixed32" ? "getInt32" : "getUint32"](0, true));
    if (wire !== 2) throw new Unreadable(`wire type ${wire} at byte ${reader.at} does not exist`);
    const bytes = reader.take(Number(reader.varint()));
    if (field?.map) return this.read(mapEntry(field.map, owner), new Reader(bytes), depth + 1);
    if (type === "string") return utf8(bytes);
    if (type === "bytes") return toBase64(bytes);
    if (field && (VARINTS.has(type) || FIXED_4.has(type) || FIXED_8.has(type) || this.schema.enumOf(type, owner))) return this.packed(field, bytes, owner, depth);
    const known = field ? this.schema.messageOf(type, owner) : undefined;
    return known || field ? this.read(known, new Reader(bytes), depth + 1) : this.guess(bytes, depth);
  }

  private packed(field: ProtoField, bytes: Uint8Array, owner: ProtoMessage | undefined, depth: number): unknown[] {
    const inner = new Reader(bytes);
    const wire = FIXED_8.has(field.type) ? 1 : FIXED_4.has(field.type) ? 5 : 0;
    const values = [];
    while (inner.left > 0) values.push(this.value(field, wire, inner, owner, depth + 1));
    return values;
  }

  private varint(type: string, reader: Reader, owner: ProtoMessage | undefined): unknown {
    if (type.startsWith("sint")) return integer(reader.zigzag());
    const value = reader.varint();
    if (type === "bool") return value !== 0n;
    if (type.startsWith("int")) return integer(BigInt.asIntN(64, value));
    const names = this.schema.enumOf(type, owner);
    return names?.get(Number(BigInt.asIntN(32, value))) ?? integer(value);
  }

  /** Bytes of an unknown field: text, a message, or plain bytes, whichever they can be. */
  private guess(bytes: Uint8Array, depth: number): unknown {
    try {
      const text = utf8(bytes);
      if (!/[\u0000-\u0008\u000e-\u001f]/.test(text)) return text;
    } catch {
      // Not text; a message or plain bytes, then.
    }
    try {
      return this.read(undefined, new Reader(bytes), depth + 1);
    } catch {
      return hexOf(bytes.subarray(0, UNKNOWN_BYTES_SHOWN));
    }
  }
}
