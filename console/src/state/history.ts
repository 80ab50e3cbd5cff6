/** Rates of the last hours from the node's memory: loaded once, then only what is new of it, where that fits. */

import { useRef } from "preact/hooks";
import { get, type Query } from "../api/client";
import type { History } from "../api/types";
import { useLoad, type Loaded } from "./load";
import { extended, SPANS_MS, type Span } from "./spans";

const EVERY_MS = 10000;
const POINTS = 300;

export function useHistory(span: Span, selector: Query = {}): Loaded<History> {
  const known = useRef<{ key: string; history: History; isWhole: boolean } | undefined>(undefined);
  const key = JSON.stringify([span, selector]);
  return useLoad(
    async (signal) => {
      const load = (from: string | number) => get<History>("/v1/history", { from, points: POINTS, ...selector }, signal);
      const now = known.current?.key === key ? known.current : undefined;
      const from = now?.history.times.at(-1);
      const added = now && from !== undefined && !now.isWhole ? extended(now.history, await load(from), SPANS_MS[span]) : undefined;
      const history = added ?? (await load(span));
      known.current = { key, history, isWhole: now !== undefined && added === undefined };
      return history;
    },
    [key],
    EVERY_MS,
  );
}
