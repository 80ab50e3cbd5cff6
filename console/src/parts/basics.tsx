/** The small parts of all pages: headings, notes, badges, tabs, tiles. */

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Problem } from "../api/client";
import type { Loaded } from "../state/load";
import { t } from "../texts";
import { Icon, type IconName } from "./icons";
import { Marked } from "./text";

export interface Crumb {
  title: string;
  href: string;
}

export function PageHead({ title, crumbs = [], note, children }: { title: string; crumbs?: Crumb[]; note?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · GoQueue`;
  }, [title]);
  return (
    <header class="page-head">
      <div>
        {crumbs.length > 0 && (
          <nav class="crumbs" aria-label={t.breadcrumbs}>
            {crumbs.map((crumb) => <a key={crumb.href} href={crumb.href}>{crumb.title}</a>)}
          </nav>
        )}
        <h1><Marked text={title} /></h1>
        {note && <p class="muted">{note}</p>}
      </div>
      <div class="actions">{children}</div>
    </header>
  );
}

export function Button({ icon, children, kind = "", ...rest }: { icon?: IconName; children?: ComponentChildren; kind?: string; onClick?: (event: MouseEvent) => void; disabled?: boolean; title?: string; type?: "button" | "submit"; "aria-label"?: string; "aria-pressed"?: boolean }) {
  return (
    <button type="button" class={`button ${kind}`} {...rest}>
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

const TONES: Record<string, string> = {
  ok: "good", running: "good", stable: "good", active: "good", done: "good", consumed: "good", acknowledged: "good", committed: "good", complete_commit: "good", allow: "good", allowed: "good", success: "good",
  degraded: "warn", draining: "warn", stopping: "warn", retrying: "warn", paused: "warn", preparing_rebalance: "warn", completing_rebalance: "warn", assigning: "warn", reconciling: "warn", prepared: "warn", prepare_abort: "warn", prepare_commit: "warn", parked: "warn", read_only: "warn", expired: "warn", returned: "warn", ongoing: "warn", leased: "warn", pending: "warn",
  down: "bad", fenced: "bad", dead: "bad", failed: "bad", dead_lettering: "bad", dead_lettered: "bad", suspended: "bad", deleting: "bad", deny: "bad", denied: "bad", failure: "bad", disabled: "bad", removed: "bad",
};

export function Badge({ text }: { text: string }) {
  const words = text.replace(/([a-z])([A-Z])/g, "$1_$2").toLowerCase();
  return <span class={`badge ${TONES[words] ?? ""}`}>{words.replaceAll("_", " ")}</span>;
}

/** The kind of a group as people know it: a queue group with members is a share group. */
export function GroupKind({ of }: { of: { kind: string; share?: boolean } }) {
  const kind = of.share ? "share" : of.kind;
  return <span class={`kind ${kind}`}>{kind}</span>;
}

/** What went wrong, and a way on. */
export function ErrorNote({ error, onRetry }: { error: Error; onRetry?: () => void }) {
  const status = error instanceof Problem ? error.status : 0;
  const title = status === 404 ? t.errors.notFound : status === 403 ? t.errors.forbidden : status === 503 ? t.errors.busy : error instanceof Problem && status === 0 ? t.errors.offlineTitle : t.errors.title;
  return (
    <div class="note bad" role="alert">
      <Icon name="warning" />
      <div>
        <strong>{title}</strong>
        <p>{error.message}</p>
      </div>
      {onRetry && <Button icon="refresh" onClick={onRetry}>{t.retry}</Button>}
    </div>
  );
}

export function isNotFound(error?: Error): error is Problem {
  return error instanceof Problem && error.status === 404;
}

/** The page of what does not exist: nothing can be done with it. */
export function NotFound({ title, list, error, onRetry }: { title: string; list: Crumb; error: Error; onRetry: () => void }) {
  return (
    <>
      <PageHead title={title} crumbs={[list]} />
      <ErrorNote error={error} onRetry={onRetry} />
    </>
  );
}

export function Note({ children, kind = "" }: { children: ComponentChildren; kind?: string }) {
  return <div class={`note ${kind}`}><div>{children}</div></div>;
}

/** Which nodes' part is not in what is shown. */
export function Missing({ nodes = [] }: { nodes?: number[] }) {
  return nodes.length > 0 ? <Note kind="warn">{t.list.missing(nodes)}</Note> : null;
}

export function Empty({ title, children, icon = "topics" }: { title: string; children?: ComponentChildren; icon?: IconName }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

export function Skeleton({ lines = 6 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label={t.loading}>
      {Array.from({ length: lines }, (_unused, line) => <div key={line} />)}
    </div>
  );
}

/** Shows loaded data; before that a skeleton, and an error beside data that is still known. */
export function Shown<T>({ of, children, lines }: { of: Loaded<T>; children: (data: T) => ComponentChildren; lines?: number }) {
  return (
    <>
      {of.error && <ErrorNote error={of.error} onRetry={of.reload} />}
      {of.data !== undefined ? children(of.data) : !of.error && <Skeleton lines={lines} />}
    </>
  );
}

export interface Tab {
  id: string;
  title: string;
  href: string;
}

/** Keep the link to this page in sight, where a window is narrower than its links; again when the state is another. */
export function useCurrentInSight(state: string): RefObject<HTMLElement | null> {
  const links = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const current = links.current?.querySelector("[aria-current]");
    if (!links.current || !current) return;
    const frame = links.current.getBoundingClientRect();
    const link = current.getBoundingClientRect();
    links.current.scrollLeft += link.left + link.width / 2 - (frame.left + frame.width / 2);
  }, [state]);
  return links;
}

export function Tabs({ tabs, now, label }: { tabs: Tab[]; now: string; label: string }) {
  const links = useCurrentInSight(tabs.map((tab) => (tab.id === now ? `[${tab.id}]` : tab.id)).join());
  return (
    <nav class="tabs" aria-label={label} ref={links}>
      {tabs.map((tab) => (
        <a key={tab.id} href={tab.href} aria-current={tab.id === now ? "page" : undefined}>{tab.title}</a>
      ))}
    </nav>
  );
}

export function Tile({ title, children, href, tone = "", isBroad }: { title: string; children: ComponentChildren; href?: string; tone?: string; isBroad?: boolean }) {
  return (
    <div class={`tile ${tone} ${isBroad ? "broad" : ""}`}>
      <span class="tile-title">{href ? <a href={href}>{title}</a> : <Marked text={title} />}</span>
      <span class="tile-value">{children}</span>
    </div>
  );
}

export function Panel({ title, children, actions }: { title?: string; children: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <section class="panel" aria-label={title}>
      {title && <div class="panel-head"><h2><Marked text={title} /></h2><div class="actions">{actions}</div></div>}
      {children}
    </section>
  );
}

export function Definitions({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="definitions">
      {of.map(([name, value], at) => <div key={`${at} ${name}`}><dt><Marked text={name} /></dt><dd>{value}</dd></div>)}
    </dl>
  );
}
