/** Quotas, how much of each is used, and what they are measured in. */

import { useState } from "preact/hooks";
import { call, get, getRows } from "../../api/client";
import type { Quota, QuotaUse } from "../../api/types";
import { Button, Panel } from "../../parts/basics";
import { FormDialog } from "../../parts/dialog";
import { SelectField, TextField } from "../../parts/fields";
import { Bytes, Count, Duration, Rate } from "../../parts/numbers";
import { ServerList, Table } from "../../parts/table";
import { Marked } from "../../parts/text";
import { notify } from "../../parts/toasts";
import { useLoad } from "../../state/load";
import { mayCluster } from "../../state/person";
import { t } from "../../texts";

type Unit = keyof typeof t.access.units;

/** What can be limited, and in which unit; a limit that is not known is shown as a number. */
const LIMITS: Record<string, Unit> = {
  producer_byte_rate: "bytesPerS",
  consumer_byte_rate: "bytesPerS",
  producer_message_rate: "messagesPerS",
  consumer_message_rate: "messagesPerS",
  request_rate: "requestsPerS",
  request_percentage: "percent",
  controller_mutation_rate: "mutationsPerS",
  connection_creation_rate: "connectionsPerS",
  connections: "count",
  storage_bytes: "bytes",
  topics: "count",
  partitions: "count",
  groups: "count",
  scheduled_messages: "count",
  in_flight_messages: "count",
};
const ENTITIES: [string, string[]][] = [["user", ["user"]], ["client-id", ["client-id"]], ["user and client-id", ["user", "client-id"]], ["ip", ["ip"]], ["tenant", ["tenant"]]];
const USES_MAX = 100;

function named(entity: Record<string, string | null>): string {
  return Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? t.access.defaultEntity}`).join(", ");
}

function Amount({ limit, value }: { limit: string; value: number }) {
  const unit = LIMITS[limit];
  if (unit === "bytes") return <Bytes value={value} />;
  if (unit === "bytesPerS") return <><Bytes value={value} />/s</>;
  if (unit === undefined || unit === "count") return <Count value={value} />;
  return <><Rate value={value} /> {t.access.units[unit]}</>;
}

export function QuotasTab() {
  const [setting, setSetting] = useState<Quota>();
  const [revision, setRevision] = useState(0);
  const mayChange = mayCluster("alter_configs");
  return (
    <>
      <ServerList<Quota>
        label={t.access.tabs["quotas"] ?? ""}
        revision={revision}
        keyOf={(quota) => named(quota.entity)}
        actions={mayChange && <Button kind="primary" icon="plus" onClick={() => setSetting({ entity: {}, limits: {} })}>{t.access.setQuota}</Button>}
        load={(query, signal) => getRows<Quota>("quotas", "/v1/quotas", query, signal)}
        empty={{ title: t.access.noQuotas, icon: "access" }}
        columns={[
          { id: "entity", title: t.access.entity, cell: (quota) => <Marked text={named(quota.entity)} /> },
          { id: "limits", title: t.access.limit, isWide: true, cell: (quota) => Object.entries(quota.limits).map(([limit, value]) => <div key={limit}>{limit} <Amount limit={limit} value={value} /></div>) },
          { id: "act", title: "", cell: (quota) => mayChange && <Button icon="edit" onClick={() => setSetting(quota)}>{t.access.changeQuota}</Button> },
        ]}
      />
      <Usage />
      {setting && <SetQuota quota={setting} onClose={() => setSetting(undefined)} onDone={() => setRevision(revision + 1)} />}
    </>
  );
}

function Usage() {
  const usage = useLoad((signal) => get<{ usage: QuotaUse[]; total: number }>("/v1/quotas/usage", { limit: USES_MAX }, signal), [], 3000);
  const uses = usage.data?.usage ?? [];
  return (
    <Panel title={t.access.usage}>
      {uses.length === 0 ? <p class="muted">{t.access.noUsage}</p> : (
        <Table
          label={t.access.usage}
          rows={uses}
          keyOf={(use) => `${named(use.entity)} ${use.limit}`}
          columns={[
            { id: "entity", title: t.access.entity, isWide: true, cell: (use) => <Marked text={named(use.entity)} /> },
            { id: "limit", title: t.access.limit, cell: (use) => use.limit },
            { id: "used", title: t.access.usedOf, cell: (use) => <><meter min={0} max={use.value} value={use.used} aria-label={t.access.usedOf} /> <Amount limit={use.limit} value={use.used} /> / <Amount limit={use.limit} value={use.value} /></> },
            { id: "wait", title: t.access.wait, isNumber: true, cell: (use) => <Duration ms={use.wait_ms} /> },
          ]}
        />
      )}
      {(usage.data?.total ?? 0) > USES_MAX && <p class="muted">{t.access.longestWaits(USES_MAX, usage.data?.total ?? 0)}</p>}
    </Panel>
  );
}

function SetQuota({ quota, onClose, onDone }: { quota: Quota; onClose: () => void; onDone: () => void }) {
  const given = Object.keys(quota.entity);
  const [kind, setKind] = useState(given.length > 0 ? [...given].sort().reverse().join(" and ") : "user");
  const [names, setNames] = useState<Record<string, string>>(Object.fromEntries(Object.entries(quota.entity).map(([one, name]) => [one, name ?? ""])));
  const [limit, setLimit] = useState(Object.keys(quota.limits)[0] ?? "producer_byte_rate");
  const [value, setValue] = useState(String(Object.values(quota.limits)[0] ?? ""));
  const kinds = ENTITIES.find(([title]) => title === kind)?.[1] ?? ["user"];
  const save = async () => {
    const entity = Object.fromEntries(kinds.map((one) => [one, names[one] || null]));
    await call("PATCH", "/v1/quotas", { body: { entity, limits: { [limit]: value === "" ? null : Number(value) } } });
    notify(t.settings.saved);
    onDone();
  };
  const unit = LIMITS[limit];
  const choose = (name: string) => {
    setLimit(name);
    setValue(String(quota.limits[name] ?? ""));
  };
  return (
    <FormDialog title={t.access.setQuota} action={t.access.setQuota} onClose={onClose} onSubmit={save}>
      <SelectField label={t.groups.kind} value={kind} onChange={setKind} choices={ENTITIES.map(([title]) => title)} />
      <div class="row">{kinds.map((one) => <TextField key={one} label={t.access.entityOf(one)} name="entity" value={names[one] ?? ""} onChange={(text) => setNames({ ...names, [one]: text })} placeholder={t.access.defaultEntity} />)}</div>
      <div class="row">
        <SelectField label={t.access.limit} name="limits" value={limit} onChange={choose} choices={Object.keys(LIMITS)} />
        <TextField label={t.messages.value} type="number" value={value} onChange={setValue} hint={`${unit ? t.access.units[unit] : ""}. ${t.access.quotaHint}`} />
      </div>
    </FormDialog>
  );
}
