/** JSON without loss: integers beyond 2^53 are read as BigInt and written with all their digits. */

export type Int = number | bigint;

interface Source {
  source: string;
}

const LONG_NUMBER = /\d{16}/;
const INTEGER = /^-?\d+$/;

export function parse<T>(text: string): T {
  return LONG_NUMBER.test(text) ? JSON.parse(text, exact as never) : JSON.parse(text);
}

function exact(_name: string, value: unknown, context?: Source): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  return context && INTEGER.test(context.source) ? BigInt(context.source) : value;
}

/** What is no number in JSON is its name: "NaN", "Infinity". */
export function write(value: unknown, indent?: number): string {
  return JSON.stringify(value, (_name, one) => (typeof one === "bigint" ? rawNumber(one) : typeof one === "number" && !Number.isFinite(one) ? String(one) : one), indent);
}

function rawNumber(value: bigint): unknown {
  const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;
  return raw ? raw(String(value)) : String(value);
}
