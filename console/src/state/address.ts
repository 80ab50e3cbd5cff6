/** The state of a page lives in its address: filters, sorting, position. */

import { useLocation } from "preact-iso";
import { address, type Query } from "../api/client";

export const BASE = "/console";

export interface AddressState {
  path: string;
  value: (name: string, otherwise?: string) => string;
  /** Change parameters; `null` removes one. `isReplacing` leaves no entry in the history. */
  change: (values: Query, isReplacing?: boolean) => void;
  /** The address with changed parameters, for links. */
  with: (values: Query) => string;
}

export function useAddress(): AddressState {
  const location = useLocation();
  const query = location.query as Record<string, string>;
  const changed = (values: Query) => address(location.path, { ...query, ...values });
  return {
    path: location.path,
    value: (name, otherwise = "") => query[name] ?? otherwise,
    change: (values, isReplacing = false) => location.route(changed(values), isReplacing),
    with: changed,
  };
}

export function page(...parts: (string | number | bigint)[]): string {
  return [BASE, ...parts.map((part) => encodeURIComponent(String(part)))].join("/");
}
