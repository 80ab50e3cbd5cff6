/** Dead letters: triage by reason, key and time; redrive one, some or all as a job. */

import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import { get, getRows, part, post, Problem } from "../api/client";
import type { DeadLetter, DeadLetterTopic, Redrive } from "../api/types";
import { bytesOf, decode, type Decoded } from "../decoders/decode";
import * as format from "../format";
import { Badge, Button, Definitions, ErrorNote, PageHead, Panel, Shown } from "../parts/basics";
import { Dialog, FormDialog } from "../parts/dialog";
import { CheckField, TextField } from "../parts/fields";
import { Bytes, Copyable, Count, Time } from "../parts/numbers";
import { ServerList, Table } from "../parts/table";
import { Content, Marked, Preview } from "../parts/text";
import { notify, notifyError } from "../parts/toasts";
import { page, useAddress } from "../state/address";
import { headerText } from "../state/browse";
import { useChoice } from "../state/choice";
import { useLoad } from "../state/load";
import { useMay } from "../state/person";
import { t } from "../texts";
import { Chosen } from "./chosen";

export function DeadLettersPage() {
  return (
    <>
      <PageHead title={t.nav.pages["dead-letters"]} note={t.dead.text} />
      <ServerList<DeadLetterTopic>
        label={t.nav.pages["dead-letters"]}
        keyOf={(row) => row.dead_letter_topic}
        search="match"
        load={(query, signal) => getRows<DeadLetterTopic>("topics", "/v1/deadletters", query, signal)}
        empty={{ title: t.dead.none, text: t.dead.noneText, icon: "check" }}
        columns={[
          { id: "topic", title: t.groups.topic, isWide: true, cell: (row) => <a href={page("dead-letters", row.topic)}>{row.topic}</a> },
          { id: "letters", title: t.dead.topic, cell: (row) => <a href={page("topics", row.dead_letter_topic)}>{row.dead_letter_topic}</a> },
          { id: "messages", title: t.topics.messages, isNumber: true, cell: (row) => <Count value={row.messages} /> },
          { id: "bytes", title: t.topics.bytes, isNumber: true, cell: (row) => <Bytes value={row.bytes} /> },
        ]}
      />
    </>
  );
}

interface Summary {
  messages: number;
  reasons: { reason: string | null; messages: number }[];
  groups: { group: string; messages: number }[];
  keys: { key: string; key_encoding: string; messages: number }[];
  first_died_at: number | null;
  last_died_at: number | null;
  is_complete: boolean;
}

interface LetterRow {
  letter: DeadLetter;
  key: Decoded;
  value: Decoded;
}

const FILTERS = ["reason", "group", "key", "from", "until"];

