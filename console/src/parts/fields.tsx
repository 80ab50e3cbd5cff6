/** Fields of forms: a label, the control, what it means, and what is wrong with it. */

import { createContext, type ComponentChildren } from "preact";
import { useContext, useId } from "preact/hooks";

const Wrong = createContext({ problem: "", text: "" });

export function Fields({ problem, text, children }: { problem: string; text: string; children: ComponentChildren }) {
  return <Wrong.Provider value={{ problem, text }}>{children}</Wrong.Provider>;
}

export function Field({ label, name, hint, children }: { label: string; name?: string; hint?: ComponentChildren; children: (id: string) => ComponentChildren }) {
  const id = useId();
  const wrong = useContext(Wrong);
  const isWrong = name !== undefined && wrong.problem === name;
  return (
    <div class={isWrong ? "field wrong" : "field"}>
      <label for={id}>{label}</label>
      {children(id)}
      {(hint || isWrong) && <p class="hint">{hint ?? wrong.text}</p>}
    </div>
  );
}

export function TextField({ label, value, onChange, name, hint, type = "text", placeholder, isRequired, lines, list }: { label: string; value: string; onChange: (value: string) => void; name?: string; hint?: ComponentChildren; type?: "text" | "number" | "password" | "datetime-local"; placeholder?: string; isRequired?: boolean; lines?: number; list?: string[] }) {
  return (
    <Field label={label} name={name} hint={hint}>
      {(id) =>
        lines ? (
          <textarea id={id} rows={lines} value={value} placeholder={placeholder} spellcheck={false} required={isRequired} onInput={(event) => onChange(event.currentTarget.value)} />
        ) : (
          <>
            <input id={id} {...({ type, step: "any" } as { type: "text" })} value={value} placeholder={placeholder} required={isRequired} autocomplete={type === "password" ? "new-password" : "off"} spellcheck={false} {...(list && { list: `${id}-list` })} onInput={(event) => onChange(event.currentTarget.value)} />
            {list && <datalist id={`${id}-list`}>{list.map((one) => <option key={one} value={one} />)}</datalist>}
          </>
        )
      }
    </Field>
  );
}

export type Choice = string | [value: string, title: string];

export function SelectField({ label, value, onChange, choices, name, hint }: { label: string; value: string; onChange: (value: string) => void; choices: readonly Choice[]; name?: string; hint?: ComponentChildren }) {
  return (
    <Field label={label} name={name} hint={hint}>
      {(id) => <Select id={id} value={value} onChange={onChange} choices={choices} />}
    </Field>
  );
}

export function Select({ id, value, onChange, choices, label }: { id?: string; value: string; onChange: (value: string) => void; choices: readonly Choice[]; label?: string }) {
  return (
    <select id={id} aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      {choices.map((choice) => {
        const [key, title] = typeof choice === "string" ? [choice, choice] : choice;
        return <option key={key} value={key} selected={key === value}>{title}</option>;
      })}
    </select>
  );
}

export function CheckField({ label, value, onChange, hint }: { label: string; value: boolean; onChange: (value: boolean) => void; hint?: ComponentChildren }) {
  const id = useId();
  return (
    <div class="field check">
      <input id={id} type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
      <label for={id}>{label}</label>
      {hint && <p class="hint">{hint}</p>}
    </div>
  );
}
