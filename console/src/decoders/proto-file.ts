/** Files in the language of Protobuf, as reading and writing data needs them. */

import { Unreadable } from "./bytes";

export interface ProtoField {
  name: string;
  number: number;
  type: string;
  isRepeated: boolean;
  /** Of a repeated number: all of them in one value. */
  isPacked: boolean;
  map?: { key: string; value: string };
}

export interface ProtoMessage {
  name: string;
  fields: Map<number, ProtoField>;
  children: ProtoMessage[];
}

export type ProtoEnum = Map<number, string>;

const TOKEN = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\w.+-]+|[^\s\w]/g;
export const VARINTS: ReadonlySet<string> = new Set(["int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool"]);
export const FIXED_4: ReadonlySet<string> = new Set(["fixed32", "sfixed32", "float"]);
export const FIXED_8: ReadonlySet<string> = new Set(["fixed64", "sfixed64", "double"]);

// What comes with every Protobuf library; clients do not register it.
const KNOWN_TYPES = `syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Any { string type_url = 1; bytes value = 2; }
message Empty {}
message FieldMask { repeated string paths = 1; }
message DoubleValue { double value = 1; }
message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; }
message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; }
message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
message ListValue { repeated Value values = 1; }`;

export class ProtoSchema {
  private readonly messages = new Map<string, ProtoMessage>();
  private readonly enums = new Map<string, ProtoEnum>();
  private top: ProtoMessage[] = [];

  /** `texts`: imported files first, the file of the data last. */
  constructor(texts: string[]) {
    for (const text of [KNOWN_TYPES, ...texts]) this.top = new Parser(text, this.messages, this.enums).file();
  }

  /** The message at these indexes: a top-level message, then nested ones. */
  at(indexes: number[]): ProtoMessage {
    let message: ProtoMessage | undefined;
    let within = this.top;
    for (const index of indexes) {
      message = within[index];
      if (!message) throw new Unreadable(`the schema has no message ${indexes.join(".")}`);
      within = message.children;
    }
    if (!message) throw new Unreadable("no message is named");
    return message;
  }

  /** The indexes of a message of the file, by its name with or without the package. */
  indexesOf(name: string, within = this.top): number[] | undefined {
    for (const [index, message] of within.entries()) {
      if (message.name === name || message.name.endsWith(`.${name}`)) return [index];
      const inner = this.indexesOf(name, message.children);
      if (inner) return [index, ...inner];
    }
    return undefined;
  }

  messageOf(type: string, owner: ProtoMessage | undefined): ProtoMessage | undefined {
    return resolve(this.messages, type, owner);
  }

  enumOf(type: string, owner: ProtoMessage | undefined): ProtoEnum | undefined {
    return type ? resolve(this.enums, type, owner) : undefined;
  }
}

function resolve<Found>(names: Map<string, Found>, type: string, owner: ProtoMessage | undefined): Found | undefined {
  if (type.startsWith(".")) return names.get(type.slice(1));
  const scopes = owner ? owner.name.split(".") : [];
  for (let length = scopes.length; length >= 0; length--) {
    const found = names.get([...scopes.slice(0, length), type].join("."));
    if (found) return found;
  }
  return undefined;
}

/** An entry of a map is a message; its types are looked up where the map is. */
export function mapEntry(map: { key: string; value: string }, owner: ProtoMessage | undefined): ProtoMessage {
  const field = (name: string, number: number, type: string): ProtoField => ({ name, number, type, isRepeated: false, isPacked: false });
  return { name: owner?.name ?? "", children: [], fields: new Map([[1, field("key", 1, map.key)], [2, field("value", 2, map.value)]]) };
}

/** Reads messages, fields and enums of a .proto file; everything else is skipped. */
class Parser {
  private readonly tokens: string[];
  private at = 0;
  private isPacked = true; // repeated numbers, where a field does not say it

  constructor(
    text: string,
    private readonly messages: Map<string, ProtoMessage>,
    private readonly enums: Map<string, Map<number, string>>,
  ) {
    this.tokens = (text.match(TOKEN) ?? []).filter((token) => !token.startsWith("//") && !token.startsWith("/*"));
  }

  file(): ProtoMessage[] {
    const top: ProtoMessage[] = [];
    let space = "";
    // A file without a syntax is one of proto2.
    this.isPacked = this.tokens[0] === "edition" || (this.tokens[0] === "syntax" && (this.tokens[2] ?? "").includes("proto3"));
    while (this.at < this.tokens.length) {
      const token = this.next();
      if (token === "package") {
        space = this.next();
        this.statement();
      } else if (token === "message") top.push(this.message(space));
      else if (token === "enum") this.enumeration(space);
      else if (token === "service" || token === "extend") {
        while (this.next() !== "{");
        this.block();
      } else if (token !== ";") this.statement();
    }
    return top;
  }

  private message(space: string): ProtoMessage {
    const name = [space, this.next()].filter(Boolean).join(".");
    const message: ProtoMessage = { name, fields: new Map(), children: [] };
    this.messages.set(name, message);
    this.next(); // {
    this.body(message);
    return message;
  }

  private body(message: ProtoMessage): void {
    for (let token = this.next(); token !== "}"; token = this.next()) {
      if (token === "message") message.children.push(this.message(message.name));
      else if (token === "enum") this.enumeration(message.name);
      else if (token === "oneof") {
        this.next();
        this.next();
        this.body(message);
      } else if (token === "option" || token === "reserved" || token === "extensions") this.statement();
      else if (token !== ";") this.field(message, token);
    }
  }

  private field(message: ProtoMessage, first: string): void {
    const isRepeated = first === "repeated";
    let type = isRepeated || first === "optional" || first === "required" ? this.next() : first;
    if (type === ".") type += this.next();
    let map: ProtoField["map"];
    if (type === "map") {
      this.next(); // <
      const key = this.next();
      this.next(); // ,
      map = { key, value: this.next() };
      this.next(); // >
    }
    const name = this.next();
    this.next(); // =
    const number = Number(this.next());
    const begin = this.at;
    this.statement();
    const options = this.tokens.slice(begin, this.at);
    const packed = options.indexOf("packed");
    const isPacked = packed < 0 ? this.isPacked : options[packed + 2] === "true";
    message.fields.set(number, { name, number, type, isRepeated, isPacked, map });
  }

  private enumeration(space: string): void {
    const name = [space, this.next()].filter(Boolean).join(".");
    const values = new Map<number, string>();
    this.next(); // {
    for (let token = this.next(); token !== "}"; token = this.next()) {
      if (token === "option" || token === "reserved") this.statement();
      else if (token !== ";") {
        this.next(); // =
        values.set(Number(this.next()), token);
        this.statement();
      }
    }
    this.enums.set(name, values);
  }

  private statement(): void {
    while (this.tokens[this.at] !== undefined && this.tokens[this.at] !== "}") {
      const token = this.next();
      if (token === ";") return;
      if (token === "{") this.block();
    }
  }

  private block(): void {
    for (let depth = 1; depth > 0; ) {
      const token = this.next();
      if (token === "{") depth++;
      else if (token === "}") depth--;
    }
  }

  private next(): string {
    const token = this.tokens[this.at++];
    if (token === undefined) throw new Unreadable("the .proto file ends too early");
    return token;
  }
}
