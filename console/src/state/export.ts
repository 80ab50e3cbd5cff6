/** The list of messages as a file, with values whole as far as that is reasonable. */

import { get, part, Problem } from "../api/client";
import { write } from "../api/json";
import type { Message } from "../api/types";
import { bytesOf, decode, type DecoderName } from "../decoders/decode";
import { headerText, type Row } from "./browse";
import { table } from "./csv";

/** Cut values are loaded up to this size together; the others stay cut, and the file says so. */
const WHOLE_BYTES_MAX = 64 << 20;
const LOADED_AT_ONCE = 4;

export type FileKind = "jsonl" | "csv";

/** Save the rows; returns how many values are still cut. */
export async function save(kind: FileKind, listed: Row[], valueAs: DecoderName): Promise<number> {
  const rows = await whole(listed, valueAs);
  const text = kind === "csv" ? csv(rows) : rows.map((row) => write(exported(row))).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/jsonl" }));
  link.download = `${rows[0]?.message.topic ?? "messages"}-${new Date().toISOString().replaceAll(":", "-")}.${kind}`;
  link.click();
  URL.revokeObjectURL(link.href);
  return rows.filter((row) => row.message.is_cut).length;
}

async function whole(listed: Row[], valueAs: DecoderName): Promise<Row[]> {
  const rows = [...listed];
  let left = WHOLE_BYTES_MAX;
  const wanted = listed.flatMap(({ message }, at) => (message.is_cut && (left -= message.value_bytes ?? 0) >= 0 ? [at] : []));
  const load = async (): Promise<void> => {
    for (let at = wanted.shift(); at !== undefined; at = wanted.shift()) rows[at] = await loaded(rows[at] as Row, valueAs);
  };
  await Promise.all(Array.from({ length: LOADED_AT_ONCE }, load));
  return rows;
}

/** The whole message; as it is where the node refuses it, as it does when retention has removed it. */
async function loaded(row: Row, valueAs: DecoderName): Promise<Row> {
  const { topic, partition, offset } = row.message;
  try {
    const message = await get<Message>(`/v1/topics/${part(topic)}/messages/${partition}/${offset}`, { encoding: "base64", isolation: "uncommitted" });
    return { ...row, message, value: await decode(bytesOf(message.value, message.value_encoding), valueAs) };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return row;
  }
}

function exported({ message, key, value }: Row) {
  return { ...message, is_cut: message.is_cut ?? false, key_text: key.as === "null" ? null : key.text, value_text: value.as === "null" ? null : value.text, value_as: value.as, headers: message.headers.map((header) => ({ name: header.name, value: headerText(header) })) };
}

function csv(rows: Row[]): string {
  const head = ["time", "partition", "offset", "key", "value", "cut"];
  return table([head, ...rows.map(({ message, key, value }) => [new Date(message.timestamp).toISOString(), message.partition, message.offset, key.text, value.text, message.is_cut ? "cut" : ""])]);
}
