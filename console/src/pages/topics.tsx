/** All topics, with rates, sizes, groups and lag. */

import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { getRows, post } from "../api/client";
import type { Topic } from "../api/types";
import { Button, PageHead } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { TextField } from "../parts/fields";
import { Bytes, Count, Rate } from "../parts/numbers";
import { chosenSettings, SettingsForm, useSettings, type Drafts } from "../parts/settings";
import { ServerList, type Column } from "../parts/table";
import { notify } from "../parts/toasts";
import { page, useAddress } from "../state/address";
import { mayAny } from "../state/person";
import { t } from "../texts";

const COLUMNS: Column<Topic>[] = [
  { id: "name", title: t.topics.name, isSortable: true, isWide: true, cell: (topic) => <a href={page("topics", topic.name)}><bdi>{topic.name}</bdi>{topic.internal && <span class="badge">{t.topics.internal}</span>}</a> },
  { id: "partitions", title: t.topics.partitions, isSortable: true, isNumber: true, cell: (topic) => <Count value={topic.partitions} /> },
  { id: "messages", title: t.topics.messages, isSortable: true, isNumber: true, cell: (topic) => <Count value={topic.stats?.messages} /> },
  { id: "bytes", title: t.topics.bytes, isSortable: true, isNumber: true, cell: (topic) => <Bytes value={topic.stats?.bytes} /> },
  { id: "in_per_s", title: t.topics.inPerS, isSortable: true, isNumber: true, cell: (topic) => <Rate value={topic.stats?.in_per_s} /> },
  { id: "out_per_s", title: t.topics.outPerS, isSortable: true, isNumber: true, cell: (topic) => <Rate value={topic.stats?.out_per_s} /> },
  { id: "in_bytes_per_s", title: t.topics.inBytes, isSortable: true, isNumber: true, cell: (topic) => <Bytes value={topic.stats?.in_bytes_per_s} /> },
  { id: "groups", title: t.topics.groups, isSortable: true, isNumber: true, cell: (topic) => <Count value={topic.stats?.groups} /> },
  { id: "lag", title: t.topics.lag, isSortable: true, isNumber: true, cell: (topic) => <Count value={topic.stats?.lag} /> },
];

export function TopicsPage() {
  const address = useAddress();
  const open = (isOpen: boolean) => address.change({ new: isOpen ? 1 : null }, true);
  const mayCreate = mayAny("topic", "create");
  return (
    <>
      <PageHead title={t.nav.pages.topics}>{mayCreate && <Button kind="primary" icon="plus" onClick={() => open(true)}>{t.topics.create}</Button>}</PageHead>
      <ServerList<Topic>
        label={t.nav.pages.topics}
        columns={COLUMNS}
        keyOf={(topic) => topic.name}
        search="match"
        sort="name"
        filters={[{ name: "internal", label: t.topics.which, choices: [["", t.topics.own], ["true", t.topics.withInternal]] }]}
        load={(query, signal) => getRows<Topic>("topics", "/v1/topics", { ...query, stats: true }, signal)}
        empty={{ title: t.topics.none, text: t.topics.noneText }}
      />
      {mayCreate && address.value("new") && <CreateTopic onClose={() => open(false)} />}
    </>
  );
}

function CreateTopic({ onClose }: { onClose: () => void }) {
  const { route } = useLocation();
  const settings = useSettings("topics");
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const [replication, setReplication] = useState("");
  const [drafts, setDrafts] = useState<Drafts>({});
  const create = async () => {
    const chosen = chosenSettings(settings.data ?? [], drafts);
    await post("/v1/topics", { name, ...(partitions && { partitions: Number(partitions) }), ...(replication && { replication: Number(replication) }), ...(Object.keys(chosen).length && { settings: chosen }) });
    notify(t.topics.created(name));
    window.setTimeout(() => route(page("topics", name)));
  };
  return (
    <FormDialog title={t.topics.create} action={t.create} onClose={onClose} onSubmit={create}>
      <TextField label={t.topics.name} name="name" value={name} onChange={setName} isRequired hint={t.topics.nameHint} />
      <div class="row">
        <TextField label={t.topics.partitions} name="partitions" type="number" value={partitions} onChange={setPartitions} placeholder={t.default} />
        <TextField label={t.topics.replication} name="replication" type="number" value={replication} onChange={setReplication} placeholder={t.default} />
      </div>
      <details>
        <summary>{t.topics.settings}</summary>
        <SettingsForm settings={settings.data ?? []} current={{}} drafts={drafts} onChange={setDrafts} />
      </details>
    </FormDialog>
  );
}
