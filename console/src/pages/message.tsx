/** One message: contents, headers, schema, journey, and what became of it in every group. */

import { useLayoutEffect, useState } from "preact/hooks";
import { get, part } from "../api/client";
import type { Delivery, Journey, JourneyEntry, Message } from "../api/types";
import { bytesOf, decode, DECODERS, type Decoded, type DecoderName } from "../decoders/decode";
import * as format from "../format";
import { Badge, Button, Definitions, Empty, Note, Shown } from "../parts/basics";
import { Dialog } from "../parts/dialog";
import { Select } from "../parts/fields";
import { Bytes, Copyable, copyText, Duration, Time } from "../parts/numbers";
import { Table } from "../parts/table";
import { Content, Marked } from "../parts/text";
import { isTyping } from "../parts/shortcuts";
import { page, useAddress } from "../state/address";
import { headerText } from "../state/browse";
import { useLoad } from "../state/load";
import { t } from "../texts";

interface Full {
  place: string;
  message: Message;
  key: Decoded;
  value: Decoded;
}

const TABS = ["value", "key", "headers", "journey", "deliveries"] as const;

/** The messages before and after the open one in the list, as partition:offset. */
export interface Neighbours {
  before?: string;
  after?: string;
  go: (place: string) => void;
}

export function MessageView({ topic, place, neighbours, mayWrite, onClose, onCopy }: { topic: string; place: string; neighbours: Neighbours; mayWrite: boolean; onClose: () => void; onCopy: (message: Message, value: Decoded) => void }) {
  const [partition = "", offset = ""] = place.split(":");
  const address = useAddress();
  const tab = TABS.find((one) => one === address.value("part")) ?? "value";
  const [as, setAs] = useState<DecoderName>("auto");
  const known = useLoad(
    async (signal): Promise<Full> => {
      const message = await get<Message>(`/v1/topics/${part(topic)}/messages/${part(partition)}/${part(offset)}`, { encoding: "base64", isolation: "uncommitted" }, signal);
      return { place, message, key: await decode(bytesOf(message.key, message.key_encoding), as), value: await decode(bytesOf(message.value, message.value_encoding), as) };
    },
    [topic, place, as],
  );
  const loaded = known.data?.place === place ? known : { ...known, data: undefined };
  const id = `${topic}:${partition}:${offset}`;
  return (
    <Dialog title={t.message.title(partition, offset)} onClose={onClose} kind="drawer" actions={<Steps of={neighbours} />}>
      <Shown of={loaded}>
        {({ message, key, value }) => (
          <>
            <Definitions
              of={[
                [t.message.id, <Copyable text={id} />],
                [t.messages.time, <><Time ms={message.timestamp} /> <span class="muted">{format.ago(message.timestamp)}</span></>],
                [t.messages.key, key.as === "null" ? <span class="unknown">null</span> : <Copyable text={key.text}><Marked text={key.text.slice(0, 200)} /></Copyable>],
                [t.topics.bytes, <Bytes value={bytesOf(message.value, message.value_encoding)?.length ?? 0} />],
                ...(value.schema ? [[t.message.schema, <>{value.schema.type} <Copyable text={String(value.schema.id)}>{t.message.schemaId(value.schema.id)}</Copyable></>] as [string, preact.ComponentChildren]] : []),
              ]}
            />
            <div class="tabs" role="group" aria-label={t.message.parts}>
              {TABS.map((one) => <button key={one} type="button" aria-pressed={tab === one} onClick={() => address.change({ part: one === "value" ? null : one }, true)}>{t.message.tabs[one]}{one === "headers" ? ` (${message.headers.length})` : ""}</button>)}
            </div>
            <div class="drawer-body">
              {(tab === "value" || tab === "key") && (
                <>
                  <div class="toolbar">
                    <Select label={t.message.decodeAs} value={as} choices={DECODERS.map((name) => [name, t.messages.decoders[name] ?? name])} onChange={(name) => setAs(name as DecoderName)} />
                    <span class="badge">{(tab === "value" ? value : key).as}</span>
                    <span class="spacer" />
                    <Button icon="copy" onClick={() => void copyText((tab === "value" ? value : key).text)}>{t.copy.action}</Button>
                    {mayWrite && <Button icon="send" onClick={() => onCopy(message, value)}>{t.message.produce}</Button>}
                  </div>
                  <Value of={tab === "value" ? value : key} label={t.message.tabs[tab]} />
                </>
              )}
              {tab === "headers" && <Headers message={message} />}
              {tab === "journey" && <JourneyTab id={id} />}
              {tab === "deliveries" && <Deliveries topic={topic} partition={partition} offset={offset} />}
            </div>
          </>
        )}
      </Shown>
    </Dialog>
  );
}

/** To the message before or after, by click or by the keys k and j. */
function Steps({ of: { before, after, go } }: { of: Neighbours }) {
  // Before the next key, which means the neighbours of the next message.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const place = event.key === "k" ? before : event.key === "j" ? after : undefined;
      if (place === undefined || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
      event.preventDefault();
      go(place);
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [before, after]);
  return (
    <div class="drawer-steps">
      <Button icon="left" kind="quiet" aria-label={t.message.before} title={`${t.message.before} (k)`} disabled={before === undefined} onClick={() => before !== undefined && go(before)} />
      <Button icon="right" kind="quiet" aria-label={t.message.after} title={`${t.message.after} (j)`} disabled={after === undefined} onClick={() => after !== undefined && go(after)} />
    </div>
  );
}

