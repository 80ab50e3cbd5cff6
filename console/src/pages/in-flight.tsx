/** Messages that consumers of a queue group hold: who, until when; release, extend or settle by hand. */

import { useState } from "preact/hooks";
import { getRows, part, post } from "../api/client";
import type { InFlight } from "../api/types";
import { Button, Empty, Note } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { TextField } from "../parts/fields";
import { Time } from "../parts/numbers";
import { ServerList } from "../parts/table";
import { Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { page, useAddress } from "../state/address";
import { useChoice } from "../state/choice";
import { t } from "../texts";
import { Chosen } from "./chosen";

const ACTIONS = ["release", "extend", "ack", "reject"] as const;
type Action = (typeof ACTIONS)[number];

export function InFlightTab({ group, topics, mayChange }: { group: string; topics: string[]; mayChange: boolean }) {
  const address = useAddress();
  const [action, setAction] = useState<Action>();
  const [revision, setRevision] = useState(0);
  const topic = address.value("topic", topics[0] ?? "");
  const chosen = useChoice<InFlight>([group, topic, address.value("consumer")]);
  if (!topic) return <Empty title={t.group.noTopics} icon="groups" />;
  const buttons = chosen.rows.length > 0 && ACTIONS.map((one) => <Button key={one} kind={one === "reject" ? "danger-quiet" : ""} onClick={() => setAction(one)}>{t.inFlight.actions[one]} ({chosen.rows.length})</Button>);
  return (
    <>
      <Note>{t.inFlight.text}</Note>
      <ServerList<InFlight>
        label={t.groups.inFlight}
        revision={revision}
        everyMs={3000}
        keyOf={(row) => row.id}
        filters={[...(topics.length > 1 ? [{ name: "topic", label: t.groups.topic, choices: topics }] : []), { name: "consumer", label: t.groups.consumer }]}
        actions={buttons}
        load={(query, signal) => getRows<InFlight>("messages", `/v1/groups/${part(group)}/in-flight`, { ...query, topic }, signal)}
        empty={{ title: t.inFlight.none, icon: "check" }}
        columns={[
          ...(mayChange ? [{ id: "choose", title: "", cell: (row: InFlight) => <input type="checkbox" checked={chosen.has(row)} aria-label={t.inFlight.choose(row.id)} onChange={() => chosen.toggle(row)} /> }] : []),
          { id: "id", title: t.messages.place, cell: (row) => <a href={`${page("topics", row.topic)}?open=${row.partition}:${row.offset}`}>{row.partition}:{String(row.offset)}</a> },
          { id: "consumer", title: t.groups.consumer, isWide: true, cell: (row) => <Marked text={row.consumer} /> },
          { id: "attempt", title: t.groups.attempts, isNumber: true, cell: (row) => row.attempt },
          { id: "lane", title: t.produce.lane, cell: (row) => row.priority },
          { id: "since", title: t.inFlight.since, cell: (row) => <Time ms={row.leased_at} /> },
          { id: "until", title: t.groups.leasedUntil, cell: (row) => <Time ms={row.leased_until} isRelative /> },
        ]}
      />
      {action && (
        <Settle
          group={group}
          action={action}
          messages={chosen.rows}
          onClose={() => setAction(undefined)}
          onDone={() => {
            chosen.clear();
            setRevision(revision + 1);
          }}
        />
      )}
    </>
  );
}

function Settle({ group, action, messages, onClose, onDone }: { group: string; action: Action; messages: InFlight[]; onClose: () => void; onDone: () => void }) {
  const [seconds, setSeconds] = useState("30");
  const [reason, setReason] = useState("");
  const settleOf = (topic: string) =>
    post<{ failed: number; results: { problem?: { detail: string } }[] }>(`/v1/groups/${part(group)}/in-flight`, {
      topic,
      action,
      messages: messages.filter((one) => one.topic === topic).map(({ partition, offset }) => ({ partition, offset })),
      ...(action === "extend" && { visibility_ms: Math.round(Number(seconds) * 1000) }),
      ...(action === "release" && { delay_ms: 0 }),
      ...(action === "reject" && { reason }),
    });
  const settle = async () => {
    const answers = await Promise.all([...new Set(messages.map((one) => one.topic))].map(settleOf));
    const failed = answers.reduce((sum, one) => sum + one.failed, 0);
    const why = answers.flatMap((one) => one.results).find((one) => one.problem)?.problem?.detail ?? "";
    notify(t.inFlight.done(messages.length - failed, failed, why), failed > 0);
    onDone();
  };
  return (
    <FormDialog title={t.inFlight.actions[action]} action={t.inFlight.actions[action]} onClose={onClose} onSubmit={settle} isDangerous={action === "reject" || action === "ack"}>
      <p>{t.inFlight.texts[action](messages.length)}</p>
      <Chosen names={messages.map((one) => `${one.topic} ${one.partition}:${one.offset}, ${one.consumer}`)} />
      {action === "extend" && <TextField label={t.inFlight.seconds} type="number" name="visibility_ms" value={seconds} onChange={setSeconds} />}
      {action === "reject" && <TextField label={t.dead.reason} name="reason" value={reason} onChange={setReason} />}
    </FormDialog>
  );
}
