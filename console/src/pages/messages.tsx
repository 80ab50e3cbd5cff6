/** The messages of a topic: browse, search, follow, filter, open one, export. */

import { useEffect, useState } from "preact/hooks";
import { get, part, type Query } from "../api/client";
import type { Histogram, Message } from "../api/types";
import { bytesOf, DECODERS, type Decoded, type DecoderName } from "../decoders/decode";
import * as format from "../format";
import { Button, Empty, ErrorNote, Note, Skeleton } from "../parts/basics";
import { SelectField, TextField } from "../parts/fields";
import { Icon } from "../parts/icons";
import { Copyable, Time } from "../parts/numbers";
import { Bars } from "../parts/plot";
import { Table, type Column } from "../parts/table";
import { Preview } from "../parts/text";
import { notify } from "../parts/toasts";
import { useAddress, type AddressState } from "../state/address";
import { useBrowse, type Browse, type Row } from "../state/browse";
import { save, type FileKind } from "../state/export";
import { allow, mayRun } from "../state/filter";
import { useLoad } from "../state/load";
import { t } from "../texts";
import { MessageView, type Neighbours } from "./message";
import { originalOf, Produce, type Original } from "./produce";

const PARAMETERS = ["order", "partition", "from", "until", "offset", "key", "header", "header_value", "text", "regex", "trace_id", "cursor"];
const CONDITIONS = ["key", "header", "header_value", "text", "regex", "trace_id", "until", "js"];
const LIVE_PARAMETERS = ["partition", "key", "header", "header_value", "text", "regex", "trace_id"];
const CHOICES_MAX = 500;
const BARS = 90;
const BARS_MIN = 12;
// The node looks up the time of each bar in each partition.
const LOOKED_UP_MAX = 9000;
const PREVIEW_BYTES = 16 << 10;
// JavaScript filters judge values, so they get more of them than fits into a row.
const FILTERED_BYTES = 1 << 20;
const LIVE_FILTERED_BYTES = 256 << 10;

export function MessagesTab({ topic, partitions, mayWrite }: { topic: string; partitions: number; mayWrite: boolean }) {
  const address = useAddress();
  const [copied, setCopied] = useState<Original>();
  const isLive = address.value("live") === "1";
  const limit = Number(address.value("limit", "100")) || 100;
  const script = address.value("js");
  const [, setAllowed] = useState("");
  const code = mayRun(script) ? script : "";
  const valueBytes = !code ? PREVIEW_BYTES : isLive ? LIVE_FILTERED_BYTES : FILTERED_BYTES;
  const query: Query = { ...(isLive ? { from: "latest" } : { limit }), value_bytes: valueBytes };
  for (const name of isLive ? LIVE_PARAMETERS : PARAMETERS) query[name] = address.value(name);
  const valueAs = address.value("value_as", "auto") as DecoderName;
  const browse = useBrowse({ topic, query, isLive, limit, code, keyAs: address.value("key_as", "auto") as DecoderName, valueAs });
  const run = () => {
    allow(script);
    setAllowed(script);
  };
  const open = address.value("open");
  return (
    <>
      <Filters partitions={partitions} isLive={isLive} browse={browse} />
      {!isLive && partitions > 0 && <TimeBars topic={topic} partitions={partitions} address={address} />}
      {code !== script && <Note kind="warn"><p>{t.messages.scriptLinked}</p><Button icon="play" onClick={run}>{t.messages.scriptRun}</Button></Note>}
      <Standing browse={browse} isLive={isLive} valueAs={valueAs} />
      <Rows browse={browse} topic={topic} isLive={isLive} open={open} address={address} />
      {!isLive && browse.done?.cursor && !browse.isRunning && (
        <nav class="pager" aria-label={t.list.pages}>
          <span class="spacer" />
          {address.value("cursor") && <a class="button" href={address.with({ cursor: null })}>{t.list.first}</a>}
          <a class="button" rel="next" href={address.with({ cursor: browse.done.cursor, open: null })}>{browse.done.reason === "budget" ? t.messages.further : t.list.next} <Icon name="right" /></a>
        </nav>
      )}
      {open && <MessageView topic={topic} place={open} neighbours={neighboursOf(open, browse.rows, (place) => address.change({ open: place }, true))} mayWrite={mayWrite} onClose={() => address.change({ open: null, part: null }, true)} onCopy={(message, value) => void originalOf(message, value).then(setCopied)} />}
      {copied && <Produce topic={topic} original={copied} onClose={() => setCopied(undefined)} />}
    </>
  );
}

