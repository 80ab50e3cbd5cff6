/** Nodes, a map of the partitions, reassignments with progress, drain. */

import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import { call, get, getRows, post } from "../api/client";
import type { Cluster, ClusterNode, MovingPartition, PlacedPartition, PlannedMove, Topic } from "../api/types";
import { Badge, Button, Definitions, ErrorNote, PageHead, Shown, Tabs } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { CheckField, SelectField, TextField } from "../parts/fields";
import { Bytes, Copyable, Count, Duration } from "../parts/numbers";
import { ServerList, Table } from "../parts/table";
import { notify } from "../parts/toasts";
import { page } from "../state/address";
import { useLoad } from "../state/load";
import { mayCluster } from "../state/person";
import { t } from "../texts";

const EVERY_MS = 3000;
/** A node that does not answer leads nothing that could be moved away. */
const DRAINED_FROM = ["running", "draining"];

export function ClusterPage() {
  const { params } = useRoute();
  const tab = params["tab"] || "nodes";
  const [isPlanning, setPlanning] = useState(false);
  const [revision, setRevision] = useState(0);
  const loaded = useLoad(
    async (signal) => {
      const [cluster, nodes] = await Promise.all([get<Cluster>("/v1/admin/cluster", {}, signal), get<{ nodes: ClusterNode[] }>("/v1/admin/nodes", {}, signal)]);
      return { cluster, nodes: nodes.nodes };
    },
    [],
    EVERY_MS,
  );
  return (
    <>
      <PageHead title={t.nav.pages.cluster} note={loaded.data && <Copyable text={loaded.data.cluster.cluster_id} />}>
        {mayCluster("alter") && (loaded.data?.nodes.length ?? 0) > 1 && <Button kind="primary" onClick={() => setPlanning(true)}>{t.cluster.reassign}</Button>}
      </PageHead>
      <Tabs label={t.nav.pages.cluster} now={tab} tabs={["nodes", "partitions", "reassignments"].map((id) => ({ id, title: t.cluster.tabs[id] ?? id, href: id === "nodes" ? page("cluster") : page("cluster", id) }))} />
      {tab === "nodes" && <Shown of={loaded}>{({ cluster, nodes }) => <Nodes cluster={cluster} nodes={nodes} onDone={loaded.reload} />}</Shown>}
      {tab === "partitions" && <Placements nodes={loaded.data?.nodes ?? []} />}
      {tab === "reassignments" && <Reassignments revision={revision} />}
      {isPlanning && <Reassign nodes={loaded.data?.nodes ?? []} onClose={() => setPlanning(false)} onDone={() => setRevision(revision + 1)} />}
    </>
  );
}

