/** Numbers, sizes and times as people read them; the exact value is always one click away. */

import type { Int } from "./api/json";
import { t } from "./texts";

const COUNT = new Intl.NumberFormat("en-US");
const RATE = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3, notation: "compact" });
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(value: Int): string {
  return COUNT.format(value);
}

export function compact(value: Int): string {
  return RATE.format(value);
}

export function bytes(value: Int): string {
  let left = Number(value);
  let unit = 0;
  while (Math.abs(left) >= 1024 && unit < BYTES.length - 1) {
    left /= 1024;
    unit++;
  }
  const digits = Number.isInteger(left) && unit === 0 ? 0 : left < 10 ? 2 : left < 100 ? 1 : 0;
  return `${left.toFixed(digits)} ${BYTES[unit]}`;
}

export function duration(ms: Int): string {
  const value = Number(ms);
  if (value < 0) return `-${duration(-value)}`;
  if (value < 1000) return `${Math.round(value)} ms`;
  const seconds = value / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function time(ms: number): string {
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function clock(ms: number): string {
  return time(ms).slice(11, 19);
}

/** The beginning of a long text, marked as such. */
export function cut(text: string, chars: number): string {
  return text.length > chars ? `${text.slice(0, chars)}…` : text;
}

/** What an input of type `datetime-local` holds. */
export function localInput(ms: number): string {
  return time(ms).slice(0, 19).replace(" ", "T");
}

export function ago(ms: number, now = Date.now()): string {
  const past = now - ms;
  return past >= 0 ? t.time.ago(duration(past)) : t.time.ahead(duration(-past));
}

export function plural(amount: Int, one: string, many: string): string {
  return `${count(amount)} ${Number(amount) === 1 ? one : many}`;
}
