/** Who looks, and what they may do; pages and buttons for anything else are not shown. */

import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Access, Whoami } from "../api/types";
import { useLoad } from "./load";

export type Kind = "topic" | "group" | "transactional_id" | "subject";

/** Who may read this topic may read the reports of pipelines. */
const REPORTS_TOPIC = "goqueue.reports";

export const person = signal<Whoami | null>(null);
export const access = signal<Access | null>(null);

export async function loadPerson(): Promise<void> {
  const [who, may] = await Promise.all([get<Whoami>("/v1/whoami"), get<Access>("/v1/whoami/access", { kind: "topic", name: REPORTS_TOPIC })]);
  person.value = who;
  access.value = may;
}

/** May the person do this to the cluster? */
export function mayCluster(action: string): boolean {
  const now = access.value;
  return now !== null && (!now.enforced || now.cluster.includes(action));
}

/** May the person do this to at least one resource of the kind? */
export function mayAny(kind: Kind, action: string): boolean {
  const now = access.value;
  return now !== null && (!now.enforced || (now.any[kind] ?? []).includes(action));
}

/** Asked with what the person may do at all, because the navigation depends on it. */
export function mayReadReports(): boolean {
  const now = access.value;
  return now !== null && (!now.enforced || (now.resource ?? []).includes("read"));
}

/** What the person may do to one resource: `may("write")`. */
export function useMay(kind: Kind, name: string): (action: string) => boolean {
  const { data } = useLoad((signal) => get<Access>("/v1/whoami/access", { kind, name }, signal), [kind, name]);
  return (action) => data !== undefined && (!data.enforced || (data.resource ?? []).includes(action));
}

/** Whether the person belongs to the tenant that owns the nodes, their quotas and the other tenants. */
export function isOperator(): boolean {
  return person.value !== null && !person.value.tenant;
}

/** Whether the person may do one thing to each of several resources: `may("orders")`. */
export function useMayEach(kind: Kind, names: string[], action: string): (name: string) => boolean {
  const isEnforced = access.value?.enforced ?? true;
  const { data } = useLoad(
    async (signal) => {
      if (!isEnforced || !mayAny(kind, action)) return new Set<string>();
      const found = await Promise.all(names.map((name) => get<Access>("/v1/whoami/access", { kind, name }, signal)));
      return new Set(names.filter((_, at) => found[at]?.resource?.includes(action)));
    },
    [kind, action, isEnforced, JSON.stringify(names)],
  );
  return (name) => !isEnforced || (data?.has(name) ?? false);
}
