/** The navigation: only pages that the person may see. */

import { useLocation } from "preact-iso";
import { get, signOut, credentials } from "../api/client";
import type { Cluster, Version } from "../api/types";
import { useLoad } from "../state/load";
import { mayCluster, person } from "../state/person";
import { isDark, switchTheme } from "../state/theme";
import { t } from "../texts";
import { useCurrentInSight } from "./basics";
import { Icon } from "./icons";
import { visiblePages } from "./navigation";
import { openPalette } from "./palette";
import { openHelp } from "./shortcuts";

export function Sidebar() {
  const { path } = useLocation();
  const links = useCurrentInSight(path);
  const maySeeCluster = mayCluster("describe");
  const { data } = useLoad(async (signal) => ({ version: await get<Version>("/version", {}, signal), cluster: maySeeCluster ? await get<Cluster>("/v1/admin/cluster", {}, signal).catch(() => null) : null }), [maySeeCluster]);
  return (
    <aside class="sidebar">
      <a class="brand" href="/console/overview" aria-label="GoQueue">
        <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M8 10h16M8 16h10M8 22h16" /><circle cx="23.500" cy="16" r="2.300" /></svg>
        <span>GoQueue</span>
      </a>
      <button type="button" class="palette-open" onClick={openPalette}>
        <Icon name="search" /><span>{t.palette.open}</span><kbd>Ctrl K</kbd>
      </button>
      <nav aria-label={t.nav.label} ref={links}>
        {visiblePages().map((one) => (
          <a key={one.id} href={one.href} aria-current={path === one.href || path.startsWith(`${one.href}/`) ? "page" : undefined}>
            <Icon name={one.icon} />{one.title}
          </a>
        ))}
      </nav>
      <div class="sidebar-foot">
        {data && (
          <p class="muted" title={data.version.cluster_id}>
            {data.cluster ? `${t.nav.node(data.cluster.answered_by)} · ` : ""}{data.version.version}
          </p>
        )}
        <p class="who" title={person.value?.principal}><Icon name="user" /><bdi>{(person.value?.principal ?? "").replace(/^User:/, "")}</bdi></p>
        <div class="foot-buttons">
          <button type="button" class="plain" onClick={switchTheme} title={t.theme(isDark.value)} aria-label={t.theme(isDark.value)}><Icon name={isDark.value ? "sun" : "moon"} /></button>
          <button type="button" class="plain" onClick={openHelp} title={t.shortcuts.title} aria-label={t.shortcuts.title}><Icon name="keyboard" /></button>
          <a class="plain" href="/docs" target="_blank" rel="noreferrer">{t.nav.api}</a>
          {credentials.value && <button type="button" class="plain" onClick={signOut}>{t.signIn.out}</button>}
        </div>
      </div>
    </aside>
  );
}
