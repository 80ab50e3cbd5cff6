/** Access rules, a test of them, and roles. */

import { useState } from "preact/hooks";
import { call, get, getRows, part, post } from "../../api/client";
import type { Acl, Role } from "../../api/types";
import { Badge, Button, Note, Panel } from "../../parts/basics";
import { FormDialog } from "../../parts/dialog";
import { SelectField, TextField } from "../../parts/fields";
import { ServerList } from "../../parts/table";
import { Marked } from "../../parts/text";
import { notify, notifyError } from "../../parts/toasts";
import { mayCluster } from "../../state/person";
import { t } from "../../texts";

const KINDS = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "SUBJECT"];
const ACTIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"];
const NEW: Acl = { kind: "TOPIC", pattern: "LITERAL", name: "", principal: "User:", host: "*", action: "READ", permission: "ALLOW" };

export function AclsTab() {
  const [revision, setRevision] = useState(0);
  const [isCreating, setCreating] = useState(false);
  const [deleting, setDeleting] = useState<Acl>();
  const mayChange = mayCluster("alter");
  const done = () => setRevision(revision + 1);
  const remove = async () => {
    await call("DELETE", "/v1/acls", { query: { ...deleting } });
    done();
  };
  return (
    <>
      <TestAccess />
      <ServerList<Acl>
        label={t.access.tabs["acls"] ?? ""}
        revision={revision}
        keyOf={(acl) => Object.values(acl).join(" ")}
        filters={[{ name: "kind", label: t.groups.kind, choices: [["", t.access.anyKind], ...KINDS] }, { name: "name", label: t.access.resource }, { name: "principal", label: t.access.principal, placeholder: "User:alice" }]}
        actions={mayChange && <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>{t.access.createAcl}</Button>}
        load={(query, signal) => getRows<Acl>("acls", "/v1/acls", query, signal)}
        empty={{ title: t.access.noAcls, icon: "access" }}
        columns={[
          { id: "permission", title: t.access.permission, cell: (acl) => <Badge text={acl.permission} /> },
          { id: "principal", title: t.access.principal, cell: (acl) => <Marked text={acl.principal} /> },
          { id: "action", title: t.access.action, cell: (acl) => acl.action },
          { id: "kind", title: t.groups.kind, cell: (acl) => acl.kind.toLowerCase() },
          { id: "name", title: t.access.resource, isWide: true, cell: (acl) => <><Marked text={acl.name} />{acl.pattern === "PREFIXED" ? "*" : ""}</> },
          { id: "host", title: t.group.host, cell: (acl) => acl.host },
          { id: "act", title: "", cell: (acl) => mayChange && <Button icon="trash" kind="danger-quiet" aria-label={t.access.deleteAcl} onClick={() => setDeleting(acl)} /> },
        ]}
      />
      {isCreating && <CreateAcl onClose={() => setCreating(false)} onDone={done} />}
      {deleting && <FormDialog title={t.access.deleteAcl} action={t.access.deleteAcl} onClose={() => setDeleting(undefined)} onSubmit={remove} isDangerous><p>{t.access.deleteAclText}</p></FormDialog>}
    </>
  );
}

