/** One group: lag, members, what is in flight, rebalances, settings; reset and rewind with a preview. */

import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { call, get, getRows, part } from "../api/client";
import type { GroupDescription, GroupMember, Lag, PartitionLag, QueueStats, Rebalances, ShareMember, ShareMembers, TopicPartitions } from "../api/types";
import * as format from "../format";
import { Badge, Button, Definitions, Empty, ErrorNote, GroupKind, isNotFound, NotFound, PageHead, Panel, Shown, Tabs, Tile } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { Select } from "../parts/fields";
import { HistoryPlots } from "../parts/history";
import { Count, Duration, Rate, Time } from "../parts/numbers";
import { chosenSettings, SettingsForm, useSettings, type Drafts } from "../parts/settings";
import { ServerList, Table, type ListFilter } from "../parts/table";
import { Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { page, useAddress } from "../state/address";
import { useLoad } from "../state/load";
import { useMay } from "../state/person";
import { t } from "../texts";
import { InFlightTab } from "./in-flight";
import { DeleteOffsets, MoveGroup, PurgeGroup } from "./move-group";

const EVERY_MS = 4000;

export function GroupPage() {
  const { params } = useRoute();
  const group = params["group"] ?? "";
  return <OneGroup key={group} group={group} tab={params["tab"] || "lag"} />;
}

type Opened = "" | "move" | "purge" | "delete" | "offsets";

function OneGroup({ group, tab }: { group: string; tab: string }) {
  const may = useMay("group", group);
  const [opened, setOpened] = useState<Opened>("");
  const [revision, setRevision] = useState(0);
  const loaded = useLoad((signal) => get<GroupDescription>(`/v1/groups/${part(group)}`, { members: false }, signal), [group, revision], EVERY_MS);
  // The sums and the topics; the tab of the lag asks for the partitions, a page of them.
  const lag = useLoad((signal) => get<Lag>(`/v1/groups/${part(group)}/lag`, { limit: 1 }, signal), [group, revision], EVERY_MS);
  const isQueue = loaded.data?.kind === "queue";
  const share = useLoad((signal) => (isQueue ? get<ShareMembers>(`/v1/groups/${part(group)}/share-members`, { limit: 1 }, signal) : Promise.resolve(undefined)), [group, isQueue], EVERY_MS);
  const isShare = (share.data?.total ?? 0) > 0;
  const topics = [...new Set([...(loaded.data?.topics ?? []), ...(lag.data?.topics ?? [])])].sort();
  const tabs = isQueue ? ["lag", "in-flight", "members", "lanes", "settings"] : ["lag", "members", "rebalances"];
  const state = loaded.data?.state ?? (isShare ? share.data?.state : t.group.queueState);
  const close = () => setOpened("");
  if (loaded.data === undefined && isNotFound(loaded.error)) return <NotFound title={group} list={{ title: t.nav.pages.groups, href: page("groups") }} error={loaded.error} onRetry={loaded.reload} />;
  const done = () => setRevision(revision + 1);
  return (
    <>
      <PageHead title={group} crumbs={[{ title: t.nav.pages.groups, href: page("groups") }]} note={loaded.data && <><GroupKind of={{ kind: loaded.data.kind, share: isShare }} /> {state && <Badge text={state} />}</>}>
        {may("read") && topics.length > 0 && <Button onClick={() => setOpened("move")}>{isQueue ? t.group.rewind : t.group.reset}</Button>}
        {may("read") && isQueue && topics.length > 0 && <Button onClick={() => setOpened("purge")}>{t.group.purge}</Button>}
        {may("delete") && loaded.data && !isQueue && topics.length > 0 && <Button kind="danger-quiet" onClick={() => setOpened("offsets")}>{t.group.deleteOffsets}</Button>}
        {may("delete") && <Button kind="danger-quiet" icon="trash" onClick={() => setOpened("delete")}>{t.delete}</Button>}
      </PageHead>
      {loaded.error && <ErrorNote error={loaded.error} onRetry={loaded.reload} />}
      {loaded.data && (
        <>
          <div class="tiles">
            <Tile title={t.groups.lag}><Count value={lag.data?.lag} /></Tile>
            <Tile title={t.groups.lagTime}><Duration ms={lag.data?.lag_ms} /></Tile>
            {!isQueue && <Tile title={t.groups.members}><Count value={loaded.data.member_count} /></Tile>}
            <Tile title={t.topics.title}><Count value={topics.length} /></Tile>
          </div>
          <Tabs label={group} now={tab} tabs={tabs.map((id) => ({ id, title: t.group.tabs[id] ?? id, href: id === "lag" ? page("groups", group) : page("groups", group, id) }))} />
          {tab === "lag" && <LagTab group={group} topics={topics} revision={revision} />}
          {tab === "members" && isQueue && <QueueMembersTab group={group} topics={topics} isShare={isShare} />}
          {tab === "members" && !isQueue && <MembersTab group={loaded.data} />}
          {tab === "rebalances" && <RebalancesTab group={group} />}
          {tab === "in-flight" && <InFlightTab group={group} topics={topics} mayChange={may("alter_configs")} />}
          {tab === "lanes" && (topics.length > 0 ? <LanesTab group={group} topics={topics} /> : <Empty title={t.group.noTopics} icon="groups" />)}
          {tab === "settings" && <GroupSettings group={loaded.data} mayChange={may("alter_configs")} onDone={loaded.reload} />}
        </>
      )}
      {opened === "move" && <MoveGroup group={group} isQueue={isQueue} topics={topics} onClose={close} onDone={done} />}
      {opened === "purge" && <PurgeGroup group={group} topics={topics} onClose={close} onDone={done} />}
      {opened === "offsets" && <DeleteOffsets group={group} topics={topics} onClose={close} onDone={done} />}
      {opened === "delete" && <DeleteGroup group={group} onClose={close} />}
    </>
  );
}

function topicFilter(topics: string[]): ListFilter[] {
  return topics.length > 1 ? [{ name: "topic", label: t.groups.topic, choices: [["", t.group.allTopics], ...topics] }] : [];
}

function LagTab({ group, topics, revision }: { group: string; topics: string[]; revision: number }) {
  return (
    <>
      <HistoryPlots selector={{ group }} plots={[{ title: t.groups.lag, series: ["lag"] }, { title: t.groups.lagTime, series: ["lag_ms"], unit: (value) => format.duration(value) }]} />
      <ServerList<PartitionLag>
        label={t.group.tabs["lag"] ?? ""}
        revision={revision}
        everyMs={EVERY_MS}
        keyOf={(one) => `${one.topic}/${one.partition}`}
        filters={topicFilter(topics)}
        load={async (query, signal) => {
          const { partitions, cursor, total } = await get<Lag>(`/v1/groups/${part(group)}/lag`, { ...query, sort: "lag" }, signal);
          return { rows: partitions, cursor, total };
        }}
        empty={{ title: t.group.noLag, icon: "groups" }}
        columns={[
          { id: "topic", title: t.groups.topic, isWide: true, cell: (one) => <a href={page("topics", one.topic)}>{one.topic}</a> },
          { id: "partition", title: t.topic.partition, isNumber: true, cell: (one) => <Count value={one.partition} /> },
          { id: "offset", title: t.group.committed, isNumber: true, cell: (one) => <Count value={one.offset} /> },
          { id: "end", title: t.topic.end, isNumber: true, cell: (one) => <Count value={one.end_offset} /> },
          { id: "lag", title: t.groups.lag, isNumber: true, cell: (one) => <Count value={one.lag} /> },
          { id: "late", title: t.groups.lagTime, isNumber: true, cell: (one) => <Duration ms={one.lag_ms} /> },
        ]}
      />
    </>
  );
}

function assignedOf(topics: TopicPartitions[]): string {
  return topics.map((one) => `${one.topic}: ${one.partitions.join(", ")}`).join("; ");
}

function MembersTab({ group }: { group: GroupDescription }) {
  return (
    <>
      <Definitions of={[[t.group.epoch, <Count value={group.epoch} />], [t.group.assignor, group.assignor || "–"]]} />
      <ServerList<GroupMember>
        label={t.groups.members}
        everyMs={EVERY_MS}
        keyOf={(member) => member.member_id}
        load={(query, signal) => getRows<GroupMember>("members", `/v1/groups/${part(group.name)}/assignment`, query, signal)}
        empty={{ title: t.group.noMembers, icon: "groups" }}
        columns={[
          { id: "member", title: t.group.member, cell: (member) => <Marked text={member.member_id} /> },
          { id: "instance", title: t.group.instance, cell: (member) => (member.instance_id ? <Marked text={member.instance_id} /> : "–") },
          { id: "host", title: t.group.host, cell: (member) => member.client_host || "–" },
          { id: "epoch", title: t.group.epoch, isNumber: true, cell: (member) => <Count value={member.member_epoch} /> },
          { id: "assigned", title: t.group.assigned, isWide: true, cell: (member) => assignedOf(member.assigned) },
        ]}
      />
    </>
  );
}

interface Holder {
  topic: string;
  consumer: string;
  messages: number;
}

const TOPICS_LOOKED_AT = 20;

/** Who receives from a queue: consumers with messages in flight and, of a share group, its members. */
function QueueMembersTab({ group, topics, isShare }: { group: string; topics: string[]; isShare: boolean }) {
  const loaded = useLoad(
    async (signal): Promise<Holder[]> => {
      const each = topics.slice(0, TOPICS_LOOKED_AT).map(async (topic) => {
        const { consumers } = await get<{ consumers: { consumer: string; messages: number }[] }>(`/v1/groups/${part(group)}/in-flight`, { topic, limit: 1 }, signal);
        return consumers.map((one) => ({ topic, ...one }));
      });
      return (await Promise.all(each)).flat();
    },
    [group, topics.join()],
    EVERY_MS,
  );
  return (
    <>
      {isShare && <ShareMembersList group={group} />}
      <Panel title={t.group.consumers}>
        <Shown of={loaded} lines={2}>
          {(holders) =>
            holders.length === 0 ? <Empty title={isShare ? t.group.noHolders : t.group.noMembers} icon="groups">{t.group.consumersHint}</Empty> : (
              <Table
                label={t.group.consumers}
                rows={holders}
                keyOf={(one) => `${one.topic} ${one.consumer}`}
                columns={[
                  { id: "consumer", title: t.groups.consumer, isWide: true, cell: (one) => <a href={`${page("groups", group, "in-flight")}?topic=${encodeURIComponent(one.topic)}&consumer=${encodeURIComponent(one.consumer)}`}><Marked text={one.consumer} /></a> },
                  { id: "topic", title: t.groups.topic, cell: (one) => <a href={page("topics", one.topic)}>{one.topic}</a> },
                  { id: "messages", title: t.groups.inFlight, isNumber: true, cell: (one) => <Count value={one.messages} /> },
                ]}
              />
            )
          }
        </Shown>
        {topics.length > TOPICS_LOOKED_AT && <p class="muted">{t.group.someTopics(TOPICS_LOOKED_AT, topics.length)}</p>}
      </Panel>
    </>
  );
}

function ShareMembersList({ group }: { group: string }) {
  return (
    <ServerList<ShareMember>
      label={t.groups.members}
      everyMs={EVERY_MS}
      keyOf={(member) => member.member_id}
      load={async (query, signal) => {
        const { members, cursor, total } = await get<ShareMembers>(`/v1/groups/${part(group)}/share-members`, query, signal);
        return { rows: members, cursor, total };
      }}
      empty={{ title: t.group.noMembers, icon: "groups" }}
      columns={[
        { id: "member", title: t.group.member, cell: (member) => <Marked text={member.member_id} /> },
        { id: "client", title: t.group.client, cell: (member) => <Marked text={member.client_id || "–"} /> },
        { id: "host", title: t.group.host, cell: (member) => member.client_host || "–" },
        { id: "epoch", title: t.group.epoch, isNumber: true, cell: (member) => <Count value={member.member_epoch} /> },
        { id: "assigned", title: t.group.assigned, isWide: true, cell: (member) => assignedOf(member.assigned) },
      ]}
    />
  );
}

function RebalancesTab({ group }: { group: string }) {
  const loaded = useLoad((signal) => get<Rebalances>(`/v1/groups/${part(group)}/rebalances`, {}, signal), [group], EVERY_MS);
  return (
    <Shown of={loaded}>
      {(found) => (
        <>
          <div class="tiles">
            <Tile title={t.group.rebalances}><Count value={found.count} /></Tile>
            <Tile title={t.group.longest}><Duration ms={found.duration_ms_max} /></Tile>
            <Tile title={t.group.timeouts}><Count value={found.timeouts} /></Tile>
            <Tile title={t.group.moved}><Count value={found.partitions_moved} /></Tile>
          </div>
          {found.history.length === 0 ? <Empty title={t.group.noRebalances} icon="refresh" /> : (
            <Table
              label={t.group.rebalances}
              rows={found.history}
              keyOf={(one) => `${one.started_at} ${one.reason}`}
              columns={[
                { id: "at", title: t.messages.time, cell: (one) => <Time ms={one.started_at} /> },
                { id: "for", title: t.group.duration, isNumber: true, cell: (one) => <Duration ms={one.duration_ms} /> },
                { id: "moved", title: t.group.moved, isNumber: true, cell: (one) => <Count value={one.partitions_moved} /> },
                { id: "why", title: t.dead.reason, isWide: true, cell: (one) => one.reason.replaceAll("_", " ") },
              ]}
            />
          )}
        </>
      )}
    </Shown>
  );
}

function LanesTab({ group, topics }: { group: string; topics: string[] }) {
  const address = useAddress();
  const topic = address.value("topic", topics[0] ?? "");
  const loaded = useLoad((signal) => get<QueueStats>(`/v1/groups/${part(group)}/stats`, { topic }, signal), [group, topic], EVERY_MS);
  return (
    <Shown of={loaded}>
      {(stats) => (
        <>
          {topics.length > 1 && <div class="toolbar"><Select label={t.groups.topic} value={topic} choices={topics} onChange={(value) => address.change({ topic: value }, true)} /></div>}
          <div class="tiles">{(["ready", "in_flight", "retrying", "parked", "delayed", "prepared", "dead_lettering"] as const).map((name) => <Tile key={name} title={t.group.states[name] ?? name}><Count value={stats[name]} /></Tile>)}</div>
          <Panel title={t.group.lanes}>
            <Table
              label={t.group.lanes}
              rows={stats.lanes}
              keyOf={(lane) => lane.lane}
              columns={[
                { id: "lane", title: t.produce.lane, isWide: true, cell: (lane) => lane.lane },
                { id: "ready", title: t.group.states["ready"] ?? "", isNumber: true, cell: (lane) => <Count value={lane.ready} /> },
                { id: "flight", title: t.groups.inFlight, isNumber: true, cell: (lane) => <Count value={lane.in_flight} /> },
                { id: "in", title: t.topics.inPerS, isNumber: true, cell: (lane) => <Rate value={lane.in_per_second} /> },
                { id: "out", title: t.topics.outPerS, isNumber: true, cell: (lane) => <Rate value={lane.out_per_second} /> },
                { id: "oldest", title: t.group.oldest, isNumber: true, cell: (lane) => <Duration ms={lane.oldest_age_ms} /> },
                { id: "wait", title: t.group.longestWait, isNumber: true, cell: (lane) => <Duration ms={lane.longest_wait_ms} /> },
              ]}
            />
          </Panel>
          <Panel title={t.group.totals}>
            <div class="totals"><Definitions of={Object.entries(stats.totals).map(([name, value]) => [name.replaceAll("_", " "), <Count value={value} />])} /></div>
          </Panel>
        </>
      )}
    </Shown>
  );
}

function GroupSettings({ group, mayChange, onDone }: { group: GroupDescription; mayChange: boolean; onDone: () => void }) {
  const settings = useSettings("groups");
  const [drafts, setDrafts] = useState<Drafts>({});
  const [error, setError] = useState<Error>();
  const changes = Object.keys(drafts).length;
  const defaults = new Map((settings.data ?? []).map((one) => [one.name, one.default]));
  const current = Object.fromEntries(Object.entries(group.settings ?? {}).filter(([name, value]) => defaults.get(name) !== value));
  const save = async () => {
    try {
      await call("PATCH", `/v1/groups/${part(group.name)}`, { body: { settings: chosenSettings(settings.data ?? [], drafts) } });
      setDrafts({});
      setError(undefined);
      notify(t.settings.saved);
      onDone();
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Panel title={t.group.tabs["settings"]} actions={changes > 0 && <><Button onClick={() => setDrafts({})}>{t.settings.discard}</Button><Button kind="primary" onClick={() => void save()}>{t.settings.save(changes)}</Button></>}>
      {error && <ErrorNote error={error} />}
      <Shown of={settings}>{(known) => <SettingsForm settings={known} current={current} drafts={drafts} onChange={setDrafts} isReadOnly={!mayChange} />}</Shown>
    </Panel>
  );
}

function DeleteGroup({ group, onClose }: { group: string; onClose: () => void }) {
  const { route } = useLocation();
  const remove = async () => {
    await call("DELETE", `/v1/groups/${part(group)}`);
    notify(t.group.deleted(group));
    window.setTimeout(() => route(page("groups")));
  };
  return (
    <FormDialog title={t.group.delete} action={t.group.delete} onClose={onClose} onSubmit={remove} isDangerous typed={group}>
      <p>{t.group.deleteText}</p>
    </FormDialog>
  );
}
