/** Users and their API and access keys. */

import { useState } from "preact/hooks";
import { basic, call, get, getRows, part, post, signIn } from "../../api/client";
import type { Key, User } from "../../api/types";
import { Badge, Button, Empty, Note, Shown } from "../../parts/basics";
import { Dialog, FormDialog } from "../../parts/dialog";
import { SelectField, TextField } from "../../parts/fields";
import { copyText, Copyable, Count, Time } from "../../parts/numbers";
import { ServerList, Table } from "../../parts/table";
import { Marked } from "../../parts/text";
import { notify, notifyError } from "../../parts/toasts";
import { page, useAddress } from "../../state/address";
import { useLoad } from "../../state/load";
import { mayCluster, person } from "../../state/person";
import { t } from "../../texts";

const DAY_MS = 86400000;
/** More than anybody keeps; the rest is named, and found over the API. */
const KEYS_MAX = 500;

export function UsersTab() {
  const address = useAddress();
  const [revision, setRevision] = useState(0);
  const [opened, setOpened] = useState<{ action: "create" | "password" | "delete"; user?: User }>();
  const mayChange = mayCluster("alter");
  const done = () => setRevision(revision + 1);
  const close = () => setOpened(undefined);
  const disable = (user: User) => call("PATCH", `/v1/users/${part(user.name)}`, { body: { disabled: !user.disabled } }).then(done, notifyError);
  const remove = async () => {
    await call("DELETE", `/v1/users/${part(opened?.user?.name ?? "")}`);
    done();
  };
  const shown = address.value("user");
  return (
    <>
      <ServerList<User>
        label={t.access.tabs["users"] ?? ""}
        revision={revision}
        search="prefix"
        keyOf={(user) => user.name}
        actions={mayChange && <Button kind="primary" icon="plus" onClick={() => setOpened({ action: "create" })}>{t.access.createUser}</Button>}
        load={(query, signal) => getRows<User>("users", "/v1/users", query, signal)}
        empty={{ title: t.access.noUsers, icon: "user" }}
        columns={[
          { id: "name", title: t.access.user, isWide: true, cell: (user) => <><a href={`${page("access", "users")}?user=${encodeURIComponent(user.name)}`}><Marked text={user.name} /></a>{user.super_user && <span class="badge accent">{t.access.superUser}</span>}{user.disabled && <Badge text="disabled" />}</> },
          { id: "tenant", title: t.access.tenant, cell: (user) => user.tenant },
          { id: "keys", title: t.access.tabs["keys"] ?? "", isNumber: true, cell: (user) => <Count value={user.keys} /> },
          { id: "mechanisms", title: t.access.mechanism, cell: (user) => (user.mechanisms.length === 0 ? "–" : user.mechanisms.map((one) => <div key={one} class="number">{one}</div>)) },
          { id: "created", title: t.access.created, cell: (user) => <Time ms={user.created_at} /> },
          { id: "act", title: "", cell: (user) => mayChange && <div class="actions"><Button onClick={() => setOpened({ action: "password", user })}>{t.access.password}</Button><Button onClick={() => void disable(user)}>{user.disabled ? t.access.enable : t.access.disable}</Button><Button kind="danger-quiet" icon="trash" aria-label={`${t.delete} ${user.name}`} onClick={() => setOpened({ action: "delete", user })} /></div> },
        ]}
      />
      {shown && <Dialog title={t.access.keysOf(shown)} onClose={() => address.change({ user: null }, true)} kind="drawer"><div class="drawer-body"><KeysTab user={shown} /></div></Dialog>}
      {opened?.action === "create" && <CreateUser onClose={close} onDone={done} />}
      {opened?.action === "password" && opened.user && <Password user={opened.user.name} onClose={close} />}
      {opened?.action === "delete" && <FormDialog title={t.access.deleteUser} action={t.access.deleteUser} onClose={close} onSubmit={remove} isDangerous typed={opened.user?.name}><p>{t.access.deleteUserText}</p></FormDialog>}
    </>
  );
}

