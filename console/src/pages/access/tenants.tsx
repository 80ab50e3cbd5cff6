/** Tenants: what they have, and whether they may; created, suspended, deleted. */

import { useState } from "preact/hooks";
import { call, get, getRows, part, post } from "../../api/client";
import type { Tenant, TenantUsage } from "../../api/types";
import { Badge, Button, Definitions, Note, Shown } from "../../parts/basics";
import { Dialog, FormDialog } from "../../parts/dialog";
import { CheckField, SelectField, TextField } from "../../parts/fields";
import { Bytes, Count, Time } from "../../parts/numbers";
import { ServerList } from "../../parts/table";
import { Marked } from "../../parts/text";
import { notify } from "../../parts/toasts";
import { useAddress } from "../../state/address";
import { useLoad } from "../../state/load";
import { mayCluster } from "../../state/person";
import { t } from "../../texts";

type Opened = { action: "create" } | { action: "state" | "delete"; tenant: Tenant };

export function TenantsTab() {
  const address = useAddress();
  const [revision, setRevision] = useState(0);
  const [opened, setOpened] = useState<Opened>();
  const mayChange = mayCluster("alter");
  const close = () => setOpened(undefined);
  const done = () => {
    notify(t.settings.saved);
    setRevision(revision + 1);
  };
  const shown = address.value("tenant");
  return (
    <>
      <ServerList<Tenant>
        label={t.access.tabs["tenants"] ?? ""}
        revision={revision}
        keyOf={(tenant) => tenant.name}
        onOpen={(tenant) => address.change({ tenant: tenant.name })}
        actions={mayChange && <Button kind="primary" icon="plus" onClick={() => setOpened({ action: "create" })}>{t.access.createTenant}</Button>}
        load={(query, signal) => getRows<Tenant>("tenants", "/v1/tenants", query, signal)}
        empty={{ title: t.access.noTenants, icon: "access" }}
        columns={[
          { id: "name", title: t.access.tenant, isWide: true, cell: (tenant) => <><a href={address.with({ tenant: tenant.name })}><Marked text={tenant.name} /></a> <span class="muted">{tenant.description}</span></> },
          { id: "state", title: t.groups.state, cell: (tenant) => <Badge text={tenant.state} /> },
          { id: "users", title: t.access.tabs["users"] ?? "", isNumber: true, cell: (tenant) => <Count value={tenant.users} /> },
          { id: "topics", title: t.topics.title, isNumber: true, cell: (tenant) => <Count value={tenant.topics} /> },
          { id: "created", title: t.access.created, cell: (tenant) => <Time ms={tenant.created_at} /> },
          { id: "act", title: "", cell: (tenant) => mayChange && <div class="actions"><Button onClick={() => setOpened({ action: "state", tenant })}>{t.access.changeState}</Button><Button kind="danger-quiet" icon="trash" aria-label={`${t.delete} ${tenant.name}`} onClick={() => setOpened({ action: "delete", tenant })} /></div> },
        ]}
      />
      {shown && <Dialog title={t.access.usageOf(shown)} onClose={() => address.change({ tenant: null }, true)} kind="drawer"><Usage tenant={shown} /></Dialog>}
      {opened?.action === "create" && <CreateTenant onClose={close} onDone={done} />}
      {opened?.action === "state" && <ChangeTenant tenant={opened.tenant} onClose={close} onDone={done} />}
      {opened?.action === "delete" && <DeleteTenant tenant={opened.tenant} onClose={close} onDone={done} />}
    </>
  );
}

function Usage({ tenant }: { tenant: string }) {
  const loaded = useLoad((signal) => get<TenantUsage>(`/v1/tenants/${part(tenant)}/usage`, {}, signal), [tenant], 10000);
  return (
    <Shown of={loaded}>
      {(found) => (
        <Definitions
          of={[
            [t.access.tabs["users"] ?? "", <Count value={found.users} />],
            [t.topics.title, <Count value={found.topics} />],
            [t.topics.partitions, <Count value={found.partitions} />],
            [t.access.queues, <Count value={found.queues} />],
            [t.topics.groups, <Count value={found.groups} />],
            [t.schemas.subjects, <Count value={found.subjects} />],
            [t.schedules.one, <Count value={found.scheduled} />],
            [t.topics.bytes, <Bytes value={found.stored_bytes} />],
          ]}
        />
      )}
    </Shown>
  );
}

function CreateTenant({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [admin, setAdmin] = useState("");
  const create = async () => {
    await post("/v1/tenants", { name, description, ...(admin && { admin }) });
    onDone();
  };
  return (
    <FormDialog title={t.access.createTenant} action={t.create} onClose={onClose} onSubmit={create}>
      <TextField label={t.access.tenant} name="name" value={name} onChange={setName} isRequired />
      <TextField label={t.access.description} name="description" value={description} onChange={setDescription} />
      <TextField label={t.access.tenantAdmin} name="admin" value={admin} onChange={setAdmin} hint={t.access.tenantAdminHint} />
    </FormDialog>
  );
}

interface TenantProps {
  tenant: Tenant;
  onClose: () => void;
  onDone: () => void;
}

function ChangeTenant({ tenant, onClose, onDone }: TenantProps) {
  const [state, setState] = useState(tenant.state);
  const change = async () => {
    await call("PATCH", `/v1/tenants/${part(tenant.name)}`, { body: { state } });
    onDone();
  };
  return (
    <FormDialog title={t.access.changeState} action={t.access.changeState} onClose={onClose} onSubmit={change}>
      <SelectField label={t.groups.state} value={state} onChange={setState} choices={["active", "read_only", "suspended"]} hint={t.access.stateHint} />
    </FormDialog>
  );
}

function DeleteTenant({ tenant, onClose, onDone }: TenantProps) {
  const [isPurging, setPurging] = useState(false);
  const remove = async () => {
    await call("DELETE", `/v1/tenants/${part(tenant.name)}`, { query: { purge: isPurging } });
    onDone();
  };
  return (
    <FormDialog title={t.access.deleteTenant} action={t.access.deleteTenant} onClose={onClose} onSubmit={remove} isDangerous typed={tenant.name}>
      <p>{t.access.deleteTenantText}</p>
      <CheckField label={t.access.purgeTenant} value={isPurging} onChange={setPurging} />
      {isPurging && <Note kind="bad">{t.access.purgeTenantText}</Note>}
    </FormDialog>
  );
}
