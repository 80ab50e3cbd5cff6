/** Write a message, new or after an existing one: delay, lane, time to live, headers, schema. */

import { useState } from "preact/hooks";
import { get, part, post } from "../api/client";
import type { Message, Published } from "../api/types";
import type { Decoded } from "../decoders/decode";
import { toForm, type FormEncoding, type FormText } from "../decoders/plain";
import { framed } from "../decoders/encode";
import { latestSchema, schemaById, type KnownSchema } from "../decoders/registry";
import { Button } from "../parts/basics";
import { FormDialog, STAY } from "../parts/dialog";
import { CheckField, SelectField, TextField } from "../parts/fields";
import { prettyJson } from "../parts/pretty";
import { notify } from "../parts/toasts";
import { useLoad } from "../state/load";
import { mayAny } from "../state/person";
import { t } from "../texts";

interface HeaderDraft extends FormText {
  name: string;
}

/** A message to begin with. */
export interface Original {
  message: Message;
  /** Its value as JSON, where that gives the same bytes again. */
  same?: { schema: KnownSchema; json: string; indexes?: number[] };
}

export async function originalOf(message: Message, value: Decoded): Promise<Original> {
  if (!value.schema || message.value === null || message.value_encoding !== "base64") return { message };
  const schema = await schemaById(value.schema.id);
  const indexes = value.schema.message;
  const isSame = encoded(() => framed(schema, value.text, indexes)) === message.value;
  return isSame ? { message, same: { schema, json: prettyJson(value.text), indexes } } : { message };
}

/** Nothing for what cannot be written, such as a value with fields that the schema does not know. */
function encoded(write: () => string): string | undefined {
  try {
    return write();
  } catch {
    return undefined;
  }
}

const SUBJECTS_MAX = 200;
const TEXTS: [FormEncoding, string][] = [["utf8", t.produce.text], ["base64", "base64"]];
const LANES = ["", "critical", "high", "normal", "low", "background"];