function Nodes({ cluster, nodes, onDone }: { cluster: Cluster; nodes: ClusterNode[]; onDone: () => void }) {
  const [draining, setDraining] = useState<ClusterNode>();
  const most = Math.max(1, ...nodes.map((node) => node.replicas));
  const drain = async () => {
    await post(`/v1/admin/nodes/${draining?.id}/${draining?.state === "draining" ? "undrain" : "drain"}`);
    notify(t.cluster.drainStarted);
    onDone();
  };
  return (
    <>
      <div class="node-cards">
        {nodes.map((node) => (
          <section key={node.id} class={`panel node ${node.state}`} aria-label={t.nav.node(node.id)}>
            <div class="panel-head">
              <h2>{t.nav.node(node.id)}</h2>
              <Badge text={node.state} />
              {node.controller && <span class="badge accent">{t.cluster.controller}</span>}
              {node.voter && <span class="badge">{t.cluster.voter}</span>}
            </div>
            {node.state === "draining" && <p>{node.leaders > 0 ? t.cluster.draining(node.leaders) : t.cluster.drained}</p>}
            <Definitions of={[[t.cluster.leaders, <Count value={node.leaders} />], [t.topic.replicas, <Count value={node.replicas} />], [t.cluster.rack, node.rack || "–"], ...Object.entries(node.addresses).map(([name, address]): [string, preact.ComponentChildren] => [name, <Copyable text={address} />])]} />
            <label class="inline muted">{t.cluster.load} <meter min={0} max={most} value={node.replicas} title={t.cluster.loadHint} /></label>
            <div class="actions">
              <a href={`${page("cluster", "partitions")}?node=${node.id}`}>{t.cluster.tabs["partitions"]}</a>
              {mayCluster("alter") && nodes.length > 1 && DRAINED_FROM.includes(node.state) && <Button onClick={() => setDraining(node)}>{node.state === "draining" ? t.cluster.undrain : t.cluster.drain}</Button>}
            </div>
          </section>
        ))}
      </div>
      <p class="muted">{t.cluster.answeredBy(cluster.answered_by)}</p>
      {draining && (
        <FormDialog title={`${draining.state === "draining" ? t.cluster.undrain : t.cluster.drain}: ${t.nav.node(draining.id)}`} action={draining.state === "draining" ? t.cluster.undrain : t.cluster.drain} onClose={() => setDraining(undefined)} onSubmit={drain}>
          <p>{draining.state === "draining" ? t.cluster.undrainText : t.cluster.drainText}</p>
        </FormDialog>
      )}
    </>
  );
}

function Placements({ nodes }: { nodes: ClusterNode[] }) {
  const ids = nodes.map((node) => node.id);
  return (
    <ServerList<PlacedPartition>
      label={t.cluster.tabs["partitions"] ?? ""}
      keyOf={(row) => `${row.topic}/${row.partition}`}
      filters={[{ name: "topic", label: t.groups.topic }, { name: "node", label: t.cluster.node, choices: [["", t.cluster.anyNode], ...ids.map((id): [string, string] => [String(id), t.nav.node(id)])] }, { name: "state", label: t.groups.state, choices: t.cluster.states }, { name: "internal", label: t.topics.which, choices: [["", t.topics.own], ["true", t.topics.withInternal]] }]}
      load={(query, signal) => getRows<PlacedPartition>("partitions", "/v1/admin/partitions", { ...query, internal: query["internal"] === "true" || query["topic"] !== "" }, signal)}
      empty={{ title: t.cluster.noPartitions }}
      columns={[
        { id: "topic", title: t.groups.topic, isWide: true, cell: (row) => <a href={page("topics", row.topic, "partitions")}>{row.topic}</a> },
        { id: "partition", title: t.topic.partition, isNumber: true, cell: (row) => <Count value={row.partition} /> },
        ...ids.map((id) => ({ id: `node-${id}`, title: t.nav.node(id), cell: (row: PlacedPartition) => <Place row={row} node={id} /> })),
        { id: "leader", title: t.topic.leader, isNumber: true, cell: (row) => (row.leader === null ? <Badge text="down" /> : <Count value={row.leader} />) },
      ]}
    />
  );
}

function Place({ row, node }: { row: PlacedPartition; node: number }) {
  if (row.leader === node) return <span class="place leader" title={t.topic.leader}>{t.topic.leader}</span>;
  if (row.target?.includes(node) && !row.replicas.includes(node)) return <span class="place moving">{t.cluster.coming}</span>;
  if (!row.replicas.includes(node)) return <span class="unknown">·</span>;
  return row.in_sync.includes(node) ? <span class="place good">{t.topic.inSync}</span> : <span class="place bad">{t.topic.notInSync}</span>;
}

