/** Keys, values and headers as a form holds them: text where a form keeps it as it is, else base64. */

import { fromBase64, toBase64, utf8 } from "./bytes";

export type FormEncoding = "utf8" | "base64" | "null";

export interface FormText {
  text: string;
  encoding: FormEncoding;
}

// A form changes carriage returns, and shows nothing of other control characters.
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/;

/** `isLine`: the form has one line for it, and drops line feeds. */
export function toForm(value: string | null, encoding: string, isLine = false): FormText {
  if (value === null) return { text: "", encoding: "null" };
  const bytes = encoding === "base64" ? fromBase64(value) : new TextEncoder().encode(value);
  const text = textOf(bytes);
  const isKept = text !== undefined && !CONTROL.test(text) && !(isLine && text.includes("\n"));
  return isKept ? { text, encoding: "utf8" } : { text: toBase64(bytes), encoding: "base64" };
}

function textOf(bytes: Uint8Array): string | undefined {
  try {
    return utf8(bytes);
  } catch {
    return undefined;
  }
}
