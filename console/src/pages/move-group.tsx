/** Reset a stream group or rewind a queue group, after a look at what would change; purge a queue. */

import { useState } from "preact/hooks";
import { get, part, post } from "../api/client";
import type { Int } from "../api/json";
import type { Lag, PartitionLag } from "../api/types";
import * as format from "../format";
import { Button, ErrorNote } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { SelectField, TextField } from "../parts/fields";
import { Count } from "../parts/numbers";
import { Table } from "../parts/table";
import { notify } from "../parts/toasts";
import { t } from "../texts";

interface MovedOffset {
  partition: number;
  offset: Int;
  offset_before?: Int | null;
}

interface Props {
  group: string;
  topics: string[];
  onClose: () => void;
  onDone: () => void;
}

interface Preview {
  partition: number;
  before: Int | null;
  after: Int;
  /** How many messages are read from there on, as far as they are written now. */
  left: Int | null;
}

/** Where each partition is and where it would go; a queue group is where its first message is not done. */
function previewOf(moved: MovedOffset[], partitions: PartitionLag[]): Preview[] {
  const now = new Map(partitions.map((one) => [one.partition, one]));
  return moved.map(({ partition, offset, offset_before }) => {
    const found = now.get(partition);
    const left = found && Number(found.end_offset) - Number(offset);
    return { partition, before: offset_before ?? found?.offset ?? null, after: offset, left: left === undefined ? null : Math.max(0, left) };
  });
}

const PREVIEW_ROWS_MAX = 200;

export function MoveGroup({ group, topics, isQueue, onClose, onDone }: Props & { isQueue: boolean }) {
  const [topic, setTopic] = useState(topics[0] ?? "");
  const [to, setTo] = useState("earliest");
  const [preview, setPreview] = useState<Preview[]>();
  const [error, setError] = useState<Error>();
  const path = `/v1/groups/${part(group)}/${isQueue ? "rewind" : "reset"}`;
  const move = (dryRun: boolean) => post<{ offsets: MovedOffset[] }>(path, { topic, to, ...(dryRun && { dry_run: true }) });
  const look = () => {
    setError(undefined);
    return Promise.all([move(true), get<Lag>(`/v1/groups/${part(group)}/lag`, { topic })]).then(([{ offsets }, lag]) => setPreview(previewOf(offsets, lag.partitions)), setError);
  };
  const change = (set: (value: string) => void) => (value: string) => {
    set(value);
    setPreview(undefined);
    setError(undefined);
  };
  const submit = async () => {
    await move(false);
    notify(t.group.movedTo(to));
    onDone();
  };
  return (
    <FormDialog title={isQueue ? t.group.rewind : t.group.reset} action={isQueue ? t.group.rewind : t.group.reset} onClose={onClose} onSubmit={submit} isDangerous isDisabled={!preview}>
      <p>{isQueue ? t.group.rewindText : t.group.resetText}</p>
      <SelectField label={t.groups.topic} value={topic} onChange={change(setTopic)} choices={topics} />
      <TextField label={t.group.to} name="to" value={to} onChange={change(setTo)} hint={isQueue ? t.momentHint : t.group.toHint} list={["earliest", "latest", "15m", "1h", "1d", ...(isQueue ? [] : ["offset:42"])]} isRequired />
      <Button icon="search" onClick={() => void look()}>{t.group.preview}</Button>
      {error && <ErrorNote error={error} />}
      {preview && <p><strong>{t.group.toRead(format.count(preview.reduce((sum, one) => sum + Number(one.left ?? 0), 0)))}</strong></p>}
      {preview && (
        <Table
          label={t.group.preview}
          rows={preview.slice(0, PREVIEW_ROWS_MAX)}
          keyOf={(one) => String(one.partition)}
          columns={[
            { id: "partition", title: t.topic.partition, cell: (one) => one.partition },
            { id: "before", title: t.group.before, isNumber: true, cell: (one) => <Count value={one.before} /> },
            { id: "after", title: t.group.after, isNumber: true, cell: (one) => <Count value={one.after} /> },
            { id: "left", title: t.group.left, isNumber: true, cell: (one) => <Count value={one.left} /> },
          ]}
        />
      )}
      {preview && preview.length > PREVIEW_ROWS_MAX && <p class="muted">{t.list.of(String(PREVIEW_ROWS_MAX), format.count(preview.length))}</p>}
    </FormDialog>
  );
}

export function PurgeGroup({ group, topics, onClose, onDone }: Props) {
  const [topic, setTopic] = useState(topics[0] ?? "");
  const purge = async () => {
    await post(`/v1/groups/${part(group)}/purge`, { topic });
    notify(t.group.purged);
    onDone();
  };
  return (
    <FormDialog title={t.group.purge} action={t.group.purge} onClose={onClose} onSubmit={purge} isDangerous typed={group}>
      <p>{t.group.purgeText}</p>
      <SelectField label={t.groups.topic} value={topic} onChange={setTopic} choices={topics} />
    </FormDialog>
  );
}

/** Deletes what a stream group has committed in a topic that no member reads any more. */
export function DeleteOffsets({ group, topics, onClose, onDone }: Props) {
  const [topic, setTopic] = useState(topics[0] ?? "");
  const [partitions, setPartitions] = useState("");
  const remove = async () => {
    const numbers = partitions.split(",").map((one) => one.trim()).filter(Boolean).map(Number);
    const answer = await post<{ failed: number; results: { problem?: { detail: string } }[] }>(`/v1/groups/${part(group)}/offsets/delete`, { topic, ...(numbers.length > 0 && { partitions: numbers }) });
    const why = answer.results.find((one) => one.problem)?.problem?.detail;
    if (why) throw new Error(t.group.offsetsKept(answer.failed, why));
    notify(t.group.offsetsDeleted(answer.results.length));
    onDone();
  };
  return (
    <FormDialog title={t.group.deleteOffsets} action={t.group.deleteOffsets} onClose={onClose} onSubmit={remove} isDangerous typed={topic}>
      <p>{t.group.deleteOffsetsText}</p>
      <SelectField label={t.groups.topic} value={topic} onChange={setTopic} choices={topics} />
      <TextField label={t.topics.partitions} name="partitions" value={partitions} onChange={setPartitions} placeholder={t.all} hint={t.group.partitionsHint} />
    </FormDialog>
  );
}