function Reassignments({ revision }: { revision: number }) {
  const [turn, setTurn] = useState(0);
  const [isCancelling, setCancelling] = useState(false);
  const [isMoving, setMoving] = useState(false);
  const cancel = async () => {
    await call("DELETE", "/v1/admin/reassignments");
    setTurn(turn + 1);
  };
  return (
    <>
      <ServerList<MovingPartition>
        label={t.cluster.tabs["reassignments"] ?? ""}
        revision={`${revision} ${turn}`}
        everyMs={1500}
        keyOf={(row) => `${row.topic}/${row.partition}`}
        actions={isMoving && mayCluster("alter") && <Button icon="stop" onClick={() => setCancelling(true)}>{t.cluster.cancelMoves}</Button>}
        load={async (query, signal) => {
          const found = await getRows<MovingPartition>("reassignments", "/v1/admin/reassignments", query, signal);
          setMoving((found.total ?? 0) > 0);
          return found;
        }}
        empty={{ title: t.cluster.noMoves, icon: "check" }}
        columns={[
          { id: "topic", title: t.groups.topic, isWide: true, cell: (row) => `${row.topic}/${row.partition}` },
          { id: "from", title: t.cluster.from, cell: (row) => row.replicas.join(", ") },
          { id: "to", title: t.cluster.to, cell: (row) => row.target.join(", ") },
          { id: "progress", title: t.dead.progress, cell: (row) => <><progress value={row.progress} aria-label={t.dead.progress} /> {Math.round(row.progress * 100)} %</> },
          { id: "left", title: t.cluster.left, isNumber: true, cell: (row) => <Bytes value={row.bytes_left} /> },
          { id: "time", title: t.cluster.remaining, isNumber: true, cell: (row) => <Duration ms={row.remaining_ms} /> },
        ]}
      />
      {isCancelling && <FormDialog title={t.cluster.cancelMoves} action={t.cluster.cancelMoves} onClose={() => setCancelling(false)} onSubmit={cancel} isDangerous><p>{t.cluster.cancelText}</p></FormDialog>}
    </>
  );
}

const COMPLETIONS_MAX = 20;

/** Continuations of a list of names, of which the last one is being typed. */
function completed(text: string, names: string[]): string[] {
  const before = text.slice(0, text.lastIndexOf(",") + 1);
  return names.map((name) => (before ? `${before} ${name}` : name));
}

/** Moves of one partition, or of all of a topic, to replicas that a person has picked. */
async function byHand(topic: string, partition: string, replicas: number[], nodes: ClusterNode[]): Promise<PlannedMove[]> {
  const isKnown = (id: number) => nodes.some((one) => one.id === id);
  if (replicas.length === 0 || new Set(replicas).size < replicas.length || !replicas.every(isKnown)) throw new Error(t.cluster.replicasWrong(nodes.map((one) => one.id).join(", ")));
  const { partitions } = await get<{ partitions: PlacedPartition[] }>("/v1/admin/partitions", { topic });
  const chosen = partitions.filter((one) => partition === "" || one.partition === Number(partition));
  if (chosen.length === 0) throw new Error(t.cluster.noPartitions);
  const moves = chosen.map((one) => ({ topic, partition: one.partition, replicas_before: one.replicas, replicas }));
  const { results } = await post<{ results: { problem?: { detail: string } }[] }>("/v1/admin/reassignments", { moves: moves.map(({ topic: name, partition: number }) => ({ topic: name, partition: number, replicas })), dry_run: true });
  const why = results.find((one) => one.problem)?.problem?.detail;
  if (why) throw new Error(why);
  return moves.filter((one) => one.replicas_before.join() !== replicas.join());
}

