/** Contents of messages as text: control and direction characters are shown, not obeyed. */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { t } from "../texts";
import { Button } from "./basics";
import { JSON_TOKEN, prettyJson } from "./pretty";

// Control characters other than tab and line feed, direction marks, and what has no width.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;
const MARKS_MAX = 2000;
const HIGHLIGHTED_CHARS_MAX = 100_000;
const SHOWN_CHARS = 200_000;

export function Marked({ text }: { text: string }) {
  return <bdi>{marked(text)}</bdi>;
}

function marked(text: string): ComponentChildren {
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (parts.length > MARKS_MAX) break;
    const code = numbered(match[0]);
    parts.push(text.slice(at, match.index), <span class="mark" title={code}>{code}</span>);
    at = match.index + match[0].length;
  }
  return parts.length === 0 ? text : [...parts, text.slice(at).replace(HIDDEN, "�")];
}

/** A name as people see and can type it: hidden characters and line breaks by their numbers. */
export function visible(name: string): string {
  return name.replace(HIDDEN, numbered).replace(/[\t\n]/g, numbered);
}

function numbered(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

function highlighted(text: string): ComponentChildren {
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const match of text.matchAll(JSON_TOKEN)) {
    const token = match[0];
    const end = match.index + token.length;
    const kind = token[0] === '"' ? (text[end] === ":" ? "name" : "string") : /^[-\d]/.test(token) ? "number" : /^[a-z]/.test(token) ? "word" : "";
    if (!kind) continue;
    parts.push(text.slice(at, match.index), <span class={`json-${kind}`}>{marked(token)}</span>);
    at = end;
  }
  return [...parts, text.slice(at)];
}

/** A long text is cut until one asks for all of it. */
export function Content({ text, isJson, label }: { text: string; isJson: boolean; label: string }) {
  const [isWhole, setWhole] = useState(false);
  const pretty = useMemo(() => (isJson ? prettyJson(text) : text), [text, isJson]);
  const shown = isWhole ? pretty : pretty.slice(0, SHOWN_CHARS);
  return (
    <>
      <pre class="content" tabIndex={0} aria-label={label}>{isJson && shown.length <= HIGHLIGHTED_CHARS_MAX ? highlighted(shown) : marked(shown)}</pre>
      {shown.length < pretty.length && <Button onClick={() => setWhole(true)}>{t.content.all(pretty.length)}</Button>}
    </>
  );
}

const PREVIEW_CHARS = 240;

export function Preview({ text }: { text: string }) {
  return <span class="mono preview"><Marked text={text.slice(0, PREVIEW_CHARS).replace(/\s+/g, " ")} /></span>;
}
