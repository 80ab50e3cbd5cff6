/** Messages that wait for their time: calendar and list; cancel, move. */

import { useState } from "preact/hooks";
import { call, get, getRows, part } from "../api/client";
import type { Histogram, Schedule, ScheduleEntry, ScheduleStats } from "../api/types";
import { bytesOf, decode, type Decoded } from "../decoders/decode";
import * as format from "../format";
import { Button, Definitions, ErrorNote, PageHead, Shown, Tile } from "../parts/basics";
import { Dialog, FormDialog } from "../parts/dialog";
import { Select, TextField } from "../parts/fields";
import { Copyable, Count, Duration, Time } from "../parts/numbers";
import { Bars } from "../parts/plot";
import { ServerList } from "../parts/table";
import { Content, Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { page, useAddress } from "../state/address";
import { headerText } from "../state/browse";
import { useLoad } from "../state/load";
import { mayCluster, useMay, useMayEach } from "../state/person";
import { t } from "../texts";

type Opened = { action: "show" | "move" | "cancel"; entry: ScheduleEntry };

const HOUR_MS = 3600000;
const MINUTE_MS = 60000;

export function SchedulesPage() {
  const address = useAddress();
  const [opened, setOpened] = useState<Opened>();
  const [revision, setRevision] = useState(0);
  const [topics, setTopics] = useState<string[]>([]);
  const mayWrite = useMayEach("topic", topics, "write");
  const from = Number(address.value("from")) || undefined;
  const until = Number(address.value("until")) || undefined;
  const close = () => setOpened(undefined);
  const done = () => setRevision(revision + 1);
  const actions = (row: ScheduleEntry) =>
    mayWrite(row.topic) && <div class="actions"><Button icon="edit" onClick={() => setOpened({ action: "move", entry: row })}>{t.schedules.move}</Button><Button icon="trash" kind="danger-quiet" onClick={() => setOpened({ action: "cancel", entry: row })}>{t.schedules.cancel}</Button></div>;
  return (
    <>
      <PageHead title={t.nav.pages.schedules} />
      {mayCluster("describe") ? <Figures revision={revision} /> : <OwnFigures revision={revision} />}
      <Calendar revision={revision} from={from} until={until} />
      <ServerList<ScheduleEntry>
        label={t.nav.pages.schedules}
        revision={`${revision} ${from} ${until}`}
        keyOf={(row) => row.id}
        filters={[{ name: "topic", label: t.groups.topic, placeholder: t.schedules.topicHint }]}
        load={async (query, signal) => {
          const found = await getRows<ScheduleEntry>("schedules", "/v1/schedules", { ...query, from, until }, signal);
          setTopics([...new Set(found.rows.map((one) => one.topic))]);
          return found;
        }}
        onOpen={(entry) => setOpened({ action: "show", entry })}
        empty={from || until ? { title: t.schedules.noneThen, icon: "schedule" } : { title: t.schedules.none, text: t.schedules.noneText, icon: "schedule" }}
        columns={[
          { id: "due", title: t.schedules.due, cell: (row) => <Time ms={row.deliver_at} /> },
          { id: "in", title: t.schedules.in, cell: (row) => <Time ms={row.deliver_at} isRelative /> },
          { id: "topic", title: t.groups.topic, isWide: true, cell: (row) => <a href={page("topics", row.topic)}>{row.topic}</a> },
          { id: "id", title: t.message.id, cell: (row) => <button type="button" class="open link" onClick={() => setOpened({ action: "show", entry: row })}>{format.cut(row.id, 20)}</button> },
          { id: "act", title: "", cell: actions },
        ]}
      />
      {opened?.action === "show" && <ShowSchedule entry={opened.entry} onClose={close} />}
      {opened?.action === "move" && <MoveSchedule entry={opened.entry} onClose={close} onDone={done} />}
      {opened?.action === "cancel" && <CancelSchedule entry={opened.entry} onClose={close} onDone={done} />}
    </>
  );
}

function Figures({ revision }: { revision: number }) {
  const stats = useLoad((signal) => get<ScheduleStats>("/v1/schedules/stats", {}, signal), [revision], 3000);
  if (stats.error) return <ErrorNote error={stats.error} onRetry={stats.reload} />;
  if (!stats.data) return null;
  return (
    <div class="tiles">
      <Tile title={t.schedules.pending}><Count value={stats.data.pending} /></Tile>
      <Tile title={t.schedules.next}><Time ms={stats.data.next_deliver_at} isRelative /></Tile>
      <Tile title={t.schedules.released}><Count value={stats.data.released} /></Tile>
      <Tile title={t.schedules.cancelled}><Count value={stats.data.cancelled} /></Tile>
      <Tile title={t.schedules.late}><Duration ms={stats.data.late_ms_p99} /></Tile>
    </div>
  );
}

/** Who may not describe the cluster sees what is scheduled in their own topics. */
function OwnFigures({ revision }: { revision: number }) {
  const counted = useLoad((signal) => get<{ count: number }>("/v1/schedules/count", {}, signal), [revision], 3000);
  return <div class="tiles"><Tile title={t.schedules.pending}><Count value={counted.data?.count} /></Tile></div>;
}

/** What is due when, from now on or from a chosen time on; the list shows the chosen part of it. */
function Calendar({ revision, from, until }: { revision: number; from?: number; until?: number }) {
  const address = useAddress();
  const hours = Number(address.value("hours", "24")) || 24;
  const at = Number(address.value("at")) || undefined;
  const loaded = useLoad(
    (signal) => {
      const start = at ?? Date.now();
      return get<Histogram>("/v1/schedules/calendar", { from: start, until: start + hours * HOUR_MS, buckets: 72, topic: address.value("topic") }, signal);
    },
    [hours, at, address.value("topic"), revision],
    15000,
  );
  const choose = (start: number | null, end: number | null) => address.change({ from: start && Math.floor(start), until: end && Math.ceil(end), cursor: null });
  const turn = (spans: number) => {
    const start = (at ?? Date.now()) + spans * hours * HOUR_MS;
    address.change({ at: Math.abs(start - Date.now()) < MINUTE_MS ? null : start });
  };
  const set = (name: "from" | "until") => (text: string) => address.change({ [name]: text ? new Date(text).getTime() : null, cursor: null });
  return (
    <section class="panel" aria-label={t.schedules.calendar}>
      <div class="panel-head">
        <h2>{t.schedules.calendar}</h2>
        <div class="actions">
          <Button kind="quiet" aria-label={t.schedules.earlier} title={t.schedules.earlier} onClick={() => turn(-1)}>‹</Button>
          {at !== undefined && <Button kind="quiet" onClick={() => address.change({ at: null })}>{t.schedules.now}</Button>}
          <Button kind="quiet" aria-label={t.schedules.later} title={t.schedules.later} onClick={() => turn(1)}>›</Button>
          <Select label={t.history.span} value={String(hours)} choices={t.schedules.spans} onChange={(value) => address.change({ hours: value }, true)} />
        </div>
      </div>
      <Shown of={loaded} lines={2}>
        {(found) => <Bars label={t.schedules.calendar} from={found.from} bucketMs={found.bucket_ms} counts={found.counts} onChoose={choose} chosen={from || until ? [from ?? 0, until ?? Infinity] : undefined} unit={t.messages.unit} />}
      </Shown>
      <div class="row">
        <TextField label={t.schedules.from} type="datetime-local" value={from ? format.localInput(from) : ""} onChange={set("from")} />
        <TextField label={t.messages.until} type="datetime-local" value={until ? format.localInput(until) : ""} onChange={set("until")} />
        {(from || until) && <Button kind="quiet" onClick={() => choose(null, null)}>{t.schedules.whole}</Button>}
      </div>
    </section>
  );
}

function ShowSchedule({ entry, onClose }: { entry: ScheduleEntry; onClose: () => void }) {
  const may = useMay("topic", entry.topic);
  return (
    <Dialog title={t.schedules.one} onClose={onClose} kind="drawer">
      <Definitions of={[[t.message.id, <Copyable text={entry.id} />], [t.groups.topic, <a href={page("topics", entry.topic)}>{entry.topic}</a>], [t.schedules.due, <Time ms={entry.deliver_at} />]]} />
      {may("read") ? <ScheduleContent id={entry.id} /> : <p class="muted drawer-body">{t.schedules.mayNotRead}</p>}
    </Dialog>
  );
}

function ScheduleContent({ id }: { id: string }) {
  const loaded = useLoad(
    async (signal): Promise<{ schedule: Schedule; key: Decoded; value: Decoded }> => {
      const schedule = await get<Schedule>(`/v1/schedules/${part(id)}`, { encoding: "base64" }, signal);
      return { schedule, key: await decode(bytesOf(schedule.key, schedule.key_encoding), "auto"), value: await decode(bytesOf(schedule.value, schedule.value_encoding), "auto") };
    },
    [id],
  );
  return (
    <Shown of={loaded}>
      {({ schedule, key, value }) => (
        <>
          <Definitions of={[[t.messages.key, schedule.key === null ? <span class="muted">{t.schedules.noKey}</span> : <Marked text={key.text} />]]} />
          <div class="drawer-body">
            <Content text={value.text} isJson={value.isJson} label={t.messages.value} />
            {schedule.headers.length > 0 && <><h3>{t.message.tabs.headers}</h3><Definitions of={schedule.headers.map((header) => [header.name, <Marked text={headerText(header)} />])} /></>}
          </div>
        </>
      )}
    </Shown>
  );
}

function MoveSchedule({ entry, onClose, onDone }: { entry: ScheduleEntry; onClose: () => void; onDone: () => void }) {
  const [at, setAt] = useState(format.localInput(entry.deliver_at));
  const move = async () => {
    await call("PATCH", `/v1/schedules/${part(entry.id)}`, { body: { deliver_at: new Date(at).getTime() } });
    notify(t.schedules.moved);
    onDone();
  };
  return (
    <FormDialog title={t.schedules.move} action={t.schedules.move} onClose={onClose} onSubmit={move}>
      <TextField label={t.schedules.due} name="deliver_at" type="datetime-local" value={at} onChange={setAt} isRequired />
    </FormDialog>
  );
}

function CancelSchedule({ entry, onClose, onDone }: { entry: ScheduleEntry; onClose: () => void; onDone: () => void }) {
  const cancel = async () => {
    await call("DELETE", `/v1/schedules/${part(entry.id)}`);
    notify(t.schedules.cancelDone);
    onDone();
  };
  return (
    <FormDialog title={t.schedules.cancelTitle} action={t.schedules.cancelTitle} onClose={onClose} onSubmit={cancel} isDangerous>
      <p>{t.schedules.cancelText(entry.topic, format.time(entry.deliver_at))}</p>
    </FormDialog>
  );
}