/** Choose what moves, look at the plan, start it. */
function Reassign({ nodes, onClose, onDone }: { nodes: ClusterNode[]; onClose: () => void; onDone: () => void }) {
  const [kind, setKind] = useState("away");
  const [node, setNode] = useState(String(nodes[0]?.id ?? ""));
  const [topics, setTopics] = useState("");
  const [targets, setTargets] = useState(new Set(nodes.filter((one) => one.state === "running").map((one) => one.id)));
  const [topic, setTopic] = useState("");
  const [partition, setPartition] = useState("");
  const [replicas, setReplicas] = useState("");
  const [throttle, setThrottle] = useState("");
  const [moves, setMoves] = useState<PlannedMove[]>();
  const [error, setError] = useState<Error>();
  const typed = kind === "hand" ? topic : (topics.split(",").at(-1) ?? "").trim();
  const known = useLoad(async (signal) => (await get<{ topics: Topic[] }>("/v1/topics", { match: typed, limit: COMPLETIONS_MAX }, signal)).topics.map((one) => one.name), [typed]);
  const list = (text: string) => text.split(",").map((one) => one.trim()).filter(Boolean);
  const plan = async () => {
    setError(undefined);
    const body = kind === "away" ? { away_from: Number(node) } : { topics: list(topics), nodes: [...targets] };
    try {
      setMoves(kind === "hand" ? await byHand(topic, partition, list(replicas).map(Number), nodes) : (await post<{ moves: PlannedMove[] }>("/v1/admin/reassignments/plan", body)).moves);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  const start = async () => {
    await post("/v1/admin/reassignments", { moves: (moves ?? []).map(({ topic, partition, replicas }) => ({ topic, partition, replicas })), ...(throttle && { throttle_bytes_per_second: Number(throttle) * 1024 * 1024 }) });
    notify(t.cluster.movesStarted);
    onDone();
  };
  const choose = (id: number, isChosen: boolean) => {
    setTargets(new Set(nodes.map((one) => one.id).filter((one) => (one === id ? isChosen : targets.has(one)))));
    setMoves(undefined);
  };
  const edit = (set: (value: string) => void) => (value: string) => {
    set(value);
    setMoves(undefined);
  };
  return (
    <FormDialog title={t.cluster.reassign} action={t.cluster.start(moves?.length ?? 0)} onClose={onClose} onSubmit={start} isDisabled={!moves?.length} kind="wide">
      <SelectField label={t.cluster.what} value={kind} onChange={edit(setKind)} choices={t.cluster.plans} />
      {kind === "hand" && (
        <div class="row">
          <TextField label={t.groups.topic} value={topic} onChange={edit(setTopic)} list={known.data ?? []} isRequired />
          <TextField label={t.topic.partition} value={partition} onChange={edit(setPartition)} placeholder={t.all} />
          <TextField label={t.topic.replicas} value={replicas} onChange={edit(setReplicas)} placeholder={nodes.map((one) => one.id).join(", ")} hint={t.cluster.replicasHint} isRequired />
        </div>
      )}
      {kind === "hand" ? null : kind === "away" ? <SelectField label={t.cluster.node} value={node} onChange={edit(setNode)} choices={nodes.map((one): [string, string] => [String(one.id), t.nav.node(one.id)])} /> : <><TextField label={t.topics.title} value={topics} onChange={edit(setTopics)} hint={t.cluster.commas} list={completed(topics, known.data ?? [])} /><fieldset><legend>{t.overview.nodes}</legend>{nodes.map((one) => <CheckField key={one.id} label={t.nav.node(one.id)} value={targets.has(one.id)} onChange={(isChosen) => choose(one.id, isChosen)} />)}</fieldset></>}
      <TextField label={t.cluster.throttle} type="number" value={throttle} onChange={setThrottle} placeholder={t.dead.unlimited} />
      <Button icon="search" onClick={() => void plan()}>{t.group.preview}</Button>
      {error && <ErrorNote error={error} />}
      {moves && (moves.length === 0 ? <p>{t.cluster.nothing}</p> : <Table label={t.group.preview} rows={moves.slice(0, 200)} keyOf={(row) => `${row.topic}/${row.partition}`} columns={[{ id: "topic", title: t.groups.topic, isWide: true, cell: (row) => `${row.topic}/${row.partition}` }, { id: "from", title: t.cluster.from, cell: (row) => row.replicas_before.join(", ") }, { id: "to", title: t.cluster.to, cell: (row) => row.replicas.join(", ") }]} />)}
    </FormDialog>
  );
}
