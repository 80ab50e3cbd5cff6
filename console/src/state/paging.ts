/** The cursors of earlier pages of a list: the API goes forward only, so the way back is kept here. */

import { useEffect } from "preact/hooks";
import type { AddressState } from "./address";

const PAGES_KEPT_MAX = 1000;
const before = new Map<string, string>();

/** A list is known by its path and everything in the address but the page. */
function listOf(address: AddressState): string {
  return address.with({ cursor: null });
}

/** The cursor before this page; empty for the first page, undefined if nobody came from there. */
export function usePrevious(address: AddressState, next: string | undefined): string | undefined {
  const list = listOf(address);
  const now = address.value("cursor");
  useEffect(() => {
    if (!next || next === now) return; // The rows shown are still those of the page before.
    before.delete(`${list} ${next}`);
    before.set(`${list} ${next}`, now);
    const oldest = before.keys().next().value;
    if (before.size > PAGES_KEPT_MAX && oldest !== undefined) before.delete(oldest);
  }, [list, now, next]);
  return before.get(`${list} ${now}`);
}
