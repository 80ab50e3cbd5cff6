/** JSON as Avro data, checked while it is written. */

import { t } from "../texts";
import { nameOf, type AvroField, type AvroNode, type AvroSchema, type Logical } from "./avro-schema";
import { fromLatin, integerOf, numberOf, objectAt, Writer, wrong } from "./writing";
import { readBytes, readNumber } from "./logical";

export class AvroWriter {
  private readonly out = new Writer();

  constructor(private readonly schema: AvroSchema) {}

  encode(value: unknown): Uint8Array {
    this.write(this.schema.root, value, "value");
    return this.out.done();
  }

  private write(node: AvroNode, value: unknown, path: string): void {
    const type = this.schema.resolve(node);
    switch (type.kind) {
      case "null":
        if (value !== null) throw wrong(path, "null");
        return;
      case "boolean":
        if (typeof value !== "boolean") throw wrong(path, "boolean");
        return this.out.byte(value ? 1 : 0);
      case "int":
      case "long":
        return this.out.zigzag(this.integer(value, type.kind, type.logical, path));
      case "float":
      case "double":
        return this.out.float(numberOf(value, path), type.kind === "float" ? 4 : 8);
      case "string":
        if (typeof value !== "string") throw wrong(path, "string");
        return this.sized(new TextEncoder().encode(value));
      case "bytes":
        return this.sized(this.bytes(value, type.logical, undefined, path));
      case "fixed":
        return this.out.bytes(this.bytes(value, type.logical, type.size, path));
      case "record":
        return this.record(type.fields, value, path);
      case "enum": {
        const at = typeof value === "string" ? type.symbols.indexOf(value) : -1;
        if (at < 0) throw wrong(path, type.symbols.join(", "));
        return this.out.zigzag(BigInt(at));
      }
      case "array":
        if (!Array.isArray(value)) throw wrong(path, "array");
        return this.block(value, (item, at) => this.write(type.items, item, `${path}[${at}]`));
      case "map":
        return this.block(Object.entries(objectAt(value, path)), ([key, item]) => {
          this.sized(new TextEncoder().encode(key));
          this.write(type.values, item, `${path}.${key}`);
        });
      case "union":
        return this.union(type.branches, value, path);
    }
  }

  private integer(value: unknown, kind: "int" | "long", logical: Logical | undefined, path: string): bigint {
    const bits = kind === "int" ? 32 : 64;
    const read = logical && typeof value === "string" ? readNumber(logical, value) : integerOf(value);
    if (read === undefined) throw wrong(path, logical ? `${logical.type} (${kind})` : kind);
    if (BigInt.asIntN(bits, read) !== read) throw wrong(path, t.produce.ofBits(kind, bits));
    return read;
  }

  private bytes(value: unknown, logical: Logical | undefined, size: number | undefined, path: string): Uint8Array {
    const isLogical = logical !== undefined && (logical.type === "decimal" || ((logical.type === "uuid" || logical.type === "duration") && size !== undefined));
    const read = isLogical ? readBytes(logical, value, size) : typeof value === "string" ? fromLatin(value) : undefined;
    if (read === undefined || (size !== undefined && read.length !== size)) throw wrong(path, isLogical ? logical.type : t.produce.bytes(size));
    return read;
  }

  private record(fields: AvroField[], value: unknown, path: string): void {
    const given = objectAt(value, path);
    const unknown = Object.keys(given).find((name) => !fields.some((field) => field.name === name));
    if (unknown !== undefined) throw new Error(t.produce.unknownField(`${path}.${unknown}`));
    for (const field of fields) {
      const isGiven = Object.hasOwn(given, field.name);
      if (!isGiven && !("default" in field)) throw new Error(t.produce.missingField(`${path}.${field.name}`));
      this.write(field.type, isGiven ? given[field.name] : field.default, `${path}.${field.name}`);
    }
  }

  /** The first branch that takes the value, or the one that it names, as JSON of Avro does. */
  private union(branches: AvroNode[], value: unknown, path: string): void {
    const start = this.out.length;
    const errors: unknown[] = [];
    for (const [at, branch] of branches.entries()) {
      try {
        return this.branch(at, branch, value, path);
      } catch (error) {
        this.out.length = start;
        if (nameOf(branch) !== "null") errors.push(error);
      }
    }
    const names = value !== null && typeof value === "object" && !Array.isArray(value) ? Object.keys(value) : [];
    const named = names.length === 1 ? branches.findIndex((branch) => this.isCalled(branch, names[0] as string)) : -1;
    if (named >= 0) return this.branch(named, branches[named] as AvroNode, (value as Record<string, unknown>)[names[0] as string], path);
    if (errors.length === 1 && value !== null) throw errors[0];
    throw wrong(path, branches.map(nameOf).join(", "));
  }

  private branch(at: number, branch: AvroNode, value: unknown, path: string): void {
    this.out.zigzag(BigInt(at));
    this.write(branch, value, path);
  }

  private isCalled(branch: AvroNode, name: string): boolean {
    const full = nameOf(this.schema.resolve(branch));
    return full === name || full.split(".").pop() === name;
  }

  private sized(bytes: Uint8Array): void {
    this.out.zigzag(BigInt(bytes.length));
    this.out.bytes(bytes);
  }

  private block<Item>(items: Item[], write: (item: Item, at: number) => void): void {
    if (items.length > 0) this.out.zigzag(BigInt(items.length));
    items.forEach(write);
    this.out.zigzag(0n);
  }
}
