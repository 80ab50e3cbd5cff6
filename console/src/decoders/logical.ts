/** Logical types of Avro: times as ISO 8601, decimals as text, with all their digits, and back. */

import type { Logical } from "./avro-schema";
import { fromHex, hexOf, integer } from "./bytes";

const MS_PER_DAY = 86_400_000;
const DIGITS: Record<string, number> = { millis: 3, micros: 6, nanos: 9 };
const TIMESTAMP = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?$/;
const TIME = /^(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?$/;
const DATE = /^\d{4}-\d\d-\d\d$/;
const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?$/;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The number as people read it; unchanged if it is no such time. */
export function shownNumber(logical: Logical, value: bigint): unknown {
  const [kind, unit] = split(logical.type);
  if (logical.type === "date") return iso(Number(value) * MS_PER_DAY)?.slice(0, 10) ?? integer(value);
  const digits = DIGITS[unit];
  if (digits === undefined) return integer(value);
  const perSecond = 10n ** BigInt(digits);
  const part = ((value % perSecond) + perSecond) % perSecond;
  const whole = iso(Number((value - part) / perSecond) * 1000);
  const fraction = String(part).padStart(digits, "0");
  if (whole === undefined) return integer(value);
  if (kind === "time") return value < 0n ? integer(value) : `${whole.slice(11, 19)}.${fraction}`;
  return `${whole.slice(0, 19)}.${fraction}${kind === "timestamp" ? "Z" : ""}`;
}

/** The number that is shown as this text; nothing if there is none. */
export function readNumber(logical: Logical, text: string): bigint | undefined {
  const [kind, unit] = split(logical.type);
  if (logical.type === "date") return DATE.test(text) && Number.isFinite(Date.parse(text)) ? BigInt(Date.parse(text) / MS_PER_DAY) : undefined;
  const digits = DIGITS[unit];
  if (digits === undefined) return undefined;
  if (kind === "time") {
    const [, hours, minutes, seconds, fraction] = TIME.exec(text) ?? [];
    return hours === undefined ? undefined : scaled(BigInt(hours) * 3600n + BigInt(minutes ?? 0) * 60n + BigInt(seconds ?? 0), fraction, digits);
  }
  const [, base, fraction, zone] = TIMESTAMP.exec(text) ?? [];
  const ms = base === undefined ? NaN : Date.parse(`${base}${kind === "timestamp" ? (zone ?? "Z") : "Z"}`);
  return Number.isNaN(ms) ? undefined : scaled(BigInt(ms / 1000), fraction, digits);
}

function split(type: string): [kind: string, unit: string] {
  const at = type.lastIndexOf("-");
  return [type.slice(0, Math.max(0, at)), type.slice(at + 1)];
}

function scaled(seconds: bigint, fraction = "", digits: number): bigint | undefined {
  if (/[1-9]/.test(fraction.slice(digits))) return undefined;
  return seconds * 10n ** BigInt(digits) + BigInt(fraction.slice(0, digits).padEnd(digits, "0"));
}

/** Nothing outside of the years 0 to 9999. */
function iso(ms: number): string | undefined {
  const at = new Date(ms);
  const text = Number.isNaN(at.getTime()) ? "" : at.toISOString();
  return text.length === 24 ? text : undefined;
}

/** Bytes as people read them; nothing if the logical type says nothing about bytes. */
export function shownBytes(logical: Logical, bytes: Uint8Array): unknown {
  if (logical.type === "decimal") return decimal(bytes, logical.scale);
  if (logical.type === "uuid" && bytes.length === 16) return hexOf(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  if (logical.type !== "duration" || bytes.length !== 12) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { months: view.getUint32(0, true), days: view.getUint32(4, true), millis: view.getUint32(8, true) };
}

/** The bytes that are shown as this value; `size` is that of a fixed type. Nothing if there are none. */
export function readBytes(logical: Logical, value: unknown, size?: number): Uint8Array | undefined {
  if (logical.type === "decimal") return fromDecimal(String(value), logical.scale, size);
  if (logical.type === "uuid" && size === 16) return typeof value === "string" && UUID.test(value) ? fromHex(value.replaceAll("-", "")) : undefined;
  if (logical.type !== "duration" || size !== 12 || value === null || typeof value !== "object") return undefined;
  const parts = ["months", "days", "millis"].map((name) => (value as Record<string, unknown>)[name]);
  if (!parts.every((part) => Number.isInteger(part) && (part as number) >= 0 && (part as number) < 2 ** 32)) return undefined;
  const view = new DataView(new ArrayBuffer(12));
  parts.forEach((part, at) => view.setUint32(at * 4, part as number, true));
  return new Uint8Array(view.buffer);
}

function decimal(bytes: Uint8Array, scale: number): string {
  const packed = BigInt.asIntN(Math.max(8, bytes.length * 8), bytes.length === 0 ? 0n : BigInt(`0x${hexOf(bytes)}`));
  const digits = String(packed < 0n ? -packed : packed).padStart(scale + 1, "0");
  const text = scale > 0 ? `${digits.slice(0, -scale)}.${digits.slice(-scale)}` : digits;
  return packed < 0n ? `-${text}` : text;
}

function fromDecimal(text: string, scale: number, size?: number): Uint8Array | undefined {
  const [, sign, whole, fraction = ""] = DECIMAL.exec(text) ?? [];
  if (whole === undefined || /[1-9]/.test(fraction.slice(scale))) return undefined;
  const digits = BigInt(whole + fraction.slice(0, scale).padEnd(scale, "0"));
  const value = sign ? -digits : digits;
  let length = size ?? 1;
  while (size === undefined && BigInt.asIntN(length * 8, value) !== value) length++;
  if (BigInt.asIntN(length * 8, value) !== value) return undefined;
  return fromHex(BigInt.asUintN(length * 8, value).toString(16).padStart(length * 2, "0"));
}