function placeOf({ message }: Row): string {
  return `${message.partition}:${message.offset}`;
}

function neighboursOf(open: string, rows: Row[], go: (place: string) => void): Neighbours {
  const at = rows.findIndex((row) => placeOf(row) === open);
  const [before, after] = at < 0 ? [] : [rows[at - 1], rows[at + 1]];
  return { before: before && placeOf(before), after: after && placeOf(after), go };
}

type Draft = Record<string, string>;

function draftOf(address: AddressState): Draft {
  const names = [...PARAMETERS.filter((name) => name !== "cursor"), "js", "limit", "key_as", "value_as"];
  return Object.fromEntries(names.map((name) => [name, address.value(name)]));
}

function Filters({ partitions, isLive, browse }: { partitions: number; isLive: boolean; browse: Browse }) {
  const address = useAddress();
  const [draft, setDraft] = useState<Draft>(() => draftOf(address));
  const [isMore, setMore] = useState(() => CONDITIONS.some((name) => name !== "text" && address.value(name)));
  const known = JSON.stringify(draftOf(address));
  useEffect(() => setDraft(draftOf(address)), [known]);
  const set = (name: string) => (value: string) => setDraft({ ...draft, [name]: value });
  /** What is typed here may run, other than what came with the address. */
  const typed = (change: Draft = {}): Draft => {
    const next = { ...draft, ...change };
    if (next["js"] !== address.value("js")) allow(next["js"] ?? "");
    return next;
  };
  const apply = (change: Draft = {}) => {
    const next = typed(change);
    if (JSON.stringify(next) === known && !address.value("cursor")) browse.again();
    else address.change({ ...next, cursor: null, open: null });
  };
  const start = draft["offset"] ? "offset" : draft["from"] ? "from" : draft["order"] || "newest";
  const choose = (value: string) => apply({ order: value === "newest" ? "" : "oldest", from: value === "from" ? "1h" : "", until: "", offset: value === "offset" ? "0" : "", ...(value === "offset" && !draft["partition"] && { partition: "0" }) });
  const conditions = CONDITIONS.filter((name) => draft[name]).length;
  return (
    <form class="filters" role="search" aria-label={t.messages.search} onSubmit={(event) => { event.preventDefault(); apply(); }}>
      <div class="filter-row">
        {!isLive && <SelectField label={t.messages.start} value={start} onChange={choose} choices={t.messages.starts} />}
        {!isLive && start === "from" && <TextField label={t.messages.from} value={draft["from"] ?? ""} onChange={set("from")} hint={t.momentHint} />}
        {!isLive && start === "offset" && <TextField label={t.messages.offset} value={draft["offset"] ?? ""} onChange={set("offset")} />}
        <PartitionField partitions={partitions} value={draft["partition"] ?? ""} onType={set("partition")} onChoose={(partition) => apply({ partition })} />
        <div class="grow" data-search=""><TextField label={t.messages.contains} value={draft["text"] ?? ""} onChange={set("text")} placeholder={t.messages.containsHint} /></div>
        <div class="filter-buttons">
          <Button type="submit" icon="search" kind="primary">{t.messages.search}</Button>
          <Button icon={isLive ? "stop" : "play"} kind={isLive ? "live" : ""} aria-pressed={isLive} onClick={() => address.change({ ...typed(), live: isLive ? null : 1, cursor: null, open: null })}>{isLive ? t.messages.liveOff : t.messages.live}</Button>
        </div>
      </div>
      <details open={isMore} onToggle={(event) => setMore(event.currentTarget.open)}>
        <summary><Icon name="filter" /> {t.messages.more}{conditions > 0 && <span class="badge">{conditions}</span>}</summary>
        <div class="filter-grid">
          <TextField label={t.messages.key} value={draft["key"] ?? ""} onChange={set("key")} />
          <TextField label={t.messages.header} value={draft["header"] ?? ""} onChange={set("header")} />
          <TextField label={t.messages.headerValue} value={draft["header_value"] ?? ""} onChange={set("header_value")} />
          <TextField label={t.messages.regex} value={draft["regex"] ?? ""} onChange={set("regex")} placeholder="order-[0-9]+" />
          <TextField label={t.messages.trace} value={draft["trace_id"] ?? ""} onChange={set("trace_id")} />
          <TextField label={t.messages.until} value={draft["until"] ?? ""} onChange={set("until")} />
          <SelectField label={t.messages.keyAs} value={draft["key_as"] || "auto"} onChange={(value) => apply({ key_as: value })} choices={decoderChoices()} />
          <SelectField label={t.messages.valueAs} value={draft["value_as"] || "auto"} onChange={(value) => apply({ value_as: value })} choices={decoderChoices()} />
          <SelectField label={t.list.perPage} value={draft["limit"] || "100"} onChange={(value) => apply({ limit: value })} choices={["50", "100", "250", "500"]} />
          <div class="whole"><TextField label={t.messages.script} value={draft["js"] ?? ""} onChange={set("js")} lines={2} placeholder='message.value.total > 100 && message.headers.source === "shop"' hint={t.messages.scriptHint} /></div>
        </div>
        {conditions > 0 && <Button onClick={() => apply(Object.fromEntries(CONDITIONS.map((name) => [name, ""])))}>{t.list.clear}</Button>}
      </details>
    </form>
  );
}

