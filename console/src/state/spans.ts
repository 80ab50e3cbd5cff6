/** The time that plots show, and how it goes on. */

import type { History } from "../api/types";

export const SPANS_MS = { "15m": 900_000, "1h": 3_600_000, "6h": 21_600_000 } as const;
export type Span = keyof typeof SPANS_MS;

export function spanOf(text: string): Span {
  return Object.hasOwn(SPANS_MS, text) ? (text as Span) : "15m";
}

/**
 * What is known with what is new, cut to the span. Nothing if they do not fit together: the node
 * joins the rows of a long time, so what is new of a long span comes in shorter steps than the rest.
 */
export function extended(old: History, fresh: History, spanMs: number): History | undefined {
  const first = fresh.times[0];
  const last = fresh.times.at(-1);
  if (first === undefined || last === undefined || old.step_ms !== fresh.step_ms) return undefined;
  const from = last - spanMs;
  const begin = old.times.findIndex((time) => time >= from);
  const end = old.times.findIndex((time) => time >= first);
  const kept = (all: number[]) => all.slice(begin, end < 0 ? all.length : end);
  if (begin < 0) return undefined;
  const values = (name: string) => old.series[name]?.slice(begin, end < 0 ? undefined : end) ?? [];
  const series = Object.fromEntries(Object.entries(fresh.series).map(([name, added]) => [name, [...values(name), ...added]]));
  return { ...fresh, times: [...kept(old.times), ...fresh.times], series };
}
