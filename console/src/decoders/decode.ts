/** Bytes of keys, values and headers as something to read, with the reason why a decoder could not. */

import { parse, write } from "../api/json";
import { t } from "../texts";
import { fromBase64, hexDump, Reader, Unreadable, utf8 } from "./bytes";
import { decodeCbor, decodeMessagePack } from "./packed";
import { ProtoFile } from "./protobuf";
import { schemaById, type KnownSchema } from "./registry";

export const DECODERS = ["auto", "json", "schema", "text", "messagepack", "cbor", "protobuf", "hex"] as const;
export type DecoderName = (typeof DECODERS)[number];

export interface Tried {
  decoder: string;
  why: string;
}

export interface Decoded {
  /** What the bytes turned out to be. */
  as: string;
  text: string;
  isJson: boolean;
  /** For filters: a value where there is one, else the text. */
  value: unknown;
  schema?: { id: number; type: string; text: string; message?: number[] };
  /** Decoders that could not, and why. */
  tried: Tried[];
}

type Result = Omit<Decoded, "tried">;
type Decoder = (bytes: Uint8Array, isCut: boolean) => Result | Promise<Result>;

export function bytesOf(text: string | null, encoding: string): Uint8Array | null {
  if (text === null) return null;
  return encoding === "base64" ? fromBase64(text) : new TextEncoder().encode(text);
}

/** `isCut`: the end of the bytes is missing. */
export async function decode(bytes: Uint8Array | null, choice: DecoderName, isCut = false): Promise<Decoded> {
  if (bytes === null) return { as: "null", text: "", isJson: false, value: null, tried: [] };
  if (bytes.length === 0) return { as: "empty", text: "", isJson: false, value: "", tried: [] };
  const tried: Tried[] = [];
  for (const name of choice === "auto" ? AUTO : [choice, "hex"]) {
    try {
      return { ...(await (BY_NAME[name] as Decoder)(bytes, isCut)), tried };
    } catch (error) {
      tried.push({ decoder: name === "plain" ? "text" : name, why: (error as Error).message });
    }
  }
  return { ...hex(bytes), tried };
}

const AUTO = ["schema", "json", "plain"];
const BY_NAME: Record<string, Decoder> = {
  json: (bytes) => jsonText(utf8(bytes)),
  schema: bySchema,
  plain: (bytes) => {
    if (bytes.includes(0)) throw new Unreadable("it contains zero bytes, as binary data does");
    return plainText(bytes);
  },
  text: plainText,
  messagepack: (bytes) => structured("messagepack", decodeMessagePack(bytes)),
  cbor: (bytes) => structured("cbor", decodeCbor(bytes)),
  protobuf: (bytes) => structured("protobuf", new ProtoFile(["message Unknown {}"]).decode(bytes, [0])),
  hex,
};

function plainText(bytes: Uint8Array): Result {
  const text = utf8(bytes);
  return { as: "text", text, isJson: false, value: text };
}

function hex(bytes: Uint8Array): Result {
  const text = hexDump(bytes);
  return { as: "hex", text, isJson: false, value: text };
}

function jsonText(text: string): Result {
  return { as: "json", text, isJson: true, value: parse(text) };
}

function structured(as: string, value: unknown): Result {
  return { as, text: write(value), isJson: true, value };
}

/** The framing of schema registries: a zero, the id of the schema, the data. */
async function bySchema(bytes: Uint8Array, isCut: boolean): Promise<Result> {
  const reader = new Reader(bytes);
  if (bytes.length < 5 || reader.byte() !== 0) throw new Unreadable("it does not begin with a zero byte and the id of a schema");
  const schema = await schemaById(reader.number(4));
  try {
    return bySchemaOf(schema, reader);
  } catch (error) {
    if (!isCut) throw error;
    return { as: schema.type.toLowerCase(), text: t.content.cut(schema.type, schema.id), isJson: false, value: undefined, schema: { id: schema.id, type: schema.type, text: schema.text } };
  }
}

function bySchemaOf(schema: KnownSchema, reader: Reader): Result {
  const shown = { id: schema.id, type: schema.type, text: schema.text };
  if (schema.avro) return { ...structured("avro", schema.avro.decode(reader.take(reader.left))), schema: shown };
  if (!schema.proto) return { ...jsonText(reader.text(reader.left)), as: "json schema", schema: shown };
  const message = messageIndexes(reader);
  return { ...structured("protobuf", schema.proto.decode(reader.take(reader.left), message)), schema: { ...shown, message } };
}

function messageIndexes(reader: Reader): number[] {
  const amount = Number(reader.zigzag());
  if (amount === 0) return [0];
  if (amount < 0 || amount > 64) throw new Unreadable(`${amount} message indexes are claimed`);
  return Array.from({ length: amount }, () => Number(reader.zigzag()));
}
