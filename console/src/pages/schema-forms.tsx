/** Forms of schemas: a new version, what it refers to, and whether it is compatible. */

import { useState } from "preact/hooks";
import { part, post } from "../api/client";
import type { SchemaReference, SchemaVersion } from "../api/types";
import { Button, ErrorNote, Note, Panel } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { SelectField, TextField } from "../parts/fields";
import { prettyJson } from "../parts/pretty";
import { Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { t } from "../texts";

const TYPES = ["AVRO", "JSON", "PROTOBUF"];

export function pretty(version: SchemaVersion): string {
  return version.schemaType === "PROTOBUF" ? version.schema : prettyJson(version.schema);
}

/** One reference in each line: its name, the subject, and the version. */
function linesOf(references: SchemaReference[] = []): string {
  return references.map((one) => `${one.name} ${one.subject} ${one.version}`).join("\n");
}

function referencesOf(lines: string): SchemaReference[] {
  return lines.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [, name = "", subject = "", version = ""] = /^(\S+)\s+(\S+)\s+(\d+)$/.exec(line) ?? [];
    if (!version) throw new Error(t.schemas.badReference(line));
    return { name, subject, version: Number(version) };
  });
}

function ReferencesField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return <TextField label={t.schemas.references} name="references" value={value} onChange={onChange} lines={2} hint={t.schemas.referencesHint} />;
}

interface Verdict {
  is_compatible: boolean;
  messages?: string[];
}

// Lines of the API that say which version or level the lines before them are about.
const VERSION_LINE = /^\{oldSchemaVersion: (\d+)\}$/;
const LEVEL_LINE = /^\{compatibility: '(\w+)'\}$/;

/** The findings, each with the version of which it is said. */
function findings(messages: string[]): { version: string; texts: string[] }[] {
  const found: { version: string; texts: string[] }[] = [];
  let texts: string[] = [];
  for (const message of messages) {
    const version = VERSION_LINE.exec(message)?.[1];
    if (version !== undefined) {
      found.push({ version, texts });
      texts = [];
    } else if (!LEVEL_LINE.test(message)) texts.push(message);
  }
  return texts.length > 0 ? [...found, { version: "", texts }] : found;
}

function Findings({ messages }: { messages: string[] }) {
  const level = messages.map((one) => LEVEL_LINE.exec(one)?.[1]).find(Boolean);
  return (
    <>
      {level && <p>{t.schemas.byLevel(level)}</p>}
      {findings(messages).map(({ version, texts }) => (
        <div key={version}>
          {version && <p>{t.schemas.withVersion(version)}</p>}
          <ul>{texts.map((text) => <li key={text}><Marked text={text} /></li>)}</ul>
        </div>
      ))}
    </>
  );
}

export function Check({ subject, latest }: { subject: string; latest: SchemaVersion }) {
  const [text, setText] = useState(pretty(latest));
  const [references, setReferences] = useState(linesOf(latest.references));
  const [verdict, setVerdict] = useState<Verdict>();
  const [error, setError] = useState<Error>();
  const check = async () => {
    setVerdict(undefined);
    setError(undefined);
    try {
      const body = { schema: text, schemaType: latest.schemaType ?? "AVRO", references: referencesOf(references) };
      setVerdict(await post<Verdict>(`/registry/compatibility/subjects/${part(subject)}/versions`, body, { verbose: true }));
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Panel title={t.schemas.tabs["check"]}>
      <TextField label={t.schemas.newer} value={text} onChange={setText} lines={16} />
      <ReferencesField value={references} onChange={setReferences} />
      <div class="toolbar"><Button kind="primary" onClick={() => void check()}>{t.schemas.check}</Button></div>
      {error && <ErrorNote error={error} />}
      {verdict && <Note kind={verdict.is_compatible ? "good" : "bad"}><strong>{verdict.is_compatible ? t.schemas.compatible : t.schemas.incompatible}</strong><Findings messages={verdict.messages ?? []} /></Note>}
    </Panel>
  );
}

export function Register({ subject, latest, onClose, onDone }: { subject?: string; latest?: SchemaVersion; onClose: () => void; onDone: (subject: string) => void }) {
  const [name, setName] = useState(subject ?? "");
  const [type, setType] = useState(latest?.schemaType ?? "AVRO");
  const [text, setText] = useState(latest ? pretty(latest) : "");
  const [references, setReferences] = useState(linesOf(latest?.references));
  const register = async () => {
    const { id } = await post<{ id: number }>(`/registry/subjects/${part(name)}/versions`, { schema: text, schemaType: type, references: referencesOf(references) });
    notify(t.schemas.registered(id));
    onDone(name);
  };
  return (
    <FormDialog title={t.schemas.register} action={t.schemas.register} onClose={onClose} onSubmit={register} kind="wide">
      {!subject && <TextField label={t.schemas.subject} value={name} onChange={setName} placeholder="orders-value" isRequired />}
      <SelectField label={t.schemas.type} value={type} onChange={setType} choices={TYPES} />
      <TextField label={t.schemas.tabs["schema"] ?? ""} value={text} onChange={setText} lines={14} isRequired />
      <ReferencesField value={references} onChange={setReferences} />
    </FormDialog>
  );
}
