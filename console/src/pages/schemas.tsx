/** Schemas: subjects, versions, differences, compatibility, registration, deletion. */

import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { call, get, getRows, part, post } from "../api/client";
import type { SchemaVersion, SubjectOverview } from "../api/types";
import { Badge, Button, Definitions, Empty, ErrorNote, PageHead, Panel, Shown, Tabs } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { Select } from "../parts/fields";
import { Copyable, Count } from "../parts/numbers";
import { ServerList } from "../parts/table";
import { Content, Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { page, useAddress } from "../state/address";
import { difference } from "../state/difference";
import { useLoad } from "../state/load";
import { mayAny, mayCluster, useMay } from "../state/person";
import { t } from "../texts";
import { Check, pretty, Register } from "./schema-forms";
import { SchemaRules } from "./schema-rules";

export function SchemasPage() {
  const address = useAddress();
  const { route } = useLocation();
  const mayWrite = mayAny("subject", "write");
  const mayRules = mayCluster("describe_configs");
  const tab = mayRules ? address.value("tab", "subjects") : "subjects";
  const open = (isOpen: boolean) => address.change({ new: isOpen ? 1 : null }, true);
  const tabs = ["subjects", "registry"].map((id) => ({ id, title: t.schemas.listTabs[id] ?? id, href: id === "subjects" ? page("schemas") : `${page("schemas")}?tab=${id}` }));
  return (
    <>
      <PageHead title={t.nav.pages.schemas}>{mayWrite && <Button kind="primary" icon="plus" onClick={() => open(true)}>{t.schemas.register}</Button>}</PageHead>
      {mayRules && <Tabs label={t.nav.pages.schemas} now={tab} tabs={tabs} />}
      {tab === "registry" ? <SchemaRules mayChange={mayCluster("alter_configs")} /> : <Subjects />}
      {mayWrite && address.value("new") && <Register onClose={() => open(false)} onDone={(subject) => window.setTimeout(() => route(page("schemas", subject)))} />}
    </>
  );
}

function Subjects() {
  const address = useAddress();
  const isDeleted = address.value("deleted") !== "";
  return (
    <ServerList<SubjectOverview>
      label={t.schemas.subjects}
      keyOf={(row) => row.subject}
      search="match"
      filters={[{ name: "deleted", label: t.schemas.which, choices: t.schemas.deletedChoices }]}
      load={(query, signal) => getRows<SubjectOverview>("subjects", "/v1/subjects", query, signal)}
      everyMs={20000}
      empty={{ title: t.schemas.none, text: t.schemas.noneText, icon: "schema" }}
      columns={[
        { id: "subject", title: t.schemas.subject, isWide: true, cell: (row) => <a href={`${page("schemas", row.subject)}${isDeleted ? "?deleted=true" : ""}`}><Marked text={row.subject} /></a> },
        { id: "type", title: t.schemas.type, cell: (row) => <span class="badge">{row.type.toLowerCase()}</span> },
        { id: "version", title: t.schemas.latest, isNumber: true, cell: (row) => <Count value={row.version} /> },
        { id: "versions", title: t.schemas.versions, isNumber: true, cell: (row) => <Count value={row.versions} /> },
        { id: "id", title: t.schemas.id, isNumber: true, cell: (row) => <Copyable text={String(row.id)} /> },
      ]}
    />
  );
}

export function SchemaPage() {
  const { params } = useRoute();
  const subject = params["subject"] ?? "";
  return <OneSubject key={subject} subject={subject} tab={params["tab"] || "schema"} />;
}

type Opened = "" | "register" | "delete" | "delete-version" | "restore";

/** The version before one, as far as it still exists. */
function before(versions: number[], version: number): number {
  return versions.filter((one) => one < version).at(-1) ?? version;
}

function OneSubject({ subject, tab }: { subject: string; tab: string }) {
  const { route } = useLocation();
  const address = useAddress();
  const may = useMay("subject", subject);
  const [opened, setOpened] = useState<Opened>("");
  const [revision, setRevision] = useState(0);
  const withDeleted = address.value("deleted") !== "";
  const path = `/registry/subjects/${part(subject)}`;
  const versions = useLoad(
    async (signal) => {
      const all = await get<number[]>(`${path}/versions`, { deletedAsNegative: true, deleted: true }, signal);
      return { revision, live: all.filter((one) => one > 0), deleted: new Set(all.filter((one) => one < 0).map((one) => -one)) };
    },
    [subject, revision],
  );
  // After a change the numbers from before may be gone: nothing is asked about them.
  const found = versions.data?.revision === revision ? versions.data : undefined;
  const { live = [], deleted = new Set<number>() } = found ?? {};
  const listed = [...live, ...(withDeleted || live.length === 0 ? deleted : [])].sort((one, other) => one - other);
  const version = Number(address.value("version")) || (listed.at(-1) ?? 0);
  const isGone = deleted.has(version);
  const mayRead = may("read");
  const shown = useLoad((signal) => (version && mayRead ? get<SchemaVersion>(`${path}/versions/${version}`, { deleted: true }, signal) : new Promise<SchemaVersion>(() => undefined)), [subject, version, mayRead]);
  const against = Number(address.value("against")) || before(listed, version);
  const choices = [...listed].reverse().map((one): [string, string] => [String(one), deleted.has(one) ? t.schemas.deletedVersion(one) : String(one)]);
  const link = (id: string) => `${id === "schema" ? page("schemas", subject) : page("schemas", subject, id)}${withDeleted ? "?deleted=true" : ""}`;
  const changed = () => {
    address.change({ version: null, against: null }, true);
    setRevision(revision + 1);
  };
  return (
    <>
      <PageHead title={subject} crumbs={[{ title: t.nav.pages.schemas, href: page("schemas") }]}>
        {may("write") && <Button kind="primary" icon="plus" onClick={() => setOpened("register")}>{t.schemas.registerVersion}</Button>}
        {may("write") && isGone && shown.data && <Button icon="refresh" onClick={() => setOpened("restore")}>{t.schemas.restore}</Button>}
        {may("delete") && version > 0 && <Button kind="danger-quiet" icon="trash" onClick={() => setOpened("delete-version")}>{t.schemas.deleteVersion(version)}</Button>}
        {may("delete") && <Button kind="danger-quiet" icon="trash" onClick={() => setOpened("delete")}>{t.schemas.delete}</Button>}
      </PageHead>
      <Tabs label={subject} now={tab} tabs={["schema", "difference", "check", "config"].map((id) => ({ id, title: t.schemas.tabs[id] ?? id, href: link(id) }))} />
      {versions.error && <ErrorNote error={versions.error} onRetry={versions.reload} />}
      {found && tab !== "config" && tab !== "check" && (
        <div class="toolbar">
          <label class="inline">{t.schemas.version} <Select label={t.schemas.version} value={String(version)} choices={choices} onChange={(value) => address.change({ version: value, against: null })} /></label>
          {tab === "difference" && <label class="inline">{t.schemas.against} <Select label={t.schemas.against} value={String(against)} choices={choices} onChange={(value) => address.change({ against: value })} /></label>}
          {deleted.size > 0 && <label class="inline"><input type="checkbox" checked={withDeleted} onChange={(event) => address.change({ deleted: event.currentTarget.checked ? true : null, version: null, against: null })} /> {t.schemas.withDeleted}</label>}
        </div>
      )}
      {tab !== "config" && found && !mayRead && <Empty title={t.schemas.mayNotRead} icon="schema">{t.schemas.mayNotReadText}</Empty>}
      {tab === "schema" && mayRead && <Shown of={shown}>{(found) => <OneVersion found={found} isGone={isGone} />}</Shown>}
      {tab === "difference" && found && shown.data && <Difference subject={subject} now={shown.data} against={against} />}
      {tab === "check" && shown.data && <Check subject={subject} latest={shown.data} />}
      {tab === "config" && <SchemaRules subject={subject} mayChange={may("alter_configs")} />}
      {opened === "register" && <Register subject={subject} latest={shown.data} onClose={() => setOpened("")} onDone={changed} />}
      {opened === "restore" && shown.data && <Restore version={shown.data} onClose={() => setOpened("")} onDone={changed} />}
      {opened === "delete-version" && <Remove title={t.schemas.deleteVersion(version)} path={`${path}/versions/${version}`} isGone={isGone} typed={isGone ? `${subject} ${version}` : undefined} onClose={() => setOpened("")} onDone={() => (live.length + deleted.size > 1 || !isGone ? changed() : window.setTimeout(() => route(page("schemas"))))} />}
      {opened === "delete" && <Remove title={t.schemas.delete} path={path} isGone={found !== undefined && live.length === 0} typed={subject} onClose={() => setOpened("")} onDone={() => window.setTimeout(() => route(page("schemas")))} />}
    </>
  );
}

function OneVersion({ found, isGone }: { found: SchemaVersion; isGone: boolean }) {
  const references = (found.references ?? []).map((one): [string, preact.ComponentChildren] => [t.schemas.reference, <a href={`${page("schemas", one.subject)}?version=${one.version}`}>{one.name} → {one.subject} {one.version}</a>]);
  return (
    <Panel>
      {isGone && <p><Badge text="deleted" /></p>}
      <Definitions of={[[t.schemas.id, <Copyable text={String(found.id)} />], [t.schemas.type, found.schemaType ?? "AVRO"], [t.schemas.version, <Count value={found.version} />], ...references]} />
      <Content text={found.schema} isJson={found.schemaType !== "PROTOBUF"} label={t.schemas.tabs["schema"] ?? ""} />
    </Panel>
  );
}

function Difference({ subject, now, against }: { subject: string; now: SchemaVersion; against: number }) {
  const loaded = useLoad((signal) => get<SchemaVersion>(`/registry/subjects/${part(subject)}/versions/${against}`, { deleted: true }, signal), [subject, against]);
  return (
    <Shown of={loaded}>
      {(old) => {
        const lines = difference(pretty(old).split("\n"), pretty(now).split("\n"));
        return (
          <pre class="content difference" tabIndex={0} aria-label={t.schemas.tabs["difference"]}>
            {lines.every((line) => line.mark === " ") ? t.schemas.same : lines.map((line, at) => <div key={at} class={line.mark === "+" ? "added" : line.mark === "-" ? "removed" : ""}>{`${line.mark} ${line.text}`}</div>)}
          </pre>
        );
      }}
    </Shown>
  );
}

/** Hides what is there, and removes for good what is hidden already. */
function Remove({ title, path, isGone, typed, onClose, onDone }: { title: string; path: string; isGone: boolean; typed?: string; onClose: () => void; onDone: () => void }) {
  const remove = async () => {
    await call("DELETE", path, { query: isGone ? { permanent: true } : {} });
    notify(isGone ? t.schemas.removed : t.schemas.deleted);
    onDone();
  };
  return (
    <FormDialog title={isGone ? t.schemas.permanently(title) : title} action={isGone ? t.schemas.permanently(title) : title} onClose={onClose} onSubmit={remove} isDangerous typed={typed}>
      <p>{isGone ? t.schemas.permanentText : t.schemas.deleteText}</p>
    </FormDialog>
  );
}

function Restore({ version, onClose, onDone }: { version: SchemaVersion; onClose: () => void; onDone: () => void }) {
  const restore = async () => {
    await post(`/registry/subjects/${part(version.subject)}/versions`, { schema: version.schema, schemaType: version.schemaType ?? "AVRO", references: version.references ?? [] });
    notify(t.schemas.restored);
    onDone();
  };
  return <FormDialog title={t.schemas.restore} action={t.schemas.restore} onClose={onClose} onSubmit={restore}><p>{t.schemas.restoreText(version.version)}</p></FormDialog>;
}
