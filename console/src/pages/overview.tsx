/** What goes on, what is wrong, and where to click. */

import { get } from "../api/client";
import type { Cluster, ClusterNode, DeadLetterTopic, Group, Health, ScheduleStats, Topic, Totals } from "../api/types";
import * as format from "../format";
import { Badge, Empty, GroupKind, PageHead, Panel, Shown, Tile } from "../parts/basics";
import { HistoryPlots } from "../parts/history";
import { Icon } from "../parts/icons";
import { Bytes, Count, Duration, Rate } from "../parts/numbers";
import { Table } from "../parts/table";
import { Marked } from "../parts/text";
import { page } from "../state/address";
import { useLoad } from "../state/load";
import { mayAny, mayCluster } from "../state/person";
import { t } from "../texts";

const EVERY_MS = 5000;
const TOP = 6;
// Dead letters are counted by topic, so this is asked less often, and for so many topics.
const COUNTED_EVERY_MS = 30_000;
const COUNTED_TOPICS = 100;
// The node compares all groups for the few with the most lag.
const COMPARED_EVERY_MS = 15_000;
const LITTLE_SPACE = 0.1;
const perSecond = (value: number) => `${format.compact(value)}/s`;
const bytesPerSecond = (value: number) => `${format.bytes(value)}/s`;

export function Overview() {
  return (
    <>
      <PageHead title={t.nav.overview} />
      {mayCluster("describe") && <ClusterState />}
      <AllFigures />
      {mayCluster("describe") && (
        <HistoryPlots
          plots={[
            { title: t.overview.messages, series: ["in_per_s", "out_per_s"], unit: perSecond },
            { title: t.overview.bytes, series: ["in_bytes_per_s", "out_bytes_per_s"], unit: bytesPerSecond, isBytes: true },
            { title: t.overview.queues, series: ["delivered_per_s", "acked_per_s", "dead_lettered_per_s"], unit: perSecond },
            { title: t.overview.requests, series: ["requests_per_s", "request_errors_per_s"], unit: perSecond },
          ]}
        />
      )}
      <div class="columns">
        {mayAny("topic", "describe") && <BusyTopics />}
        {mayAny("group", "describe") && <LateGroups />}
      </div>
    </>
  );
}

function ClusterState() {
  const loaded = useLoad(
    async (signal) => {
      const [cluster, health, nodes] = await Promise.all([
        get<Cluster>("/v1/admin/cluster", {}, signal),
        get<Health>("/v1/admin/cluster/health", {}, signal),
        get<{ nodes: ClusterNode[] }>("/v1/admin/nodes", {}, signal),
      ]);
      return { cluster, health, nodes: nodes.nodes };
    },
    [],
    EVERY_MS,
  );
  return (
    <Shown of={loaded} lines={3}>
      {({ cluster, health, nodes }) => (
        <>
          <Problems health={health} />
          <div class="tiles even">
            <Tile title={t.overview.nodes} href={page("cluster")} tone={cluster.nodes_running < cluster.nodes ? "bad" : ""}><Count value={cluster.nodes_running} /> <small>/ {cluster.nodes}</small></Tile>
            <Tile title={t.overview.topics} href={page("topics")}><Count value={cluster.topics} /></Tile>
            <Tile title={t.overview.partitions} href={page("cluster", "partitions")}><Count value={cluster.partitions} /></Tile>
            <Tile title={t.overview.leaderless} href={`${page("cluster", "partitions")}?state=leaderless`} tone={cluster.leaderless ? "bad" : ""}><Count value={cluster.leaderless} /></Tile>
            <Tile title={t.overview.underReplicated} href={`${page("cluster", "partitions")}?state=under_replicated`} tone={cluster.under_replicated ? "warn" : ""}><Count value={cluster.under_replicated} /></Tile>
            <Tile title={t.overview.moving} href={page("cluster", "reassignments")}><Count value={cluster.moving} /></Tile>
          </div>
          {nodes.length > 1 && (
            <div class="node-strip">
              {nodes.map((node) => (
                <a key={node.id} class="node-chip" href={`${page("cluster", "partitions")}?node=${node.id}`}>
                  <strong>{t.nav.node(node.id)}</strong> <Badge text={node.state} />
                  <span class="muted">{t.overview.leads(node.leaders)}{node.controller ? ` · ${t.cluster.controller}` : ""}</span>
                </a>
              ))}
            </div>
          )}
        </>
      )}
    </Shown>
  );
}

/** How much waits, and how much room is left. */
function AllFigures() {
  const totals = useLoad((signal) => (mayCluster("describe") ? get<Totals>("/v1/totals", {}, signal) : Promise.resolve(undefined)), [], EVERY_MS);
  const delayed = useLoad((signal) => (mayCluster("describe") ? get<ScheduleStats>("/v1/schedules/stats", {}, signal) : Promise.resolve(undefined)), [], COUNTED_EVERY_MS);
  const dead = useLoad((signal) => (mayAny("topic", "read") ? get<{ topics: DeadLetterTopic[]; cursor: string }>("/v1/deadletters", { limit: COUNTED_TOPICS }, signal) : Promise.resolve(undefined)), [], COUNTED_EVERY_MS).data;
  const letters = dead?.topics.reduce((sum, one) => sum + Number(one.messages), 0);
  return (
    <div class="tiles even">
      {totals.data && <Tile title={t.overview.lag} isBroad href={`${page("groups")}?sort=lag&order=desc`}><Count value={totals.data.lag} /> <small>{t.overview.lagging(totals.data.lagging)}{t.overview.without(totals.data.missing_nodes)}</small></Tile>}
      {delayed.data && <Tile title={t.overview.delayed} href={page("schedules")}><Count value={delayed.data.pending} /></Tile>}
      {dead && <Tile title={t.overview.dead} href={page("dead-letters")} tone={letters ? "warn" : ""}><Count value={letters} />{dead.cursor && " +"}</Tile>}
      {totals.data && <Disk nodes={totals.data.nodes} missing={totals.data.missing_nodes} />}
    </div>
  );
}