export function DeadLetterTopicPage() {
  const { params } = useRoute();
  const topic = params["topic"] ?? "";
  const address = useAddress();
  const may = useMay("topic", topic);
  const [redriving, setRedriving] = useState<"chosen" | "matching" | DeadLetter>();
  const [revision, setRevision] = useState(0);
  const [total, setTotal] = useState<number>();
  const open = (letter: DeadLetter | null) => address.change({ letter: letter && placeOf(letter) }, true);
  const filter = Object.fromEntries(FILTERS.flatMap((name) => (address.value(name) ? [[name, address.value(name)]] : [])));
  const chosen = useChoice<DeadLetter>([topic, filter]);
  return (
    <>
      <PageHead title={topic} crumbs={[{ title: t.nav.pages["dead-letters"], href: page("dead-letters") }]} note={total !== undefined && format.plural(total, t.dead.letter, t.dead.letters)}>
        {may("write") && <Button kind="primary" icon="refresh" onClick={() => setRedriving("matching")}>{Object.keys(filter).length > 0 ? t.dead.redriveMatching : t.dead.redriveAll}</Button>}
      </PageHead>
      <Jobs topic={topic} mayChange={may("write")} revision={revision} onEnd={() => setRevision(revision + 1)} />
      <Triage topic={topic} revision={revision} />
      <ServerList<LetterRow>
        label={t.dead.of(topic)}
        revision={`${topic} ${revision}`}
        keyOf={(row) => row.letter.id}
        onOpen={(row) => open(row.letter)}
        filters={[
          { name: "reason", label: t.dead.reason },
          { name: "group", label: t.groups.name },
          { name: "key", label: t.messages.key },
          { name: "from", label: t.dead.from, placeholder: t.dead.fromHint },
          { name: "until", label: t.messages.until },
        ]}
        actions={may("write") && chosen.rows.length > 0 && <Button kind="primary" onClick={() => setRedriving("chosen")}>{t.dead.redriveChosen(chosen.rows.length)}</Button>}
        load={async (query, signal) => {
          const answer = await get<Letters>(`/v1/deadletters/${part(topic)}`, { ...query, encoding: "base64" }, signal);
          setTotal(answer.total);
          return { rows: await Promise.all(answer.messages.map(readable)), cursor: answer.end ? "" : answer.cursor, total: answer.matching !== null && answer.matching_is_complete ? answer.matching : undefined };
        }}
        empty={{ title: t.dead.noneHere, icon: "check" }}
        columns={[
          ...(may("write") ? [{ id: "choose", title: "", cell: ({ letter }: LetterRow) => <input type="checkbox" checked={chosen.has(letter)} aria-label={t.inFlight.choose(letter.id)} onChange={() => chosen.toggle(letter)} /> }] : []),
          { id: "died", title: t.dead.died, cell: ({ letter }) => <Time ms={letter.died_at} /> },
          { id: "source", title: t.dead.source, cell: (row) => <button type="button" class="open link" onClick={() => open(row.letter)}>{row.letter.source ? `${row.letter.source.partition}:${row.letter.source.offset}` : row.letter.id}</button> },
          { id: "group", title: t.groups.name, cell: ({ letter }) => (letter.source ? <a href={page("groups", letter.source.group)}><Marked text={letter.source.group} /></a> : "–") },
          { id: "reason", title: t.dead.reason, cell: ({ letter }) => <span title={letter.reason ?? ""}><Marked text={format.cut(letter.reason ?? "–", REASON_CHARS)} /></span> },
          { id: "attempts", title: t.groups.attempts, isNumber: true, cell: ({ letter }) => <Count value={letter.attempts} /> },
          { id: "key", title: t.messages.key, cell: ({ key }) => <Preview text={key.text} /> },
          { id: "value", title: t.messages.value, isWide: true, cell: ({ value }) => <Preview text={value.text} /> },
        ]}
      />
      {address.value("letter") && <Letter key={address.value("letter")} topic={topic} place={address.value("letter")} revision={revision} onClose={() => open(null)} onRedrive={may("write") ? setRedriving : undefined} />}
      {redriving && (
        <StartRedrive
          topic={topic}
          filter={redriving === "matching" ? filter : undefined}
          letters={redriving === "chosen" ? chosen.rows : redriving === "matching" ? undefined : [redriving]}
          onClose={() => setRedriving(undefined)}
          onDone={() => {
            chosen.clear();
            if (typeof redriving === "object") open(null);
            setRevision(revision + 1);
          }}
        />
      )}
    </>
  );
}

interface Letters {
  messages: DeadLetter[];
  cursor: string;
  end: boolean;
  total: number;
  matching: number | null;
  matching_is_complete: boolean;
}

const REASON_CHARS = 120;

function placeOf(letter: DeadLetter): string {
  return `${letter.partition}:${letter.offset}`;
}

/** The letter at a position of the dead-letter topic: the first of the list that begins there. */
async function letterAt(topic: string, place: string, signal: AbortSignal): Promise<LetterRow> {
  const partition = Number(place.split(":")[0]) || 0;
  if (partition > PARTITIONS_MAX) throw new Problem(404, "not_found", t.dead.gone);
  const before = Array.from({ length: partition }, (_, number) => `${number}:${LAST_OFFSET}`);
  const { messages } = await get<Letters>(`/v1/deadletters/${part(topic)}`, { cursor: [...before, place].join(","), limit: 1, encoding: "base64" }, signal);
  if (!messages[0] || placeOf(messages[0]) !== place) throw new Problem(404, "not_found", t.dead.gone);
  return readable(messages[0]);
}

/** Anybody may write an address: more partitions than this are not even counted. */
const PARTITIONS_MAX = 10_000;
const LAST_OFFSET = 2n ** 62n;

async function readable(letter: DeadLetter): Promise<LetterRow> {
  return { letter, key: await decode(bytesOf(letter.key, letter.key_encoding), "auto"), value: await decode(bytesOf(letter.value, letter.value_encoding), "auto") };
}

const CHIPS_MAX = 8;