function CreateAcl({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [acl, setAcl] = useState<Acl>(NEW);
  const set = (name: keyof Acl) => (value: string) => setAcl({ ...acl, [name]: value });
  const create = async () => {
    await post("/v1/acls", { acls: [acl.kind === "CLUSTER" ? { ...acl, name: "kafka-cluster" } : acl] });
    notify(t.settings.saved);
    onDone();
  };
  return (
    <FormDialog title={t.access.createAcl} action={t.create} onClose={onClose} onSubmit={create}>
      <TextField label={t.access.principal} name="principal" value={acl.principal} onChange={set("principal")} isRequired />
      <div class="row">
        <SelectField label={t.access.permission} value={acl.permission} onChange={set("permission")} choices={["ALLOW", "DENY"]} />
        <SelectField label={t.access.action} value={acl.action} onChange={set("action")} choices={ACTIONS} />
      </div>
      <div class="row">
        <SelectField label={t.groups.kind} value={acl.kind} onChange={set("kind")} choices={KINDS} />
        {acl.kind !== "CLUSTER" && <SelectField label={t.access.pattern} value={acl.pattern} onChange={set("pattern")} choices={["LITERAL", "PREFIXED"]} />}
      </div>
      {acl.kind !== "CLUSTER" && <TextField label={t.access.resource} name="name" value={acl.name} onChange={set("name")} isRequired />}
      <TextField label={t.group.host} name="host" value={acl.host} onChange={set("host")} />
    </FormDialog>
  );
}

function TestAccess() {
  const [asked, setAsked] = useState({ principal: "User:", action: "READ", kind: "TOPIC", name: "" });
  const [found, setFound] = useState<{ allowed: boolean; reason: string }>();
  const set = (name: string) => (value: string) => setAsked({ ...asked, [name]: value });
  const test = (event: Event) => {
    event.preventDefault();
    get<{ allowed: boolean; reason: string }>("/v1/acls/test", asked).then(setFound, notifyError);
  };
  return (
    <Panel title={t.access.test}>
      <form class="filter-row" onSubmit={test}>
        <TextField label={t.access.principal} value={asked.principal} onChange={set("principal")} isRequired />
        <SelectField label={t.access.action} value={asked.action} onChange={set("action")} choices={ACTIONS} />
        <SelectField label={t.groups.kind} value={asked.kind} onChange={set("kind")} choices={KINDS} />
        <TextField label={t.access.resource} value={asked.name} onChange={set("name")} isRequired />
        <div class="filter-buttons"><Button type="submit">{t.access.testAction}</Button></div>
      </form>
      {found && <Note kind={found.allowed ? "good" : "bad"}><strong>{found.allowed ? t.access.allowed : t.access.denied}</strong> <span>{t.access.reasons[found.reason] ?? found.reason}</span></Note>}
    </Panel>
  );
}

export function RolesTab() {
  const [revision, setRevision] = useState(0);
  const [opened, setOpened] = useState<{ action: "create" | "grant" | "delete"; role?: Role }>();
  const [name, setName] = useState("");
  const [members, setMembers] = useState("");
  const mayChange = mayCluster("alter");
  const done = () => setRevision(revision + 1);
  const close = () => setOpened(undefined);
  const list = () => members.split(",").map((one) => one.trim()).filter(Boolean);
  const submit = async () => {
    const role = part(opened?.role?.name ?? "");
    if (opened?.action === "create") await post("/v1/roles", { name, members: list() });
    else if (opened?.action === "grant") await post(`/v1/roles/${role}/grant`, { members: list() });
    else await call("DELETE", `/v1/roles/${role}`);
    done();
  };
  const revoke = (role: Role, member: string) => post(`/v1/roles/${part(role.name)}/revoke`, { members: [member] }).then(done, notifyError);
  return (
    <>
      <ServerList<Role>
        label={t.access.tabs["roles"] ?? ""}
        revision={revision}
        keyOf={(role) => role.name}
        actions={mayChange && <Button kind="primary" icon="plus" onClick={() => setOpened({ action: "create" })}>{t.access.createRole}</Button>}
        load={(query, signal) => getRows<Role>("roles", "/v1/roles", query, signal)}
        empty={{ title: t.access.noRoles, icon: "access" }}
        columns={[
          { id: "name", title: t.access.role, cell: (role) => <Marked text={role.name} /> },
          { id: "members", title: t.groups.members, isWide: true, cell: (role) => role.members.map((member) => <span key={member} class="chip"><Marked text={member} />{mayChange && <button type="button" class="plain" aria-label={t.access.revoke(member)} onClick={() => void revoke(role, member)}>×</button>}</span>) },
          { id: "act", title: "", cell: (role) => mayChange && <div class="actions"><Button icon="plus" onClick={() => setOpened({ action: "grant", role })}>{t.access.grant}</Button><Button icon="trash" kind="danger-quiet" aria-label={`${t.delete} ${role.name}`} onClick={() => setOpened({ action: "delete", role })} /></div> },
        ]}
      />
      {opened && (
        <FormDialog title={t.access.roleTitles[opened.action] ?? ""} action={t.access.roleTitles[opened.action] ?? ""} onClose={close} onSubmit={submit} isDangerous={opened.action === "delete"} typed={opened.action === "delete" ? opened.role?.name : undefined}>
          {opened.action === "create" && <TextField label={t.access.role} name="name" value={name} onChange={setName} isRequired />}
          {opened.action !== "delete" && <TextField label={t.groups.members} name="members" value={members} onChange={setMembers} hint={t.access.membersHint} />}
        </FormDialog>
      )}
    </>
  );
}
