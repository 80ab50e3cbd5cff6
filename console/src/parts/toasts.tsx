/** Short notes at the edge of the window, also read to people who do not see them. */

import { signal } from "@preact/signals";
import { t } from "../texts";

interface Toast {
  id: number;
  text: string;
  isError: boolean;
}

const SHOWN_MS = 4000;
const ERROR_SHOWN_MS = 10000;
const TOASTS_MAX = 4;
const toasts = signal<Toast[]>([]);
/** The dialogs that are open, the topmost last: nothing outside of it is seen by everyone. */
export const dialogs = signal<string[]>([]);
let next = 0;

export function notify(text: string, isError = false): void {
  const id = next++;
  const others = toasts.value.filter((toast) => toast.text !== text || toast.isError !== isError);
  toasts.value = [...others, { id, text, isError }].slice(-TOASTS_MAX);
  window.setTimeout(() => dismiss(id), isError ? ERROR_SHOWN_MS : SHOWN_MS);
}

export function notifyError(error: unknown): void {
  notify(error instanceof Error ? error.message : String(error), true);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

/** The notes while no dialog is open. */
export function Toasts() {
  return <Outlet isTopmost={dialogs.value.length === 0} />;
}

/** The notes while this dialog is the topmost. */
export function DialogToasts({ of }: { of: string }) {
  return <Outlet isTopmost={dialogs.value.at(-1) === of} />;
}

function Outlet({ isTopmost }: { isTopmost: boolean }) {
  return (
    <div class="toasts" role={isTopmost ? "status" : undefined} aria-live="polite">
      {isTopmost && toasts.value.map((toast) => (
        <div key={toast.id} class={toast.isError ? "toast bad" : "toast"}>
          <span>{toast.text}</span>
          <button type="button" class="plain" aria-label={t.dismiss} onClick={() => dismiss(toast.id)}>×</button>
        </div>
      ))}
    </div>
  );
}
