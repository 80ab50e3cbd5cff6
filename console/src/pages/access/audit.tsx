/** The audit log: who did what, from where, and whether it was allowed. */

import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { write } from "../../api/json";
import { Badge } from "../../parts/basics";
import { Dialog } from "../../parts/dialog";
import * as format from "../../format";
import { ServerList } from "../../parts/table";
import { Content, Marked } from "../../parts/text";
import { t } from "../../texts";

interface AuditEvent {
  time: number;
  activity_name?: string;
  status?: string;
  status_detail?: string;
  actor?: { user?: { name?: string; uid?: string } };
  src_endpoint?: { ip?: string };
  api?: { operation?: string; service?: { name?: string } };
  resources?: { type: string; name: string }[];
  metadata?: { uid?: string };
  unmapped?: { action?: string; outcome?: string };
}

export function AuditTab() {
  const [opened, setOpened] = useState<AuditEvent>();
  return (
    <>
      <ServerList<AuditEvent>
        label={t.access.tabs["audit"] ?? ""}
        keyOf={(event) => event.metadata?.uid ?? write(event)}
        onOpen={setOpened}
        filters={[
          { name: "from", label: t.dead.from, placeholder: t.dead.fromHint },
          { name: "user", label: t.access.user },
          { name: "operation", label: t.access.operation },
          { name: "resource", label: t.access.resource },
          { name: "outcome", label: t.access.outcome, choices: t.access.outcomes },
        ]}
        load={async (query, signal) => {
          const { events, cursor, end } = await get<{ events: AuditEvent[]; cursor: string; end: boolean }>("/v1/audit", query, signal);
          const isNewest = !query["from"] && !query["cursor"];
          return { rows: isNewest ? events.sort((one, other) => other.time - one.time) : events, cursor: end ? "" : cursor };
        }}
        empty={{ title: t.access.noAudit, text: t.access.noAuditText, icon: "access" }}
        columns={[
          { id: "time", title: t.messages.time, cell: (event) => <button type="button" class="open link number" onClick={() => setOpened(event)}>{format.time(event.time)}</button> },
          { id: "outcome", title: t.access.outcome, cell: (event) => <Badge text={event.unmapped?.outcome ?? event.status ?? ""} /> },
          { id: "user", title: t.access.user, cell: (event) => <Marked text={event.actor?.user?.name ?? "–"} /> },
          { id: "operation", title: t.access.operation, cell: (event) => event.api?.operation ?? event.activity_name ?? "–" },
          { id: "resource", title: t.access.resource, isWide: true, cell: (event) => <Marked text={(event.resources ?? []).map((one) => `${one.type} ${one.name}`).join(", ")} /> },
          { id: "from", title: t.access.address, cell: (event) => <span class="number">{event.src_endpoint?.ip ?? "–"} {event.api?.service?.name ?? ""}</span> },
        ]}
      />
      {opened && <Dialog title={t.access.event} onClose={() => setOpened(undefined)} kind="drawer"><div class="drawer-body"><Content text={write(opened)} isJson label={t.access.event} /></div></Dialog>}
    </>
  );
}
