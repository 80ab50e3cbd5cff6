/** The frame around all pages: navigation, sign-in, notes, shortcuts. */

import { render } from "preact";
import { useEffect } from "preact/hooks";
import { ErrorBoundary, LocationProvider, Route, Router, useLocation } from "preact-iso";
import { get, offline, signInNeeded, credentials } from "./api/client";
import type { Cluster } from "./api/types";
import { Empty, Skeleton } from "./parts/basics";
import { Sidebar } from "./parts/sidebar";
import { Palette } from "./parts/palette";
import { ShortcutHelp, useShortcuts } from "./parts/shortcuts";
import { Toasts } from "./parts/toasts";
import { AccessPage } from "./pages/access";
import { ClusterPage } from "./pages/cluster";
import { DeadLetterTopicPage, DeadLettersPage } from "./pages/dead-letters";
import { GroupPage } from "./pages/group";
import { GroupsPage } from "./pages/groups";
import { Overview } from "./pages/overview";
import { PipelinesPage } from "./pages/pipelines";
import { ReportPage } from "./pages/reports";
import { SchedulesPage } from "./pages/schedules";
import { SchemaPage, SchemasPage } from "./pages/schemas";
import { SignIn } from "./pages/sign-in";
import { TopicPage } from "./pages/topic";
import { TopicsPage } from "./pages/topics";
import { TransactionsPage } from "./pages/transactions";
import { useLoad } from "./state/load";
import { access, loadPerson } from "./state/person";
import "./state/theme";
import { t } from "./texts";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/pages.css";

const RECHECK_MS = 2000;

function NotFound() {
  return <Empty title={t.errors.noPage}><a href="/console/overview">{t.nav.overview}</a></Empty>;
}

function Home() {
  const { route } = useLocation();
  useEffect(() => route("/console/overview", true), []);
  return null;
}

/** The tabs of pages, by where the address names one. */
const TABS: Record<string, [at: number, tabs: Record<string, string>]> = {
  topics: [3, t.topic.tabs],
  groups: [3, t.group.tabs],
  schemas: [3, t.schemas.tabs],
  cluster: [2, t.cluster.tabs],
  access: [2, t.access.tabs],
  pipelines: [2, t.pipelines.tabs],
};

/** Whether an address can be decoded, and names a tab that exists if it names one. */
function isKnown(path: string): boolean {
  let parts: string[];
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return false;
  }
  const [at, tabs] = TABS[parts[1] ?? ""] ?? [0, {}];
  const tab = at > 0 ? parts[at] : undefined;
  return tab === undefined || Object.hasOwn(tabs, tab);
}

function Pages() {
  if (!isKnown(useLocation().path)) return <NotFound />;
  return (
    <ErrorBoundary>
      <Router>
        <Route path="/" component={Home} />
        <Route path="/console" component={Home} />
        <Route path="/console/overview" component={Overview} />
        <Route path="/console/topics" component={TopicsPage} />
        <Route path="/console/topics/:topic/:tab?" component={TopicPage} />
        <Route path="/console/groups" component={GroupsPage} />
        <Route path="/console/groups/:group/:tab?" component={GroupPage} />
        <Route path="/console/dead-letters" component={DeadLettersPage} />
        <Route path="/console/dead-letters/:topic" component={DeadLetterTopicPage} />
        <Route path="/console/schedules" component={SchedulesPage} />
        <Route path="/console/transactions/:id?" component={TransactionsPage} />
        <Route path="/console/schemas" component={SchemasPage} />
        <Route path="/console/schemas/:subject/:tab?" component={SchemaPage} />
        <Route path="/console/cluster/:tab?" component={ClusterPage} />
        <Route path="/console/access/:tab?" component={AccessPage} />
        <Route path="/console/pipelines/reports/:report" component={ReportPage} />
        <Route path="/console/pipelines/:tab?" component={PipelinesPage} />
        <Route default component={NotFound} />
      </Router>
    </ErrorBoundary>
  );
}

/** While the node does not answer: ask again until it does. */
function OfflineBanner() {
  useEffect(() => {
    if (!offline.value) return;
    const timer = window.setInterval(() => void get<Cluster>("/v1/whoami").catch(() => undefined), RECHECK_MS);
    return () => window.clearInterval(timer);
  }, [offline.value]);
  return offline.value ? <div class="offline" role="alert">{t.errors.offlineBanner}</div> : null;
}

function Frame() {
  useShortcuts();
  const loaded = useLoad(loadPerson, [credentials.value], 60000);
  if (signInNeeded.value) return <SignIn onDone={loaded.reload} />;
  return (
    <>
      <a class="skip" href="#page">{t.skip}</a>
      <OfflineBanner />
      <div class="frame">
        <Sidebar />
        <main id="page" tabIndex={-1}>{access.value ? <Pages /> : <Skeleton />}</main>
      </div>
      <Palette />
      <ShortcutHelp />
    </>
  );
}

function App() {
  return (
    <LocationProvider scope={/^\/(console(\/|$)|$)/}>
      <Frame />
      <Toasts />
    </LocationProvider>
  );
}

const root = document.getElementById("app");
if (root) render(<App />, root);
