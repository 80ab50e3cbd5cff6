/** Avro schemas with full names, as reading and writing data needs them. */

import { Unreadable } from "./bytes";

export interface Logical {
  type: string;
  scale: number;
}

export type Primitive = "null" | "boolean" | "int" | "long" | "float" | "double" | "string" | "bytes";

export interface AvroField {
  name: string;
  type: AvroNode;
  default?: unknown;
}

export type AvroNode =
  | { kind: Primitive; logical?: Logical }
  | { kind: "record"; name: string; fields: AvroField[] }
  | { kind: "enum"; name: string; symbols: string[] }
  | { kind: "fixed"; name: string; size: number; logical?: Logical }
  | { kind: "array"; items: AvroNode }
  | { kind: "map"; values: AvroNode }
  | { kind: "union"; branches: AvroNode[] }
  | { kind: "name"; names: string[] };

type Schema = string | Schema[] | { type: Schema; name?: string; namespace?: string; fields?: { name: string; type: Schema; default?: unknown }[]; symbols?: string[]; items?: Schema; values?: Schema; size?: number; logicalType?: string; scale?: number };

const PRIMITIVES = new Set(["null", "boolean", "int", "long", "float", "double", "string", "bytes"]);

export class AvroSchema {
  readonly root: AvroNode;
  private readonly named = new Map<string, AvroNode>();

  /** `texts`: referenced schemas first, the schema of the data last. */
  constructor(texts: string[]) {
    let last: AvroNode = { kind: "null" };
    for (const text of texts) last = this.node(JSON.parse(text) as Schema, "");
    this.root = last;
  }

  /** The type itself, where a schema has its name. */
  resolve(node: AvroNode): Exclude<AvroNode, { kind: "name" }> {
    if (node.kind !== "name") return node;
    for (const name of node.names) {
      const found = this.named.get(name);
      if (found && found.kind !== "name") return found;
    }
    throw new Unreadable(`the Avro type ${node.names[0]} is not defined`);
  }

  private node(schema: Schema, space: string): AvroNode {
    if (Array.isArray(schema)) return { kind: "union", branches: schema.map((one) => this.node(one, space)) };
    if (typeof schema === "string") return PRIMITIVES.has(schema) ? { kind: schema as Primitive } : { kind: "name", names: [fullName(schema, space), schema] };
    const logical = schema.logicalType ? { type: schema.logicalType, scale: schema.scale ?? 0 } : undefined;
    const name = fullName(schema.name ?? "", schema.namespace ?? space);
    // A name with dots has its namespace in it, whatever the attribute says.
    const inner = name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : "";
    switch (schema.type) {
      case "record":
      case "error": {
        const fields: AvroField[] = [];
        const record = this.define({ kind: "record", name, fields });
        for (const field of schema.fields ?? []) fields.push({ name: field.name, type: this.node(field.type, inner), ...("default" in field && { default: field.default }) });
        return record;
      }
      case "enum":
        return this.define({ kind: "enum", name, symbols: schema.symbols ?? [] });
      case "fixed":
        return this.define({ kind: "fixed", name, size: schema.size ?? 0, logical });
      case "array":
        return { kind: "array", items: this.node(schema.items ?? "null", space) };
      case "map":
        return { kind: "map", values: this.node(schema.values ?? "null", space) };
    }
    const node = this.node(schema.type, space);
    return logical && PRIMITIVES.has(node.kind) ? { kind: node.kind as Primitive, logical } : node;
  }

  private define(node: AvroNode & { name: string }): AvroNode {
    this.named.set(node.name, node);
    return node;
  }
}

function fullName(name: string, space: string): string {
  return name.includes(".") || !space ? name : `${space}.${name}`;
}

/** What a union calls a branch. */
export function nameOf(node: AvroNode): string {
  return node.kind === "name" ? (node.names[0] ?? "") : "name" in node ? node.name : node.kind;
}
