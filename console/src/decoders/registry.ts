/** Schemas of the registry by their id, with everything they refer to; each is fetched once. */

import { get, part, Problem } from "../api/client";
import type { SchemaVersion } from "../api/types";
import { AvroType } from "./avro";
import { ProtoFile } from "./protobuf";

/** What a schema refers to, under the name that it uses. */
interface Reference {
  name: string;
  text: string;
}

export interface KnownSchema {
  id: number;
  type: "AVRO" | "PROTOBUF" | "JSON";
  text: string;
  references: Reference[];
  avro?: AvroType;
  proto?: ProtoFile;
}

type Answer = Pick<SchemaVersion, "schema" | "schemaType" | "references">;

const SCHEMAS_MAX = 500;
const REFERENCES_MAX = 50;
const MISSING_MS = 10_000;
const schemas = new Map<number, Promise<KnownSchema>>();

export function schemaById(id: number): Promise<KnownSchema> {
  let schema = schemas.get(id);
  if (!schema) {
    if (schemas.size >= SCHEMAS_MAX) schemas.clear();
    schema = fetched(id);
    schemas.set(id, schema);
    // Bytes that only look like data of a schema come many times, and nobody registers their id.
    schema.catch((error) => window.setTimeout(() => schemas.delete(id), error instanceof Problem && error.status === 404 ? MISSING_MS : 0));
  }
  return schema;
}

/** The latest version of a subject. */
export async function latestSchema(subject: string): Promise<KnownSchema> {
  const { id } = await get<SchemaVersion>(`/registry/subjects/${part(subject)}/versions/latest`);
  return schemaById(id);
}

async function fetched(id: number): Promise<KnownSchema> {
  const answer = await get<Answer>(`/registry/schemas/ids/${id}`);
  const references = await referenced(answer, new Set());
  const texts = [...references.map((one) => one.text), answer.schema];
  const type = (answer.schemaType ?? "AVRO") as KnownSchema["type"];
  const base = { id, type, text: answer.schema, references };
  if (type === "AVRO") return { ...base, avro: new AvroType(texts) };
  return type === "PROTOBUF" ? { ...base, proto: new ProtoFile(texts) } : base;
}

/** What a schema refers to, each after what it refers to itself. */
async function referenced(answer: Answer, seen: Set<string>): Promise<Reference[]> {
  const found: Reference[] = [];
  for (const { name, subject, version } of answer.references ?? []) {
    const key = `${subject}/${version}`;
    if (seen.has(key) || seen.size >= REFERENCES_MAX) continue;
    seen.add(key);
    const one = await get<Answer>(`/registry/subjects/${part(subject)}/versions/${version}`);
    found.push(...(await referenced(one, seen)), { name, text: one.schema });
  }
  return found;
}
