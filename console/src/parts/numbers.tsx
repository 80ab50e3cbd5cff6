/** Values that a click copies, exactly and not as they are abbreviated. */

import { createContext, type ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type { Int } from "../api/json";
import * as format from "../format";
import { t } from "../texts";
import { notify } from "./toasts";

/** In tables, Tab goes from row to row's link, and arrow keys go through the values. */
export const InTable = createContext(false);

type Maybe<T> = T | null | undefined;

export function Copyable({ text, title, children, class: kind = "" }: { text: string; title?: string; children?: ComponentChildren; class?: string }) {
  const isInTable = useContext(InTable);
  const copy = (event: Event) => {
    event.preventDefault();
    event.stopPropagation();
    void copyText(text);
  };
  return (
    <button type="button" tabIndex={isInTable ? -1 : 0} class={`copyable ${kind}`} title={title ?? `${text}\n${t.copy.hint}`} onClick={copy}>
      {children ?? text}
    </button>
  );
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyByCommand(text); // `navigator.clipboard` exists in secure contexts only
  }
  notify(t.copy.done(text.length > 60 ? `${text.slice(0, 60)}…` : text));
}

function copyByCommand(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function Unknown() {
  return <span class="unknown" title={t.unknown}>–</span>;
}

/** A zero steps back behind the numbers that say something. */
function kindOf(value: Int): string {
  return Number(value) === 0 ? "number zero" : "number";
}

export function Count({ value }: { value: Maybe<Int> }) {
  if (value === null || value === undefined) return <Unknown />;
  return <Copyable class={kindOf(value)} text={String(value)}>{format.count(value)}</Copyable>;
}

export function Rate({ value }: { value: Maybe<number> }) {
  if (value === null || value === undefined) return <Unknown />;
  return <Copyable class={kindOf(value)} text={String(value)}>{format.compact(value)}</Copyable>;
}

export function Bytes({ value }: { value: Maybe<Int> }) {
  if (value === null || value === undefined) return <Unknown />;
  return <Copyable class={kindOf(value)} text={String(value)}>{format.bytes(value)}</Copyable>;
}

export function Duration({ ms }: { ms: Maybe<Int> }) {
  if (ms === null || ms === undefined) return <Unknown />;
  return <Copyable class="number" text={String(ms)} title={`${ms} ms\n${t.copy.hint}`}>{format.duration(ms)}</Copyable>;
}

export function Time({ ms, isRelative = false }: { ms: Maybe<number>; isRelative?: boolean }) {
  if (ms === null || ms === undefined) return <Unknown />;
  const title = `${format.time(ms)}\n${new Date(ms).toISOString()}\n${ms}\n${t.copy.hint}`;
  return <Copyable class="number" text={String(ms)} title={title}>{isRelative ? format.ago(ms) : format.time(ms)}</Copyable>;
}
