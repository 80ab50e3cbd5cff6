/** Settings of topics and groups: a table with explanations and defaults, of which some are changed. */

import { useState } from "preact/hooks";
import { get } from "../api/client";
import { write } from "../api/json";
import type { Setting, SettingValue } from "../api/types";
import * as format from "../format";
import { useLoad, type Loaded } from "../state/load";
import { t } from "../texts";
import { Select } from "./fields";
import { SearchBox } from "./table";

const LARGE = 1000;

/** What is typed, by name; `null` restores the default. */
export type Drafts = Record<string, string | null>;

export function useSettings(of: "topics" | "groups"): Loaded<Setting[]> {
  return useLoad(async (signal) => (await get<{ settings: Setting[] }>(`/v1/settings/${of}`, {}, signal)).settings, [of]);
}

/** The typed texts as the values that the API takes. */
export function chosenSettings(settings: Setting[], drafts: Drafts): Record<string, SettingValue> {
  const kinds = new Map(settings.map((setting) => [setting.name, setting.kind]));
  return Object.fromEntries(Object.entries(drafts).map(([name, text]) => [name, valueOf(kinds.get(name) ?? "string", text)]));
}

function valueOf(kind: string, text: string | null): SettingValue {
  if (text === null) return null;
  if (kind === "boolean" || kind === "bool") return text === "true";
  const isNumber = ["int", "long", "double", "float", "short", "number", "integer"].includes(kind);
  return isNumber && text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function shown(value: SettingValue | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : write(value);
}

/** The default, with milliseconds and bytes as people say them, too. */
function defaultOf({ name, default: value }: Setting): string {
  const text = shown(value);
  const number = Number(text);
  if (text === "" || !Number.isInteger(number) || number < LARGE) return `${t.default}: ${text || t.settings.none}`;
  const said = /(^|[_.])ms([_.]|$)/.test(name) ? format.duration(number) : /(^|[_.])bytes([_.]|$)/.test(name) ? format.bytes(number) : "";
  return `${t.default}: ${text}${said && ` (${said})`}`;
}

interface SettingsFormProps {
  settings: Setting[];
  /** What differs from the defaults now. */
  current: Record<string, SettingValue>;
  drafts: Drafts;
  onChange: (drafts: Drafts) => void;
  isReadOnly?: boolean;
}

export function SettingsForm({ settings, current, drafts, onChange, isReadOnly }: SettingsFormProps) {
  const [text, setText] = useState("");
  const words = text.toLowerCase();
  const matching = settings.filter((setting) => setting.name.includes(words) || setting.description.toLowerCase().includes(words));
  return (
    <>
      <div class="toolbar"><SearchBox value={text} label={t.settings.search} onChange={setText} /></div>
      <div class="settings">
        {matching.map((setting) => (
          <SettingRow key={setting.name} setting={setting} current={current} drafts={drafts} onChange={onChange} isReadOnly={isReadOnly} />
        ))}
      </div>
    </>
  );
}

function choicesOf({ kind, choices }: Setting): string[] | undefined {
  if (kind === "boolean" || kind === "bool") return ["true", "false"];
  return kind === "list" && choices ? [...choices, choices.join(",")] : choices;
}

function SettingRow({ setting, current, drafts, onChange, isReadOnly }: SettingsFormProps & { setting: Setting } | (Omit<SettingsFormProps, "settings"> & { setting: Setting })) {
  const { name } = setting;
  const draft = drafts[name];
  const isSet = draft === undefined ? current[name] !== undefined && current[name] !== null : draft !== null;
  const value = draft ?? (draft === null ? "" : shown(current[name]));
  const change = (text: string | null) => {
    const next = { ...drafts };
    if (text === null && current[name] === undefined) delete next[name];
    else next[name] = text;
    onChange(next);
  };
  const choices = choicesOf(setting);
  return (
    <div class={`setting ${isSet ? "set" : ""} ${draft !== undefined ? "changed" : ""}`}>
      <div>
        <code>{name}</code>
        <p class="muted">{setting.description}</p>
      </div>
      <div class="setting-value">
        {isReadOnly ? (
          <code>{value || shown(setting.default)}</code>
        ) : choices ? (
          <Select label={name} value={value} choices={[["", `${t.default}: ${shown(setting.default)}`], ...choices.map((one): [string, string] => [one, one])]} onChange={(text) => change(text === "" ? null : text)} />
        ) : (
          <input aria-label={name} value={value} placeholder={defaultOf(setting)} onInput={(event) => change(event.currentTarget.value === "" ? null : event.currentTarget.value)} />
        )}
        {isSet && !isReadOnly && <button type="button" class="plain" onClick={() => change(null)}>{t.settings.reset}</button>}
      </div>
    </div>
  );
}
