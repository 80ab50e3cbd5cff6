/** Reports that jobs have published: their totals in a list, one of them as texts and tables. */

import { useRoute } from "preact-iso";
import { get, getRows, part } from "../api/client";
import type { Report, ReportEntry, ReportTable } from "../api/types";
import { Empty, Note, PageHead, Panel, Shown, Tile } from "../parts/basics";
import { Copyable, Time } from "../parts/numbers";
import { ServerList, Table } from "../parts/table";
import { Marked } from "../parts/text";
import { page } from "../state/address";
import { useLoad } from "../state/load";
import { t } from "../texts";

const FIGURES_SHOWN = 4;

export function ReportList() {
  return (
    <ServerList<ReportEntry>
      label={t.reports.title}
      keyOf={(row) => row.name}
      search="match"
      everyMs={15000}
      load={(query, signal) => getRows<ReportEntry>("reports", "/v1/reports", query, signal)}
      empty={{ title: t.reports.none, text: t.reports.noneText, icon: "pipelines" }}
      columns={[
        { id: "name", title: t.reports.name, cell: (row) => <a href={page("pipelines", "reports", row.name)}><Marked text={row.name} /></a> },
        { id: "written", title: t.reports.written, cell: (row) => <Time ms={row.written_at} /> },
        { id: "figures", title: t.reports.figures, isWide: true, cell: (row) => <Marked text={row.figures.slice(0, FIGURES_SHOWN).map((one) => `${one.value} ${one.text}`).join(", ")} /> },
      ]}
    />
  );
}

export function ReportPage() {
  const { params } = useRoute();
  const name = params["report"] ?? "";
  const loaded = useLoad((signal) => get<Report>(`/v1/reports/${part(name)}`, {}, signal), [name]);
  return (
    <>
      <PageHead title={name} crumbs={[{ title: t.nav.pages.pipelines, href: page("pipelines") }, { title: t.reports.title, href: page("pipelines", "reports") }]} note={loaded.data && <Time ms={loaded.data.written_at} />} />
      <Shown of={loaded}>{(report) => <OneReport report={report} />}</Shown>
    </>
  );
}

function OneReport({ report }: { report: Report }) {
  return (
    <>
      <Note>{t.reports.plots}</Note>
      {report.figures.length > 0 && <div class="tiles">{report.figures.map((one, at) => <Tile key={at} title={one.text}><Copyable class="number" text={one.value}><Marked text={one.value} /></Copyable></Tile>)}</div>}
      {report.sections.length === 0 && <Empty title={t.reports.empty} icon="pipelines" />}
      {report.sections.map((section, at) => (
        <Panel key={at} title={section.title}>
          {section.texts.map((text, number) => <p key={number}><Marked text={text} /></p>)}
          {section.tables.map((table, number) => <OneTable key={number} table={table} title={table.title || section.title} />)}
        </Panel>
      ))}
    </>
  );
}

const NUMBER = /^-?[\d,.]+$/;

function OneTable({ table, title }: { table: ReportTable; title: string }) {
  const rows = table.rows.map((cells, at) => ({ cells, at }));
  return (
    <>
      <h3><Marked text={title} /></h3>
      <Table
        label={title}
        rows={rows}
        keyOf={(row) => String(row.at)}
        columns={table.columns.map((name, at) => ({ id: String(at), title: name, isNumber: rows.length > 0 && rows.every((row) => NUMBER.test(row.cells[at] ?? "")), cell: ({ cells }: { cells: string[] }) => <Marked text={cells[at] ?? "–"} /> }))}
      />
    </>
  );
}
