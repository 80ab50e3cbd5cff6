/** Users, keys, rules, roles, quotas, tenants and the audit log, as far as the person may see them. */

import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import { Button, Definitions, PageHead, Panel, Tabs } from "../parts/basics";
import { Copyable, Time } from "../parts/numbers";
import { page } from "../state/address";
import { access, isOperator, mayCluster, person } from "../state/person";
import { t } from "../texts";
import { AuditTab } from "./access/audit";
import { QuotasTab } from "./access/quotas";
import { AclsTab, RolesTab } from "./access/rules";
import { TenantsTab } from "./access/tenants";
import { KeysTab, Password, UsersTab } from "./access/users";

export function AccessPage() {
  const { params } = useRoute();
  const tab = params["tab"] || "me";
  const tabs = ["me", "keys", ...(mayCluster("describe") ? ["users", "acls", "roles"] : []), ...(mayCluster("describe_configs") && isOperator() ? ["quotas"] : []), ...(mayCluster("describe") && isOperator() ? ["tenants"] : []), ...(mayCluster("describe") ? ["audit"] : [])];
  const name = (person.value?.principal ?? "").replace(/^User:/, "");
  return (
    <>
      <PageHead title={t.nav.pages.access} />
      <Tabs label={t.nav.pages.access} now={tab} tabs={tabs.map((id) => ({ id, title: t.access.tabs[id] ?? id, href: id === "me" ? page("access") : page("access", id) }))} />
      {tab === "me" && <Me />}
      {tab === "keys" && <KeysTab user={name} />}
      {tab === "users" && <UsersTab />}
      {tab === "acls" && <AclsTab />}
      {tab === "roles" && <RolesTab />}
      {tab === "quotas" && <QuotasTab />}
      {tab === "tenants" && <TenantsTab />}
      {tab === "audit" && <AuditTab />}
    </>
  );
}

/** How a person signs in by password: keys, certificates and tokens cannot change one. */
const BY_PASSWORD = ["PASSWORD", "SCRAM"];

function Me() {
  const [isChanging, setChanging] = useState(false);
  const me = person.value;
  const rights = access.value;
  if (!me || !rights) return null;
  const user = me.principal.replace(/^User:/, "");
  const mayPassword = me.authenticated && me.key === null && BY_PASSWORD.some((one) => me.mechanism.toUpperCase().startsWith(one));
  const list = (actions: string[] | undefined) => (rights.enforced ? actions?.join(", ") || t.access.nothing : t.access.everything);
  return (
    <>
      <Panel title={t.access.whoami} actions={mayPassword && <Button onClick={() => setChanging(true)}>{t.access.ownPassword}</Button>}>
        <Definitions
          of={[
            [t.access.principal, <Copyable text={me.principal} />],
            [t.access.tenant, me.tenant || "–"],
            [t.access.mechanism, me.mechanism || "–"],
            [t.access.superUser, me.super_user ? t.yes : t.no],
            [t.access.expires, <Time ms={me.expires_at} />],
          ]}
        />
      </Panel>
      {isChanging && <Password user={user} isOwn onClose={() => setChanging(false)} />}
      <Panel title={t.access.rights}>
        {!rights.enforced && <p>{t.access.notEnforced}</p>}
        <Definitions of={[[t.access.cluster, list(rights.cluster)], ...Object.entries(rights.any).map(([kind, actions]): [string, string] => [t.access.kinds[kind] ?? kind, list(actions)])]} />
      </Panel>
    </>
  );
}
