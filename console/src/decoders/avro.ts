/** Avro: binary data by its schema, read and written. */

import { AvroSchema, type AvroNode, type Logical } from "./avro-schema";
import { AvroWriter } from "./avro-writer";
import { integer, latin, Reader, Unreadable } from "./bytes";
import { shownBytes, shownNumber } from "./logical";

const DEPTH_MAX = 100;

export class AvroType {
  private readonly schema: AvroSchema;

  /** `texts`: referenced schemas first, the schema of the data last. */
  constructor(texts: string[]) {
    this.schema = new AvroSchema(texts);
  }

  decode(bytes: Uint8Array): unknown {
    const reader = new Reader(bytes);
    const value = this.read(this.schema.root, reader, 0);
    if (reader.left > 0) throw new Unreadable(`${reader.left} bytes follow the Avro value`);
    return value;
  }

  /** What `decode` returns as data again; raises with the path to what does not fit. */
  encode(value: unknown): Uint8Array {
    return new AvroWriter(this.schema).encode(value);
  }

  private read(node: AvroNode, reader: Reader, depth: number): unknown {
    if (depth > DEPTH_MAX) throw new Unreadable(`the Avro value is nested more than ${DEPTH_MAX} levels deep`);
    const type = this.schema.resolve(node);
    switch (type.kind) {
      case "null":
        return null;
      case "boolean":
        return reader.byte() === 1;
      case "int":
      case "long":
        return type.logical ? shownNumber(type.logical, reader.zigzag()) : integer(reader.zigzag());
      case "float":
        return reader.float(4, true);
      case "double":
        return reader.float(8, true);
      case "string":
        return reader.text(Number(reader.zigzag()));
      case "bytes":
        return shown(type.logical, reader.take(Number(reader.zigzag())));
      case "fixed":
        return shown(type.logical, reader.take(type.size));
      case "record":
        return Object.fromEntries(type.fields.map((field) => [field.name, this.read(field.type, reader, depth + 1)]));
      case "enum":
        return chosen(type.symbols, reader, "enum has no symbol");
      case "array":
        return this.blocks(reader, () => this.read(type.items, reader, depth + 1));
      case "map":
        return Object.fromEntries(this.blocks(reader, () => [reader.text(Number(reader.zigzag())), this.read(type.values, reader, depth + 1)] as const));
      case "union":
        return this.read(chosen(type.branches, reader, "union has no branch"), reader, depth + 1);
    }
  }

  private blocks<Item>(reader: Reader, item: () => Item): Item[] {
    const items: Item[] = [];
    for (;;) {
      let amount = Number(reader.zigzag());
      if (amount === 0) return items;
      if (amount < 0) {
        amount = -amount;
        reader.zigzag();
      }
      if (amount > reader.left + 1) throw new Unreadable(`the Avro block claims ${amount} items and ${reader.left} bytes are left`);
      for (let at = 0; at < amount; at++) items.push(item());
    }
  }
}

function chosen<Item>(items: Item[], reader: Reader, what: string): Item {
  const at = Number(reader.zigzag());
  const item = items[at];
  if (item === undefined) throw new Unreadable(`the Avro ${what} ${at}`);
  return item;
}

/** Other bytes are text with a character for each, as in the JSON of Avro. */
function shown(logical: Logical | undefined, bytes: Uint8Array): unknown {
  return (logical && shownBytes(logical, bytes)) ?? latin(bytes);
}