/** The most frequent reasons, groups and keys with counts; a click filters by one. */
function Triage({ topic, revision }: { topic: string; revision: number }) {
  const loaded = useLoad((signal) => get<Summary>(`/v1/deadletters/${part(topic)}/summary`, {}, signal), [topic, revision], 15000);
  const found = loaded.data;
  if (loaded.error) return <ErrorNote error={loaded.error} onRetry={loaded.reload} />;
  if (!found || found.messages === 0) return null;
  const keys = found.keys.filter((one) => one.key_encoding === "utf8" && one.key !== "" && one.messages > 1);
  return (
    <section class="panel triage" aria-label={t.dead.triage}>
      <Chips title={t.dead.reason} name="reason" chips={found.reasons.flatMap((one) => (one.reason === null ? [] : [[one.reason, one.messages]]))} />
      {found.groups.length > 1 && <Chips title={t.groups.name} name="group" chips={found.groups.map((one) => [one.group, one.messages])} />}
      {keys.length > 0 && <Chips title={t.messages.key} name="key" chips={keys.map((one) => [one.key, one.messages])} />}
      <p class="muted">{t.dead.died} <Time ms={found.first_died_at} /> – <Time ms={found.last_died_at} /> {!found.is_complete && t.dead.partly(format.count(found.messages))}</p>
    </section>
  );
}

function Chips({ title, name, chips }: { title: string; name: string; chips: [string, number][] }) {
  const address = useAddress();
  const now = address.value(name);
  return (
    <div class="chips" role="group" aria-label={title}>
      <span class="muted">{title}</span>
      {chips.slice(0, CHIPS_MAX).map(([value, messages]) => (
        <button key={value} type="button" class="chip" aria-pressed={now === value} onClick={() => address.change({ [name]: now === value ? null : value, cursor: null })}>
          <Marked text={format.cut(value, 80)} /> <strong>{format.count(messages)}</strong>
        </button>
      ))}
    </div>
  );
}

function Letter({ topic, place, revision, onClose, onRedrive }: { topic: string; place: string; revision: number; onClose: () => void; onRedrive?: (letter: DeadLetter) => void }) {
  const loaded = useLoad((signal) => letterAt(topic, place, signal), [topic, place, revision]);
  return (
    <Dialog title={t.dead.one} onClose={onClose} kind="drawer">
      <Shown of={loaded}>{(row) => <OneLetter row={row} onRedrive={onRedrive} />}</Shown>
    </Dialog>
  );
}

function OneLetter({ row: { letter, value }, onRedrive }: { row: LetterRow; onRedrive?: (letter: DeadLetter) => void }) {
  return (
    <>
      <Definitions
        of={[
          [t.message.id, <Copyable text={letter.id} />],
          [t.dead.reason, <Marked text={letter.reason ?? "–"} />],
          [t.groups.attempts, <Count value={letter.attempts} />],
          [t.dead.died, <Time ms={letter.died_at} />],
          ...(letter.source ? [[t.dead.source, <a href={`${page("topics", letter.source.topic)}?open=${letter.source.partition}:${letter.source.offset}`}>{letter.source.topic}:{letter.source.partition}:{String(letter.source.offset)}</a>] as [string, preact.ComponentChildren]] : []),
        ]}
      />
      <div class="drawer-body">
        {onRedrive && <div class="toolbar"><Button kind="primary" icon="refresh" onClick={() => onRedrive(letter)}>{t.dead.redrive}</Button></div>}
        <Content text={value.text} isJson={value.isJson} label={t.messages.value} />
        <Definitions of={letter.headers.map((header) => [header.name, <Marked text={headerText(header)} />])} />
      </div>
    </>
  );
}