/** A choice of partitions, or a field for the number where they are too many to choose from. */
function PartitionField({ partitions, value, onType, onChoose }: { partitions: number; value: string; onType: (partition: string) => void; onChoose: (partition: string) => void }) {
  if (partitions > CHOICES_MAX) return <TextField label={t.topic.partition} type="number" value={value} onChange={onType} placeholder={t.all} />;
  const numbers = Array.from({ length: partitions }, (_unused, number) => String(number));
  if (value !== "" && !numbers.includes(value)) numbers.push(value); // of the address, while the topic is not known yet
  return <SelectField label={t.topic.partition} value={value} onChange={onChoose} choices={[["", t.all], ...numbers]} />;
}

function decoderChoices(): [string, string][] {
  return DECODERS.map((name) => [name, t.messages.decoders[name] ?? name]);
}

/** Messages over time; a click goes there. */
function TimeBars({ topic, partitions, address }: { topic: string; partitions: number; address: AddressState }) {
  const partition = address.value("partition");
  const buckets = partition ? BARS : Math.max(BARS_MIN, Math.min(BARS, Math.floor(LOOKED_UP_MAX / partitions)));
  const loaded = useLoad((signal) => get<Histogram>(`/v1/topics/${part(topic)}/histogram`, { from: "earliest", buckets, partition }, signal), [topic, partition, buckets], 30000);
  if (!loaded.data || !loaded.data.counts.some((amount) => amount > 0)) return null;
  const choose = (from: number, until: number) => address.change({ order: "oldest", from: Math.floor(from), until: Math.ceil(until), offset: null, cursor: null, open: null });
  return <Bars label={t.messages.overTime} from={loaded.data.from} bucketMs={loaded.data.bucket_ms} counts={loaded.data.counts} onChoose={choose} chosen={[Number(address.value("from") || NaN), Number(address.value("until") || NaN)]} unit={t.messages.unit} />;
}