export function Produce({ topic, original, onClose }: { topic: string; original?: Original; onClose: () => void }) {
  const from = original?.message;
  const same = original?.same;
  const [key, setKey] = useState<FormText>(() => (from ? toForm(from.key, from.key_encoding, true) : { text: "", encoding: "null" }));
  const [start] = useState(() => (same ? { text: same.json, encoding: "same" } : from ? toForm(from.value, from.value_encoding) : { text: "", encoding: "utf8" }));
  const [value, setValue] = useState(start.text);
  const [valueAs, setValueAs] = useState<string>(start.encoding);
  const [headers, setHeaders] = useState<HeaderDraft[]>(() => from?.headers.map((header) => ({ name: header.name, ...toForm(header.value, header.encoding, true) })) ?? []);
  const [more, setMore] = useState<Record<string, string>>({});
  const [isRepeated, setRepeated] = useState(false);
  const set = (name: string) => (text: string) => setMore({ ...more, [name]: text });
  const send = async () => {
    const sent = await post<Published>(`/v1/topics/${part(topic)}/publish`, await body());
    notify(sent.id ? t.produce.sent(sent.id) : t.produce.scheduled(sent.schedule_id ?? ""));
    return isRepeated ? STAY : undefined;
  };
  const body = async () => ({
    ...(same && valueAs === "same" ? framedValue(same.schema, value, same.indexes) : await contents(valueAs, value, more)),
    ...(key.encoding === "null" ? { key: null } : { key: key.text, key_encoding: key.encoding }),
    ...(headers.length > 0 && { headers: headers.filter((header) => header.name).map(sentHeader) }),
    ...(more["priority"] && { priority: more["priority"] }),
    ...(more["partition"] && { partition: Number(more["partition"]) }),
    ...(more["delay"] && { delay_ms: Math.round(Number(more["delay"]) * 1000) }),
    ...(more["at"] && { deliver_at: new Date(more["at"]).getTime() }),
    ...(more["ttl"] && { ttl_ms: Math.round(Number(more["ttl"]) * 1000) }),
  });
  return (
    <FormDialog title={from ? t.produce.again : t.produce.title} action={t.produce.action} onClose={onClose} onSubmit={send} kind="wide">
      <div class="row">
        <SelectField label={t.produce.keyAs} value={key.encoding} onChange={(encoding) => setKey({ ...key, encoding: encoding as FormEncoding })} choices={[["null", t.produce.noKey], ...TEXTS]} />
        {key.encoding !== "null" && <div class="grow"><TextField label={t.messages.key} name="key" value={key.text} onChange={(text) => setKey({ ...key, text })} /></div>}
      </div>
      <div class="row">
        <SelectField label={t.produce.valueAs} value={valueAs} onChange={setValueAs} choices={[...(same ? [["same", t.produce.same(same.schema.id)] as [string, string]] : []), ...t.produce.formats]} />
        {valueAs === "schema" && <SubjectField value={more["subject"] ?? ""} onChange={set("subject")} />}
        {valueAs === "schema" && <div class="grow"><TextField label={t.produce.message} value={more["message"] ?? ""} onChange={set("message")} hint={t.produce.messageHint} /></div>}
      </div>
      {valueAs !== "null" && <TextField label={t.messages.value} name="value" value={value} onChange={setValue} lines={10} />}
      <fieldset>
        <legend>{t.message.tabs.headers}</legend>
        {headers.map((header, at) => {
          const change = (part: Partial<HeaderDraft>) => setHeaders(headers.map((one, index) => (index === at ? { ...one, ...part } : one)));
          return (
            <div class="row" key={at}>
              <TextField label={t.message.headerName} value={header.name} onChange={(name) => change({ name })} />
              <SelectField label={t.produce.headerAs} value={header.encoding} onChange={(encoding) => change({ encoding: encoding as FormEncoding })} choices={[...TEXTS, ["null", "null"]]} />
              {header.encoding !== "null" && <div class="grow"><TextField label={t.messages.value} value={header.text} onChange={(text) => change({ text })} /></div>}
              <Button icon="trash" aria-label={t.delete} onClick={() => setHeaders(headers.filter((_one, index) => index !== at))} />
            </div>
          );
        })}
        <Button icon="plus" onClick={() => setHeaders([...headers, { name: "", text: "", encoding: "utf8" }])}>{t.produce.header}</Button>
      </fieldset>
      <div class="filter-grid">
        <SelectField label={t.produce.lane} name="priority" value={more["priority"] ?? ""} onChange={set("priority")} choices={LANES.map((lane): [string, string] => [lane, lane || t.default])} />
        <TextField label={t.produce.partition} name="partition" type="number" value={more["partition"] ?? ""} onChange={set("partition")} placeholder={t.produce.byKey} />
        <TextField label={t.produce.delay} name="delay_ms" type="number" value={more["delay"] ?? ""} onChange={set("delay")} />
        <TextField label={t.produce.at} name="deliver_at" type="datetime-local" value={more["at"] ?? ""} onChange={set("at")} />
        <TextField label={t.produce.ttl} name="ttl_ms" type="number" value={more["ttl"] ?? ""} onChange={set("ttl")} />
      </div>
      <CheckField label={t.produce.keepOpen} value={isRepeated} onChange={setRepeated} />
    </FormDialog>
  );
}

function SubjectField({ value, onChange }: { value: string; onChange: (subject: string) => void }) {
  const subjects = useLoad((signal) => (mayAny("subject", "read") ? get<string[]>("/registry/subjects", { limit: SUBJECTS_MAX }, signal) : Promise.resolve([])), []);
  return <div class="grow"><TextField label={t.produce.subject} value={value} onChange={onChange} list={subjects.data} hint={t.produce.subjectHint} isRequired /></div>;
}

function sentHeader({ name, text, encoding }: HeaderDraft) {
  return encoding === "null" ? { name, value: null } : { name, value: text, encoding };
}

function framedValue(schema: KnownSchema, json: string, indexes?: number[]) {
  checkedJson(json);
  return { value: framed(schema, json, indexes), value_encoding: "base64" };
}

async function contents(as: string, value: string, more: Record<string, string>): Promise<{ value: string | null; value_encoding?: string }> {
  if (as === "null") return { value: null };
  if (as === "base64") return { value, value_encoding: "base64" };
  if (as === "json") return { value: checkedJson(value) };
  if (as !== "schema") return { value };
  const schema = await latestSchema(more["subject"] ?? "");
  return framedValue(schema, value, schema.proto?.indexesOf(more["message"] ?? ""));
}

function checkedJson(text: string): string {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(t.produce.notJson((error as Error).message));
  }
  return text;
}

