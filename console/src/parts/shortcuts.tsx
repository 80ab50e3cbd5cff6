/** Keyboard shortcuts, and the dialog that lists them. */

import { signal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { useEffect } from "preact/hooks";
import { switchTheme } from "../state/theme";
import { t } from "../texts";
import { Dialog } from "./dialog";
import { visiblePages } from "./navigation";
import { isPaletteOpen, openPalette } from "./palette";

const SECOND_KEY_MS = 1200;
const isHelpOpen = signal(false);

export function openHelp(): void {
  isHelpOpen.value = true;
}

export function useShortcuts(): void {
  const { route } = useLocation();
  useEffect(() => {
    let goUntil = 0;
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        isPaletteOpen.value = !isPaletteOpen.value;
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || document.querySelector("dialog[open]")) return;
      const going = Date.now() < goUntil;
      goUntil = 0;
      const target = going ? visiblePages().find((one) => one.key === event.key) : undefined;
      if (target) route(target.href);
      else if (event.key === "g") goUntil = Date.now() + SECOND_KEY_MS;
      else if (event.key === "/") document.querySelector<HTMLElement>("input[data-search], [data-search] input")?.focus();
      else if (event.key === "?") openHelp();
      else if (event.key === "T") switchTheme();
      else if (event.key === "n") document.querySelector<HTMLElement>("a[rel=next]")?.click();
      else if (event.key === ".") openPalette();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [route]);
}

export function isTyping(event: KeyboardEvent): boolean {
  return event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]") !== null;
}

export function ShortcutHelp() {
  if (!isHelpOpen.value) return null;
  const rows: [string, string][] = [...t.shortcuts.rows, ...visiblePages().map((one): [string, string] => [`g ${one.key}`, one.title])];
  return (
    <Dialog title={t.shortcuts.title} onClose={() => (isHelpOpen.value = false)}>
      <dl class="shortcuts dialog-body">
        {rows.map(([keys, what]) => (
          <div key={keys}><dt>{keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{what}</dd></div>
        ))}
      </dl>
    </Dialog>
  );
}