function Standing({ browse, isLive, valueAs }: { browse: Browse; isLive: boolean; valueAs: DecoderName }) {
  const { progress, done, isRunning, rows } = browse;
  const isFollowing = isLive && isRunning && browse.phase === "waiting";
  return (
    <div class="standing">
      {isRunning && !isLive && <progress value={progress?.share ?? undefined} aria-label={t.messages.searching} />}
      <span>
        <span aria-live={isFollowing ? "off" : "polite"}>{isFollowing ? <><span class="pulse" /> {t.messages.following(rows.length)}</> : isRunning ? (t.messages.phases[browse.phase] ?? browse.phase) : done ? t.messages.done(rows.length, format.duration(done.elapsed_ms), t.messages.reasons[done.reason] ?? done.reason) : t.messages.stopped(rows.length)}</span>
        {progress && progress.scanned_bytes > 0 && ` · ${t.messages.scanned(format.bytes(done?.scanned_bytes ?? progress.scanned_bytes))}`}
        {browse.filtered > 0 && ` · ${t.messages.filtered(format.count(browse.filtered))}`}
        {browse.unjudged > 0 && <strong> · {t.messages.unjudged(format.count(browse.unjudged))}</strong>}
        {browse.skipped > 0 && ` · ${t.messages.skipped(format.count(browse.skipped))}`}
        {browse.damaged > 0 && ` · ${t.messages.damaged(browse.damaged)}`}
      </span>
      <span class="spacer" />
      {isRunning && <Button icon="stop" onClick={browse.stop}>{t.messages.stop}</Button>}
      {rows.length > 0 && <Export rows={rows} valueAs={valueAs} />}
    </div>
  );
}

function Export({ rows, valueAs }: { rows: Row[]; valueAs: DecoderName }) {
  const [isBusy, setBusy] = useState(false);
  const write = async (kind: FileKind) => {
    setBusy(true);
    const cut = await save(kind, rows, valueAs);
    setBusy(false);
    if (cut > 0) notify(t.messages.exportCut(cut), true);
  };
  return (
    <>
      <Button icon="download" title={t.messages.export("JSON")} disabled={isBusy} onClick={() => void write("jsonl")}>JSON</Button>
      <Button icon="download" title={t.messages.export("CSV")} disabled={isBusy} onClick={() => void write("csv")}>CSV</Button>
    </>
  );
}

function Rows({ browse, topic, isLive, open, address }: { browse: Browse; topic: string; isLive: boolean; open: string; address: AddressState }) {
  const show = (row: Row) => address.change({ open: placeOf(row) }, open !== "");
  const columns: Column<Row>[] = [
    { id: "at", title: t.messages.time, cell: ({ message }) => <Time ms={message.timestamp} /> },
    { id: "place", title: t.messages.place, cell: (row) => <button type="button" class="open link" onClick={() => show(row)} aria-label={t.messages.openOne(row.message.partition, String(row.message.offset))}>{row.message.partition}:{String(row.message.offset)}</button> },
    { id: "key", title: t.messages.key, cell: ({ key }) => (key.as === "null" ? <span class="unknown">null</span> : <Preview text={shortened(key)} />) },
    { id: "value", title: t.messages.value, isWide: true, cell: ({ value }) => (value.as === "null" ? <span class="unknown">{t.messages.tombstone}</span> : <Preview text={shortened(value)} />) },
    { id: "as", title: t.messages.as, cell: ({ value, message }) => <span class="badge" title={value.tried.map((one) => `${one.decoder}: ${one.why}`).join("\n")}>{value.as}{message.is_cut ? " …" : ""}</span> },
    { id: "size", title: t.topics.bytes, isNumber: true, cell: ({ message }) => <Size message={message} /> },
  ];
  return (
    <>
      {browse.error && <ErrorNote error={browse.error} onRetry={browse.again} />}
      {browse.rows.length > 0 ? (
        <Table label={t.messages.of(topic)} columns={columns} rows={browse.rows} keyOf={(row) => row.message.id} onOpen={show} isChosen={(row) => open === placeOf(row)} />
      ) : browse.isRunning ? (
        isLive ? browse.phase === "waiting" && <Note>{t.messages.waiting}</Note> : <Skeleton lines={10} />
      ) : (
        !browse.error && <Empty title={t.messages.none} icon="search">{browse.done?.reason === "budget" ? t.messages.noneYet : t.messages.noneText}</Empty>
      )}
    </>
  );
}

/** One line of a hexadecimal dump needs no address. */
function shortened({ as, text }: Decoded): string {
  return as === "hex" ? text.replace(/^[0-9a-f]{8} +/gm, "") : text;
}

function Size({ message }: { message: Message }) {
  const size = message.value_bytes ?? bytesOf(message.value, message.value_encoding)?.length ?? 0;
  return <Copyable class="number" text={String(size)}>{format.bytes(size)}</Copyable>;
}
