/** JSON as data of a registered schema, in the framing of schema registries. */

import { parse } from "../api/json";
import { toBase64 } from "./bytes";
import { JsonSchema } from "./json-schema";
import type { KnownSchema } from "./registry";
import { Writer } from "./writing";

/** `message`: the indexes of a message in a Protobuf schema. */
export function framed(schema: KnownSchema, json: string, message: number[] = [0]): string {
  const value = parse<unknown>(json);
  const out = new Writer();
  out.byte(0);
  for (const shift of [24, 16, 8, 0]) out.byte((schema.id >>> shift) & 255);
  if (schema.avro) out.bytes(schema.avro.encode(value));
  else if (schema.proto) {
    const isFirst = message.length === 1 && message[0] === 0;
    if (isFirst) out.byte(0);
    else for (const number of [message.length, ...message]) out.zigzag(BigInt(number));
    out.bytes(schema.proto.encode(value, message));
  } else {
    new JsonSchema(schema.text, schema.references).check(value);
    out.bytes(new TextEncoder().encode(json));
  }
  return toBase64(out.done());
}
