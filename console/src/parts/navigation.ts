/** All pages: where they are, their shortcut, and who sees them. */

import { mayAny, mayCluster, mayReadReports } from "../state/person";
import { t } from "../texts";
import type { IconName } from "./icons";

export interface PageLink {
  id: keyof typeof t.nav.pages;
  title: string;
  href: string;
  icon: IconName;
  /** The key after `g`. */
  key: string;
}

const DESCRIBED = () => mayAny("topic", "describe") || mayAny("topic", "read");

const PAGES: [PageLink["id"], IconName, string, () => boolean][] = [
  ["overview", "overview", "o", () => true],
  ["topics", "topics", "t", DESCRIBED],
  ["groups", "groups", "g", () => mayAny("group", "describe") || mayAny("group", "read")],
  ["dead-letters", "dead", "d", () => mayAny("topic", "read")],
  ["schedules", "schedule", "s", DESCRIBED],
  ["transactions", "transaction", "x", () => mayAny("transactional_id", "describe")],
  ["schemas", "schema", "r", () => mayAny("subject", "describe") || mayAny("subject", "read")],
  ["cluster", "cluster", "c", () => mayCluster("describe")],
  ["access", "access", "a", () => true],
  ["pipelines", "pipelines", "p", () => mayAny("transactional_id", "describe") || mayReadReports()],
];

export function visiblePages(): PageLink[] {
  return PAGES.filter(([, , , isVisible]) => isVisible()).map(([id, icon, key]) => ({ id, icon, key, title: t.nav.pages[id], href: `/console/${id}` }));
}
