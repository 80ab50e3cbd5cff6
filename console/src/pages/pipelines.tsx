/** Streaming queries that write exactly once, and the reports of jobs. */

import { useRoute } from "preact-iso";
import { getRows } from "../api/client";
import { Badge, PageHead, Tabs } from "../parts/basics";
import { Count, Time } from "../parts/numbers";
import { ServerList } from "../parts/table";
import { Marked } from "../parts/text";
import { page } from "../state/address";
import { mayAny, mayReadReports } from "../state/person";
import { t } from "../texts";
import { ReportList } from "./reports";

/** Transactional ids of a query's writers: `__query~name~run~epoch~writer`. */
const PREFIX = "__query~";

interface Pipeline {
  query: string;
  run: number;
  run_name: string;
  epoch: number | null;
  is_closed: boolean;
  updated_at: number;
  writers: number;
}

export function PipelinesPage() {
  const { params } = useRoute();
  const tabs = [...(mayAny("transactional_id", "describe") ? ["queries"] : []), ...(mayReadReports() ? ["reports"] : [])];
  const tab = params["tab"] || tabs[0];
  return (
    <>
      <PageHead title={t.nav.pages.pipelines} note={t.pipelines.text} />
      <Tabs label={t.nav.pages.pipelines} now={tab ?? ""} tabs={tabs.map((id) => ({ id, title: t.pipelines.tabs[id] ?? id, href: id === "queries" ? page("pipelines") : page("pipelines", id) }))} />
      {tab === "queries" && <Queries />}
      {tab === "reports" && <ReportList />}
    </>
  );
}

function Queries() {
  return (
    <ServerList<Pipeline>
      label={t.nav.pages.pipelines}
      keyOf={(row) => row.query}
      search="match"
      load={(query, signal) => getRows<Pipeline>("queries", "/v1/queries", query, signal)}
      everyMs={5000}
      empty={{ title: t.pipelines.none, text: t.pipelines.noneText, icon: "pipelines" }}
      columns={[
        { id: "name", title: t.pipelines.name, isWide: true, cell: (row) => <a href={`${page("transactions")}?state=all&prefix=${encodeURIComponent(`${PREFIX}${row.query}~`)}`}><Marked text={row.query} /></a> },
        { id: "state", title: t.groups.state, cell: (row) => <Badge text={row.is_closed ? "done" : "active"} /> },
        { id: "run", title: t.pipelines.run, isNumber: true, cell: (row) => <Count value={row.run} /> },
        { id: "epoch", title: t.pipelines.epoch, isNumber: true, cell: (row) => <Count value={row.epoch} /> },
        { id: "writers", title: t.pipelines.writers, isNumber: true, cell: (row) => <Count value={row.writers} /> },
        { id: "updated", title: t.transactions.updated, cell: (row) => <Time ms={row.updated_at} /> },
      ]}
    />
  );
}
