/** Groups of all kinds in one list, with lag in messages and time. */

import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { call, getRows, part } from "../api/client";
import type { Group } from "../api/types";
import { Badge, Button, GroupKind, PageHead } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { SelectField, TextField } from "../parts/fields";
import { Count, Duration } from "../parts/numbers";
import { ServerList, type Column } from "../parts/table";
import { Marked } from "../parts/text";
import { page, useAddress } from "../state/address";
import { mayAny } from "../state/person";
import { t } from "../texts";

const COLUMNS: Column<Group>[] = [
  { id: "name", title: t.groups.name, isSortable: true, isWide: true, cell: (group) => <a href={page("groups", group.name)}><Marked text={group.name} /></a> },
  { id: "kind", title: t.groups.kind, cell: (group) => <GroupKind of={group} /> },
  { id: "state", title: t.groups.state, cell: (group) => <Badge text={group.state} /> },
  { id: "members", title: t.groups.members, isSortable: true, isNumber: true, cell: (group) => <Count value={group.stats?.members} /> },
  { id: "topics", title: t.topics.title, isSortable: true, isNumber: true, cell: (group) => <Count value={group.stats?.topics} /> },
  { id: "lag", title: t.groups.lag, isSortable: true, isNumber: true, cell: (group) => <Count value={group.stats?.lag} /> },
  { id: "lag_ms", title: t.groups.lagTime, isSortable: true, isNumber: true, cell: (group) => <Duration ms={group.stats?.lag_ms} /> },
  { id: "in_flight", title: t.groups.inFlight, isSortable: true, isNumber: true, cell: (group) => <Count value={group.stats?.in_flight} /> },
];

export function GroupsPage() {
  const address = useAddress();
  const open = (isOpen: boolean) => address.change({ new: isOpen ? 1 : null }, true);
  const kinds = [...(mayAny("group", "alter_configs") ? ["queue"] : []), ...(mayAny("group", "read") && mayAny("topic", "read") ? ["stream"] : [])];
  const mayCreate = kinds.length > 0;
  return (
    <>
      <PageHead title={t.nav.pages.groups}>{mayCreate && <Button kind="primary" icon="plus" onClick={() => open(true)}>{t.groups.create}</Button>}</PageHead>
      <ServerList<Group>
        label={t.nav.pages.groups}
        columns={COLUMNS}
        keyOf={(group) => group.name}
        search="match"
        sort="name"
        filters={[{ name: "kind", label: t.groups.kind, choices: t.groups.kinds }, { name: "state", label: t.groups.state, choices: t.groups.states }]}
        load={(query, signal) => getRows<Group>("groups", "/v1/groups", { ...query, stats: true }, signal)}
        empty={{ title: t.groups.none, text: t.groups.noneText, icon: "groups" }}
      />
      {mayCreate && address.value("new") && <CreateGroup kinds={kinds} onClose={() => open(false)} />}
    </>
  );
}

function CreateGroup({ kinds, onClose }: { kinds: string[]; onClose: () => void }) {
  const { route } = useLocation();
  const [name, setName] = useState("");
  const [kind, setKind] = useState(kinds[0] ?? "");
  const [topic, setTopic] = useState("");
  const [start, setStart] = useState("earliest");
  const create = async () => {
    await call("PUT", `/v1/groups/${part(name)}`, { body: kind === "queue" ? { kind, settings: { start } } : { kind, topics: [topic], start } });
    window.setTimeout(() => route(page("groups", name)));
  };
  return (
    <FormDialog title={t.groups.create} action={t.create} onClose={onClose} onSubmit={create}>
      <TextField label={t.groups.name} name="group" value={name} onChange={setName} isRequired />
      <SelectField label={t.groups.kind} value={kind} onChange={setKind} choices={kinds} hint={t.groups.kindHint} />
      {kind === "stream" && <TextField label={t.groups.topic} name="topics" value={topic} onChange={setTopic} isRequired />}
      <SelectField label={t.groups.start} name="start" value={start} onChange={setStart} choices={["earliest", "latest"]} />
    </FormDialog>
  );
}