/** All replicas, and the room on the fullest disk. */
function Disk({ nodes, missing }: { nodes: Totals["nodes"]; missing: number[] }) {
  const free = (node: Totals["nodes"][number]) => Number(node.free_bytes) / Math.max(1, Number(node.total_bytes));
  const fullest = nodes.reduce((one, other) => (free(other) < free(one) ? other : one));
  return (
    <Tile title={t.overview.disk} isBroad href={page("cluster")} tone={free(fullest) < LITTLE_SPACE ? "bad" : ""}>
      <Bytes value={nodes.reduce((sum, node) => sum + Number(node.bytes), 0)} /> <small>{t.overview.free(format.bytes(fullest.free_bytes), Math.round(free(fullest) * 100), nodes.length > 1 ? fullest.id : undefined)}{t.overview.without(missing)}</small>
    </Tile>
  );
}

/** Where one sees what a problem names. */
const WHERE: Record<string, string> = {
  leaderless: `${page("cluster", "partitions")}?state=leaderless`,
  under_replicated: `${page("cluster", "partitions")}?state=under_replicated`,
};

function Problems({ health }: { health: Health }) {
  if (health.status === "ok") return <p class="health good"><Icon name="check" /> {t.overview.ok}</p>;
  return (
    <div class={`health ${health.status === "down" ? "bad" : "warn"}`} role="alert">
      <p><Icon name="warning" /> <strong>{t.overview.status[health.status] ?? health.status}</strong></p>
      <ul>{health.problems.map((problem, at) => <li key={problem}>{problem} <a href={WHERE[health.kinds[at] ?? ""] ?? page("cluster")}>{t.overview.show}</a></li>)}</ul>
    </div>
  );
}

function BusyTopics() {
  const loaded = useLoad((signal) => get<{ topics: Topic[] }>("/v1/topics", { sort: "in_per_s", order: "desc", limit: TOP, stats: true }, signal), [], EVERY_MS);
  return (
    <Panel title={t.overview.busy} actions={<a href={`${page("topics")}?sort=in_per_s&order=desc`}>{t.all}</a>}>
      <Shown of={loaded} lines={3}>
        {({ topics }) =>
          topics.length === 0 ? <Empty title={t.topics.none} /> : (
            <Table
              label={t.overview.busy}
              rows={topics}
              keyOf={(topic) => topic.name}
              columns={[
                { id: "name", title: t.topics.name, isWide: true, cell: (topic) => <a href={page("topics", topic.name)}><bdi>{topic.name}</bdi></a> },
                { id: "in", title: t.topics.inPerS, isNumber: true, cell: (topic) => <Rate value={topic.stats?.in_per_s} /> },
                { id: "out", title: t.topics.outPerS, isNumber: true, cell: (topic) => <Rate value={topic.stats?.out_per_s} /> },
                { id: "messages", title: t.topics.messages, isNumber: true, cell: (topic) => <Count value={topic.stats?.messages} /> },
                { id: "bytes", title: t.topics.bytes, isNumber: true, cell: (topic) => <Bytes value={topic.stats?.bytes} /> },
              ]}
            />
          )
        }
      </Shown>
    </Panel>
  );
}

function LateGroups() {
  const loaded = useLoad((signal) => get<{ groups: Group[] }>("/v1/groups", { sort: "lag", order: "desc", limit: TOP, stats: true }, signal), [], COMPARED_EVERY_MS);
  return (
    <Panel title={t.overview.late} actions={<a href={`${page("groups")}?sort=lag&order=desc`}>{t.all}</a>}>
      <Shown of={loaded} lines={3}>
        {({ groups }) =>
          groups.length === 0 ? <Empty title={t.groups.none} icon="groups" /> : (
            <Table
              label={t.overview.late}
              rows={groups}
              keyOf={(group) => group.name}
              columns={[
                { id: "name", title: t.groups.name, isWide: true, cell: (group) => <a href={page("groups", group.name)}><Marked text={group.name} /></a> },
                { id: "kind", title: t.groups.kind, cell: (group) => <GroupKind of={group} /> },
                { id: "lag", title: t.groups.lag, isNumber: true, cell: (group) => <Count value={group.stats?.lag} /> },
                { id: "late", title: t.groups.lagTime, isNumber: true, cell: (group) => <Duration ms={group.stats?.lag_ms} /> },
                { id: "flight", title: t.groups.inFlight, isNumber: true, cell: (group) => <Count value={group.stats?.in_flight} /> },
              ]}
            />
          )
        }
      </Shown>
    </Panel>
  );
}
