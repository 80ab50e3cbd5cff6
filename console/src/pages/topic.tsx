/** One topic: messages, partitions, groups, rates, settings. */

import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { call, get, getRows, part, post } from "../api/client";
import type { Partition, TopicDescription, TopicGroup } from "../api/types";
import * as format from "../format";
import { Badge, Button, Definitions, Empty, ErrorNote, GroupKind, isNotFound, Missing, NotFound, PageHead, Panel, Shown, Tabs, Tile } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { TextField } from "../parts/fields";
import { HistoryPlots } from "../parts/history";
import { Bytes, Copyable, Count, Duration } from "../parts/numbers";
import { chosenSettings, SettingsForm, useSettings, type Drafts } from "../parts/settings";
import { ServerList, Table, type Column } from "../parts/table";
import { Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { page } from "../state/address";
import { useLoad } from "../state/load";
import { useMay } from "../state/person";
import { t } from "../texts";
import { MessagesTab } from "./messages";
import { Produce } from "./produce";

type Opened = "" | "produce" | "grow" | "truncate" | "delete";

export function TopicPage() {
  const { params } = useRoute();
  const topic = params["topic"] ?? "";
  return <OneTopic key={topic} topic={topic} tab={params["tab"] || "messages"} />;
}

function OneTopic({ topic, tab }: { topic: string; tab: string }) {
  const may = useMay("topic", topic);
  const [opened, setOpened] = useState<Opened>("");
  const loaded = useLoad((signal) => get<TopicDescription>(`/v1/topics/${part(topic)}`, {}, signal), [topic], 5000);
  const close = () => setOpened("");
  if (loaded.data === undefined && isNotFound(loaded.error)) return <NotFound title={topic} list={{ title: t.nav.pages.topics, href: page("topics") }} error={loaded.error} onRetry={loaded.reload} />;
  const tabs = ["messages", "partitions", "groups", "rates", "settings"].filter((one) => one !== "messages" || may("read") || tab === one);
  return (
    <>
      <PageHead title={topic} crumbs={[{ title: t.nav.pages.topics, href: page("topics") }]}>
        {may("write") && <Button icon="send" kind="primary" onClick={() => setOpened("produce")}>{t.produce.title}</Button>}
        {may("alter") && <Button onClick={() => setOpened("grow")}>{t.topic.grow}</Button>}
        {may("delete") && <Button onClick={() => setOpened("truncate")}>{t.topic.truncate}</Button>}
        {may("delete") && <Button kind="danger-quiet" icon="trash" onClick={() => setOpened("delete")}>{t.delete}</Button>}
      </PageHead>
      {loaded.error && <ErrorNote error={loaded.error} onRetry={loaded.reload} />}
      {loaded.data && <Figures topic={loaded.data} />}
      <Tabs label={topic} now={tab} tabs={tabs.map((id) => ({ id, title: t.topic.tabs[id] ?? id, href: id === "messages" ? page("topics", topic) : page("topics", topic, id) }))} />
      {tab === "messages" && <MessagesTab topic={topic} partitions={loaded.data?.partitions ?? 0} mayWrite={may("write")} />}
      {tab === "partitions" && <PartitionsTab topic={topic} />}
      {tab === "groups" && <GroupsTab topic={topic} />}
      {tab === "rates" && <RatesTab topic={topic} />}
      {tab === "settings" && loaded.data && <SettingsTab topic={loaded.data} mayChange={may("alter_configs")} onDone={loaded.reload} />}
      {opened === "produce" && <Produce topic={topic} onClose={close} />}
      {opened === "grow" && loaded.data && <Grow topic={loaded.data} onClose={close} onDone={loaded.reload} />}
      {opened === "truncate" && <Truncate topic={topic} onClose={close} onDone={loaded.reload} />}
      {opened === "delete" && <Delete topic={topic} onClose={close} />}
    </>
  );
}

function Figures({ topic }: { topic: TopicDescription }) {
  return (
    <div class="tiles">
      <Tile title={t.topics.messages}><Count value={topic.messages} /></Tile>
      <Tile title={t.topics.bytes}><Bytes value={topic.bytes} /></Tile>
      <Tile title={t.topics.partitions}><Count value={topic.partitions} /></Tile>
      <Tile title={t.topics.replication}><Count value={topic.replication} /></Tile>
    </div>
  );
}

const PARTITION_COLUMNS = (topic: string): Column<Partition>[] => [
  { id: "partition", title: t.topic.partition, isNumber: true, cell: (one) => <a href={`${page("topics", topic)}?partition=${one.partition}`}>{one.partition}</a> },
  { id: "leader", title: t.topic.leader, isNumber: true, cell: (one) => (one.leader < 0 ? <Badge text="down" /> : one.leader) },
  { id: "replicas", title: t.topic.replicas, cell: (one) => one.replicas.map((node) => <span key={node} class={one.in_sync.includes(node) ? "replica good" : "replica bad"} title={one.in_sync.includes(node) ? t.topic.inSync : t.topic.notInSync}>{node}</span>) },
  { id: "start", title: t.topic.start, isNumber: true, cell: (one) => <Count value={one.start_offset} /> },
  { id: "end", title: t.topic.end, isNumber: true, cell: (one) => <Count value={one.end_offset} /> },
  { id: "mark", title: t.topic.watermark, isNumber: true, cell: (one) => <Count value={one.high_watermark} /> },
  { id: "bytes", title: t.topics.bytes, isNumber: true, cell: (one) => <Bytes value={one.bytes} /> },
];

function PartitionsTab({ topic }: { topic: string }) {
  return (
    <ServerList<Partition>
      label={t.topic.tabs["partitions"] ?? ""}
      columns={PARTITION_COLUMNS(topic)}
      keyOf={(one) => String(one.partition)}
      everyMs={5000}
      load={(query, signal) => getRows<Partition>("partitions", `/v1/topics/${part(topic)}/partitions`, query, signal)}
      empty={{ title: t.list.noMatch }}
    />
  );
}

function GroupsTab({ topic }: { topic: string }) {
  const loaded = useLoad((signal) => get<{ groups: TopicGroup[]; missing_nodes: number[] }>(`/v1/topics/${part(topic)}/groups`, {}, signal), [topic], 5000);
  return (
    <Shown of={loaded}>
      {({ groups, missing_nodes }) => (
        <>
          <Missing nodes={missing_nodes} />
          {groups.length === 0 ? <Empty title={t.topic.noGroups} icon="groups" /> : (
            <Table
              label={t.topic.tabs["groups"] ?? ""}
              rows={groups}
              keyOf={(group) => `${group.kind} ${group.name}`}
              columns={[
                { id: "name", title: t.groups.name, isWide: true, cell: (group) => <a href={page("groups", group.name)}><Marked text={group.name} /></a> },
                { id: "kind", title: t.groups.kind, cell: (group) => <GroupKind of={group} /> },
                { id: "state", title: t.groups.state, cell: (group) => <Badge text={group.state} /> },
                { id: "members", title: t.groups.members, isNumber: true, cell: (group) => <Count value={group.stats.members} /> },
                { id: "lag", title: t.groups.lag, isNumber: true, cell: (group) => <Count value={group.stats.lag} /> },
                { id: "late", title: t.groups.lagTime, isNumber: true, cell: (group) => <Duration ms={group.stats.lag_ms} /> },
                { id: "flight", title: t.groups.inFlight, isNumber: true, cell: (group) => <Count value={group.stats.in_flight} /> },
              ]}
            />
          )}
        </>
      )}
    </Shown>
  );
}

function RatesTab({ topic }: { topic: string }) {
  return (
    <HistoryPlots
      selector={{ topic }}
      plots={[
        { title: t.overview.messages, series: ["in_per_s", "out_per_s"], unit: (value) => `${format.compact(value)}/s` },
        { title: t.overview.bytes, series: ["in_bytes_per_s", "out_bytes_per_s"], unit: (value) => `${format.bytes(value)}/s`, isBytes: true },
      ]}
    />
  );
}

function SettingsTab({ topic, mayChange, onDone }: { topic: TopicDescription; mayChange: boolean; onDone: () => void }) {
  const settings = useSettings("topics");
  const [drafts, setDrafts] = useState<Drafts>({});
  const [error, setError] = useState<Error>();
  const changes = Object.keys(drafts).length;
  const save = async () => {
    try {
      await call("PATCH", `/v1/topics/${part(topic.name)}`, { body: { settings: chosenSettings(settings.data ?? [], drafts) } });
      setDrafts({});
      setError(undefined);
      notify(t.settings.saved);
      onDone();
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Panel title={t.topic.tabs["settings"]} actions={changes > 0 && <><Button onClick={() => setDrafts({})}>{t.settings.discard}</Button><Button kind="primary" onClick={() => void save()}>{t.settings.save(changes)}</Button></>}>
      <Definitions of={[[t.topic.id, <Copyable text={topic.id} />]]} />
      {error && <ErrorNote error={error} />}
      <Shown of={settings}>{(known) => <SettingsForm settings={known} current={topic.settings} drafts={drafts} onChange={setDrafts} isReadOnly={!mayChange} />}</Shown>
    </Panel>
  );
}

function Grow({ topic, onClose, onDone }: { topic: TopicDescription; onClose: () => void; onDone: () => void }) {
  const [partitions, setPartitions] = useState(String(topic.partitions + 1));
  const grow = async () => {
    await post(`/v1/topics/${part(topic.name)}/partitions`, { partitions: Number(partitions) });
    notify(t.topic.grown);
    onDone();
  };
  return (
    <FormDialog title={t.topic.grow} action={t.topic.grow} onClose={onClose} onSubmit={grow}>
      <TextField label={t.topics.partitions} name="partitions" type="number" value={partitions} onChange={setPartitions} hint={t.topic.growHint(topic.partitions)} isRequired />
    </FormDialog>
  );
}

function Truncate({ topic, onClose, onDone }: { topic: string; onClose: () => void; onDone: () => void }) {
  const [before, setBefore] = useState("");
  const truncate = async () => {
    await call("DELETE", `/v1/topics/${part(topic)}/records`, { query: { before } });
    notify(t.topic.truncated);
    onDone();
  };
  return (
    <FormDialog title={t.topic.truncate} action={t.topic.truncate} onClose={onClose} onSubmit={truncate} isDangerous typed={topic}>
      <p>{t.topic.truncateText}</p>
      <TextField label={t.topic.before} name="before" value={before} onChange={setBefore} placeholder={t.topic.everything} hint={t.momentHint} />
    </FormDialog>
  );
}

function Delete({ topic, onClose }: { topic: string; onClose: () => void }) {
  const { route } = useLocation();
  const remove = async () => {
    await call("DELETE", `/v1/topics/${part(topic)}`);
    notify(t.topic.deleted(topic));
    window.setTimeout(() => route(page("topics")));
  };
  return (
    <FormDialog title={t.topic.delete} action={t.topic.delete} onClose={onClose} onSubmit={remove} isDangerous typed={topic}>
      <p>{t.topic.deleteText}</p>
    </FormDialog>
  );
}