function StartRedrive({ topic, filter, letters, onClose, onDone }: { topic: string; filter?: Record<string, string>; letters?: DeadLetter[]; onClose: () => void; onDone: () => void }) {
  const [rate, setRate] = useState("");
  const [most, setMost] = useState("");
  const [target, setTarget] = useState("");
  const [isKept, setKept] = useState(false);
  const [preview, setPreview] = useState<{ matching: number; is_complete: boolean }>();
  const [error, setError] = useState<Error>();
  const body = (dryRun: boolean) => ({
    ...(filter && Object.keys(filter).length > 0 && { filter }),
    ...(letters && { messages: letters.map(({ partition, offset }) => ({ partition, offset })) }),
    ...(rate && { rate_per_s: Number(rate) }),
    ...(most && !dryRun && { max_messages: Number(most) }),
    ...(target && { target_topic: target }),
    keep_copy: isKept,
    dry_run: dryRun,
  });
  const path = `/v1/deadletters/${part(topic)}/redrives`;
  const look = () => {
    setError(undefined);
    return post<{ preview: { matching: number; is_complete: boolean } }>(path, body(true)).then((answer) => setPreview(answer.preview), setError);
  };
  const start = async () => {
    await post(path, body(false));
    notify(t.dead.started);
    onDone();
  };
  return (
    <FormDialog title={t.dead.redrive} action={t.dead.redrive} onClose={onClose} onSubmit={start}>
      <p>{letters ? t.dead.redriveSome(letters.length) : t.dead.redriveText}</p>
      {letters && <Chosen names={letters.map((one) => `${one.source ? `${one.source.topic} ${one.source.partition}:${one.source.offset}` : one.id}, ${format.cut(one.reason ?? "–", REASON_CHARS)}`)} />}
      {filter && Object.keys(filter).length > 0 && <Chosen names={Object.entries(filter).map(([name, value]) => `${name}: ${value}`)} />}
      <div class="row">
        <TextField label={t.dead.rate} name="rate_per_s" type="number" value={rate} onChange={setRate} placeholder={t.dead.unlimited} />
        {!letters && <TextField label={t.dead.most} name="max_messages" type="number" value={most} onChange={setMost} placeholder={t.all} />}
        <TextField label={t.dead.target} name="target_topic" value={target} onChange={setTarget} placeholder={t.dead.back} />
      </div>
      <CheckField label={t.dead.keep} value={isKept} onChange={setKept} />
      {!letters && <Button icon="search" onClick={() => void look()}>{t.group.preview}</Button>}
      {error && <ErrorNote error={error} />}
      {preview && <p><strong>{t.dead.matching(format.count(preview.matching), preview.is_complete, Number(most) < preview.matching ? most : "")}</strong></p>}
    </FormDialog>
  );
}

const RUNNING = ["running", "paused"];

function Jobs({ topic, mayChange, revision, onEnd }: { topic: string; mayChange: boolean; revision: number; onEnd: () => void }) {
  const [wasRunning, setWasRunning] = useState(false);
  const loaded = useLoad(
    async (signal) => {
      const { redrives } = await get<{ redrives: Redrive[] }>(`/v1/deadletters/${part(topic)}/redrives`, {}, signal);
      const isRunning = redrives.some((job) => RUNNING.includes(job.state));
      if (wasRunning && !isRunning) onEnd();
      setWasRunning(isRunning);
      return redrives;
    },
    [topic, revision],
    1500,
  );
  const act = (job: Redrive, action: string) => post(`/v1/deadletters/${part(topic)}/redrives/${part(job.id)}/${action}`).then(loaded.reload, notifyError);
  if (loaded.error) return <ErrorNote error={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.data?.length) return null;
  return (
    <Panel title={t.dead.jobs}>
      <Shown of={loaded}>
        {(jobs) => (
          <Table
            label={t.dead.jobs}
            rows={[...jobs].sort((one, other) => other.created_at - one.created_at).slice(0, 10)}
            keyOf={(job) => job.id}
            columns={[
              { id: "at", title: t.dead.begun, cell: (job) => <Time ms={job.created_at} /> },
              { id: "state", title: t.groups.state, cell: (job) => <Badge text={job.state} /> },
              { id: "progress", title: t.dead.progress, isWide: true, cell: (job) => <Progress job={job} /> },
              { id: "rate", title: t.dead.rate, isNumber: true, cell: (job) => job.rate_per_s ?? t.dead.unlimited },
              { id: "problem", title: t.dead.problem, cell: (job) => job.problem || "–" },
              { id: "act", title: "", cell: (job) => mayChange && RUNNING.includes(job.state) && <div class="actions"><Button icon={job.state === "paused" ? "play" : "pause"} onClick={() => void act(job, job.state === "paused" ? "resume" : "pause")}>{job.state === "paused" ? t.dead.resume : t.dead.pause}</Button><Button icon="stop" onClick={() => void act(job, "cancel")}>{t.dead.cancel}</Button></div> },
            ]}
          />
        )}
      </Shown>
    </Panel>
  );
}

function Progress({ job }: { job: Redrive }) {
  const seen = job.moved + job.passed_over + job.failed;
  return (
    <>
      <progress value={seen} max={Math.max(1, seen + job.remaining)} aria-label={t.dead.progress} /> <span class="number">{t.dead.progressText(format.count(job.moved), format.count(job.remaining), job.failed)}</span>
    </>
  );
}
