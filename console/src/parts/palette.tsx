/** The command palette (Ctrl K): pages, topics, groups and actions by name. */

import { signal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { get, isAbort, Problem, type Query } from "../api/client";
import { page } from "../state/address";
import { mayAny } from "../state/person";
import { switchTheme } from "../state/theme";
import { t } from "../texts";
import { Dialog } from "./dialog";
import { Icon, type IconName } from "./icons";
import { visiblePages } from "./navigation";
import { openHelp } from "./shortcuts";
import { Marked } from "./text";

interface Entry {
  title: string;
  kind: string;
  icon: IconName;
  run: () => void;
}

const FOUND_MAX = 6;
const TYPING_MS = 120;
export const isPaletteOpen = signal(false);

export function openPalette(): void {
  isPaletteOpen.value = true;
}

export function Palette() {
  return isPaletteOpen.value ? <OpenPalette /> : null;
}

function OpenPalette() {
  const { route } = useLocation();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [isWaiting, setWaiting] = useState(false);
  const found = useFound(text, route);
  const fixed = matching(fixedEntries(route), text);
  const entries = [...fixed, ...matching(found.entries, text)];
  // What was found before the last key is not what Enter means.
  const isKnown = at < fixed.length || found.text === text;
  const close = () => (isPaletteOpen.value = false);
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    entry.run();
  };
  const press = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) setAt((at + step + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter") isKnown ? run(entries[at]) : setWaiting(true);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    if (!isWaiting || !isKnown) return;
    setWaiting(false);
    run(entries[at]);
  }, [isWaiting, isKnown]);
  useLayoutEffect(() => document.getElementById(`palette-${at}`)?.scrollIntoView({ block: "nearest" }), [at, entries.length]);
  return (
    <Dialog title={t.palette.title} onClose={close} kind="palette">
      <input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={entries.length > 0 ? `palette-${at}` : undefined} aria-label={t.palette.title} placeholder={t.palette.hint} value={text} autofocus onKeyDown={press} onInput={(event) => { setText(event.currentTarget.value); setAt(0); setWaiting(false); }} />
      <ul id="palette-list" role="listbox" aria-label={t.palette.results}>
        {entries.map((entry, index) => (
          <li key={`${entry.kind} ${entry.title}`} id={`palette-${index}`} role="option" aria-selected={index === at} onMouseMove={() => setAt(index)} onClick={() => run(entry)}>
            <Icon name={entry.icon} /><Marked text={entry.title} /><span class="muted">{entry.kind}</span>
          </li>
        ))}
        {entries.length === 0 && <li class="muted" role="option" aria-selected="false">{t.list.noMatch}</li>}
      </ul>
    </Dialog>
  );
}

function fixedEntries(route: (url: string) => void): Entry[] {
  const pages = visiblePages().map((one) => ({ title: one.title, kind: t.palette.page, icon: one.icon, run: () => route(one.href) }));
  return [
    ...pages,
    ...(mayAny("topic", "create") ? [{ title: t.topics.create, kind: t.palette.action, icon: "plus" as const, run: () => route(`${page("topics")}?new=1`) }] : []),
    { title: t.palette.theme, kind: t.palette.action, icon: "sun", run: switchTheme },
    { title: t.shortcuts.title, kind: t.palette.action, icon: "keyboard", run: openHelp },
  ];
}

function matching(entries: Entry[], text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/);
  return entries.filter((entry) => words.every((word) => entry.title.toLowerCase().includes(word)));
}

interface Found {
  text: string;
  entries: Entry[];
}

function useFound(text: string, route: (url: string) => void): Found {
  const [found, setFound] = useState<Found>({ text: "", entries: [] });
  useEffect(() => {
    const abort = new AbortController();
    const find = async () => {
      const [topics, groups] = await Promise.all([named("topics", text, abort.signal), named("groups", text, abort.signal)]);
      if (abort.signal.aborted) return;
      setFound({
        text,
        entries: [
          ...topics.map((name) => ({ title: name, kind: t.palette.topic, icon: "topics" as const, run: () => route(page("topics", name)) })),
          ...groups.map((name) => ({ title: name, kind: t.palette.group, icon: "groups" as const, run: () => route(page("groups", name)) })),
        ],
      });
    };
    const timer = window.setTimeout(() => void find(), TYPING_MS);
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [text]);
  return found;
}

/** Names that contain the text; those that begin with it first, so that a whole name finds itself. */
async function named(kind: "topics" | "groups", text: string, signal: AbortSignal): Promise<string[]> {
  const find = async (query: Query) => (await get<Record<string, { name: string }[]>>(`/v1/${kind}`, { ...query, limit: FOUND_MAX }, signal))[kind] ?? [];
  try {
    const [beginning, containing] = await Promise.all([find({ prefix: text }), find({ match: text })]);
    return [...new Set([...beginning, ...containing].map((one) => one.name))].slice(0, FOUND_MAX);
  } catch (error) {
    if (isAbort(error) || error instanceof Problem) return []; // what one may not list is not found
    throw error;
  }
}
