/** Dialogs: native ones, so that focus, Escape and the background are the browser's business. */

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/client";
import { t } from "../texts";
import { Button, ErrorNote } from "./basics";
import { Field, Fields } from "./fields";
import { Icon } from "./icons";
import { visible } from "./text";
import { DialogToasts, dialogs } from "./toasts";

const FIRST_FIELD = ".dialog-body input, .dialog-body select, .dialog-body textarea";

/** `actions`: beside the title. */
export function Dialog({ title, onClose, children, kind = "", actions }: { title: string; onClose: () => void; children: ComponentChildren; kind?: string; actions?: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  // Before the browser handles the next key, which belongs to the dialog.
  useLayoutEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    const opened = element.current;
    opened?.showModal();
    opened?.querySelector<HTMLElement>(FIRST_FIELD)?.focus();
    dialogs.value = [...dialogs.value, heading];
    return () => {
      dialogs.value = dialogs.value.filter((one) => one !== heading);
      opened?.close();
      opener?.focus();
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={element} class={`dialog ${kind}`} aria-labelledby={heading} onCancel={cancel}>
      <div class="dialog-head">
        <h2 id={heading}>{title}</h2>
        {actions}
        <button type="button" class="plain" aria-label={t.close} onClick={onClose}><Icon name="close" /></button>
      </div>
      {children}
      <DialogToasts of={heading} />
    </dialog>
  );
}

/** What `onSubmit` resolves to when the dialog shall stay open. */
export const STAY = Symbol("stay");

export interface FormDialogProps {
  title: string;
  action: string;
  onClose: () => void;
  /** Does the work; the dialog closes when it is done and stays open with the error otherwise. */
  onSubmit: () => Promise<unknown>;
  children?: ComponentChildren;
  isDangerous?: boolean;
  isDisabled?: boolean;
  /** What has to be typed before something that cannot be undone; as it is or as it is shown. */
  typed?: string;
  kind?: string;
}

export function FormDialog({ title, action, onClose, onSubmit, children, isDangerous, isDisabled, typed, kind }: FormDialogProps) {
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const [confirmation, setConfirmation] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      if ((await onSubmit()) !== STAY) onClose();
    } catch (problem) {
      setError(problem as Error);
    } finally {
      setBusy(false);
    }
  };
  const field = error instanceof Problem ? error.field : "";
  return (
    <Dialog title={title} onClose={onClose} kind={kind}>
      <form onSubmit={(event) => void submit(event)} onInput={() => error && setError(undefined)}>
        <Fields problem={field} text={error?.message ?? ""}>
          <div class="dialog-body">
            {children}
            {typed !== undefined && (
              <Field label={t.confirm.label(visible(typed))} name="confirmation">
                {(id) => <input id={id} value={confirmation} autocomplete="off" spellcheck={false} onInput={(event) => setConfirmation(event.currentTarget.value)} />}
              </Field>
            )}
            {error && <ErrorNote error={error} />}
          </div>
        </Fields>
        <div class="dialog-foot">
          <Button onClick={onClose}>{t.cancel}</Button>
          <Button type="submit" kind={isDangerous ? "danger" : "primary"} disabled={isBusy || isDisabled || (typed !== undefined && confirmation !== typed && confirmation !== visible(typed))}>
            {isBusy ? t.working : action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