function CreateUser({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const create = async () => {
    await post("/v1/users", { name, ...(password && { password }) });
    notify(t.access.userCreated(name));
    onDone();
  };
  return (
    <FormDialog title={t.access.createUser} action={t.create} onClose={onClose} onSubmit={create}>
      <TextField label={t.access.user} name="name" value={name} onChange={setName} isRequired />
      <TextField label={t.signIn.secret} name="password" type="password" value={password} onChange={setPassword} hint={t.access.passwordHint} />
    </FormDialog>
  );
}

/** Who changes the own password stays signed in, with the new one. */
export function Password({ user, isOwn = false, onClose }: { user: string; isOwn?: boolean; onClose: () => void }) {
  const [password, setPassword] = useState("");
  const save = async () => {
    await call("PUT", `/v1/users/${part(user)}/password`, { body: { password } });
    if (isOwn) signIn(basic(user, password));
    notify(t.settings.saved);
  };
  return (
    <FormDialog title={t.access.passwordOf(user)} action={t.access.password} onClose={onClose} onSubmit={save}>
      <TextField label={t.signIn.secret} name="password" type="password" value={password} onChange={setPassword} isRequired />
    </FormDialog>
  );
}

export function KeysTab({ user }: { user: string }) {
  const [opened, setOpened] = useState<{ action: "create" | "delete"; key?: Key }>();
  const [made, setMade] = useState<{ key: Key; secret: string }>();
  const loaded = useLoad((signal) => get<{ keys: Key[]; total: number }>(`/v1/users/${part(user)}/keys`, { limit: KEYS_MAX }, signal), [user]);
  const mayChange = mayCluster("alter") || person.value?.principal === `User:${user}`;
  const close = () => setOpened(undefined);
  const keep = (key: { key: Key; secret: string }) => {
    setMade(key);
    loaded.reload();
  };
  const rotate = (key: Key) => post<{ key: Key; secret: string }>(`/v1/keys/${part(key.id)}/rotate`, { overlap_ms: DAY_MS }).then(keep, notifyError);
  const remove = async () => {
    await call("DELETE", `/v1/keys/${part(opened?.key?.id ?? "")}`);
    loaded.reload();
  };
  if (loaded.error && (loaded.error as { status?: number }).status === 404) return <Empty title={t.access.noKeysHere} icon="access" />;
  return (
    <>
      <div class="toolbar"><span class="spacer" />{mayChange && <Button kind="primary" icon="plus" onClick={() => setOpened({ action: "create" })}>{t.access.createKey}</Button>}</div>
      {made && <Note kind="good"><strong>{t.access.secret}</strong><p><code>{made.key.id}</code></p><p><code>{made.secret}</code> <Button icon="copy" onClick={() => void copyText(made.secret)}>{t.access.copySecret}</Button></p></Note>}
      <Shown of={loaded}>
        {({ keys }) =>
          keys.length === 0 ? <Empty title={t.access.noKeys} icon="access" /> : (
            <Table
              label={t.access.tabs["keys"] ?? ""}
              rows={keys}
              keyOf={(key) => key.id}
              columns={[
                { id: "id", title: t.access.key, cell: (key) => <Copyable text={key.id} /> },
                { id: "kind", title: t.groups.kind, cell: (key) => key.kind },
                { id: "text", title: t.access.description, isWide: true, cell: (key) => <Marked text={key.description} /> },
                { id: "used", title: t.access.used, cell: (key) => <Time ms={key.last_used_at} isRelative /> },
                { id: "ends", title: t.access.expires, cell: (key) => <Time ms={key.expires_at} isRelative /> },
                { id: "act", title: "", cell: (key) => mayChange && <div class="actions"><Button icon="refresh" onClick={() => void rotate(key)}>{t.access.rotate}</Button><Button icon="trash" kind="danger-quiet" aria-label={`${t.delete} ${key.id}`} onClick={() => setOpened({ action: "delete", key })} /></div> },
              ]}
            />
          )
        }
      </Shown>
      {(loaded.data?.total ?? 0) > KEYS_MAX && <p class="muted">{t.list.of(String(KEYS_MAX), String(loaded.data?.total))}</p>}
      {opened?.action === "create" && <CreateKey user={user} onClose={close} onDone={keep} />}
      {opened?.action === "delete" && <FormDialog title={t.access.deleteKey} action={t.access.deleteKey} onClose={close} onSubmit={remove} isDangerous><p>{t.access.deleteKeyText(opened.key?.id ?? "")}</p></FormDialog>}
    </>
  );
}

function CreateKey({ user, onClose, onDone }: { user: string; onClose: () => void; onDone: (key: { key: Key; secret: string }) => void }) {
  const [kind, setKind] = useState("api");
  const [description, setDescription] = useState("");
  const [days, setDays] = useState("90");
  const create = async () => onDone(await post(`/v1/users/${part(user)}/keys`, { kind, description, ...(days && { ttl_ms: Math.round(Number(days) * DAY_MS) }) }));
  return (
    <FormDialog title={t.access.createKey} action={t.create} onClose={onClose} onSubmit={create}>
      <SelectField label={t.groups.kind} value={kind} onChange={setKind} choices={t.access.keyKinds} />
      <TextField label={t.access.description} name="description" value={description} onChange={setDescription} />
      <TextField label={t.access.days} name="ttl_ms" type="number" value={days} onChange={setDays} />
    </FormDialog>
  );
}