function Value({ of, label }: { of: Decoded; label: string }) {
  if (of.as === "null") return <Empty title={t.messages.tombstone} />;
  if (of.as === "empty") return <Empty title={t.message.empty} />;
  return (
    <>
      <Content text={of.text} isJson={of.isJson} label={label} />
      {of.tried.length > 0 && (
        <details>
          <summary>{t.message.tried}</summary>
          <dl class="tried">{of.tried.map((one) => <div key={one.decoder}><dt>{t.messages.decoders[one.decoder] ?? one.decoder}</dt><dd>{one.why}</dd></div>)}</dl>
        </details>
      )}
      {of.schema && <details><summary>{t.message.schema}</summary><Content text={of.schema.text} isJson={of.schema.type !== "PROTOBUF"} label={t.message.schema} /></details>}
    </>
  );
}

function Headers({ message }: { message: Message }) {
  if (message.headers.length === 0) return <Empty title={t.message.noHeaders} />;
  const rows = message.headers.map((header, at) => ({ at, header, text: headerText(header) }));
  return (
    <Table
      label={t.message.tabs.headers}
      rows={rows}
      keyOf={(row) => String(row.at)}
      columns={[
        { id: "name", title: t.message.headerName, cell: (row) => <Copyable text={row.header.name}><Marked text={row.header.name} /></Copyable> },
        { id: "value", title: t.messages.value, isWide: true, cell: (row) => <Copyable text={row.text}><Marked text={row.text} /></Copyable> },
      ]}
    />
  );
}

function JourneyTab({ id }: { id: string }) {
  const loaded = useLoad((signal) => get<Journey>(`/v1/journeys/${part(id)}`, {}, signal), [id], 2000);
  return (
    <Shown of={loaded}>
      {(journey) => (
        <>
          {journey.outcomes.length > 0 && (
            <div class="outcomes">{journey.outcomes.map((one, at) => <span key={at}><Badge text={one.outcome} /> {one.group && <a href={page("groups", one.group)}><Marked text={one.group} /></a>}</span>)}</div>
          )}
          {!journey.complete && <Note kind="warn">{t.message.incomplete}</Note>}
          {journey.entries.length === 0 ? <Empty title={t.message.noJourney} icon="schedule" /> : <ol class="timeline">{journey.entries.map((entry, at) => <Step key={at} entry={entry} before={journey.entries[at - 1]} isOther={entry.message.id !== id} />)}</ol>}
        </>
      )}
    </Shown>
  );
}

function Step({ entry, before, isOther }: { entry: JourneyEntry; before: JourneyEntry | undefined; isOther: boolean }) {
  const facts = [
    entry.group && <>{t.message.facts.group} <a href={page("groups", entry.group)}><Marked text={entry.group} /></a></>,
    entry.consumer && <>{t.message.facts.consumer} <Marked text={entry.consumer} /></>,
    entry.attempt !== undefined && entry.attempt > 0 && <>{t.message.facts.attempt} {entry.attempt}</>,
    entry.principal && <>{t.message.facts.principal} <Marked text={entry.principal} /></>,
    entry.listener && <>{t.message.facts.listener} {entry.listener}</>,
    entry.node !== undefined && <>{t.nav.node(entry.node)}</>,
    entry.reason && <>{t.message.facts.reason} <Marked text={entry.reason} /></>,
    entry.due !== undefined && entry.due > 0 && <>{t.message.facts.due} <Time ms={entry.due} /></>,
    isOther && entry.message.id && <Copyable text={entry.message.id} />,
  ].filter(Boolean);
  return (
    <li class={`step ${["dead_lettered", "expired", "removed", "rejected"].includes(entry.kind) ? "bad" : ["acked", "consumed"].includes(entry.kind) ? "good" : ""}`}>
      <strong>{entry.kind.replaceAll("_", " ")}</strong>
      <Time ms={entry.time} />
      <span class="muted">{before ? <>+<Duration ms={Math.max(0, entry.time - before.time)} /></> : ""}</span>
      <p>{facts.map((fact, at) => <span key={at}>{fact}</span>)}</p>
    </li>
  );
}

function Deliveries({ topic, partition, offset }: { topic: string; partition: string; offset: string }) {
  const loaded = useLoad((signal) => get<{ deliveries: Delivery[] }>(`/v1/topics/${part(topic)}/messages/${part(partition)}/${part(offset)}/deliveries`, {}, signal), [topic, partition, offset], 3000);
  return (
    <Shown of={loaded}>
      {({ deliveries }) =>
        deliveries.length === 0 ? <Empty title={t.topic.noGroups} icon="groups" /> : (
          <Table
            label={t.message.tabs.deliveries}
            rows={deliveries}
            keyOf={(row) => row.group}
            columns={[
              { id: "group", title: t.groups.name, isWide: true, cell: (row) => <a href={page("groups", row.group)}><Marked text={row.group} /></a> },
              { id: "kind", title: t.groups.kind, cell: (row) => row.kind },
              { id: "state", title: t.groups.state, cell: (row) => <Badge text={row.state} /> },
              { id: "attempts", title: t.groups.attempts, isNumber: true, cell: (row) => row.attempts ?? "–" },
              { id: "consumer", title: t.groups.consumer, cell: (row) => (row.consumer ? <Marked text={row.consumer} /> : "–") },
              { id: "until", title: t.groups.leasedUntil, cell: (row) => <Time ms={row.leased_until ?? row.due_at} /> },
            ]}
          />
        )
      }
    </Shown>
  );
}
