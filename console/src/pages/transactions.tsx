/** Transactions of all front ends: which are open, since when, and where; abort. */

import { useState } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { get, getRows, part, post } from "../api/client";
import type { Transaction } from "../api/types";
import { Badge, Button, Definitions, PageHead, Shown } from "../parts/basics";
import { Dialog, FormDialog } from "../parts/dialog";
import { Copyable, Count, Duration, Time } from "../parts/numbers";
import { ServerList } from "../parts/table";
import { Marked } from "../parts/text";
import { notify } from "../parts/toasts";
import { page } from "../state/address";
import { useLoad } from "../state/load";
import { useMay } from "../state/person";
import { t } from "../texts";

const OPEN = ["ongoing", "prepared"];
/** The choice that shows ended transactions too. */
const ALL = "all";

export function TransactionsPage() {
  const { params } = useRoute();
  const { route } = useLocation();
  const [revision, setRevision] = useState(0);
  return (
    <>
      <PageHead title={t.nav.pages.transactions} />
      <ServerList<Transaction>
        label={t.nav.pages.transactions}
        revision={revision}
        everyMs={4000}
        search="prefix"
        filters={[{ name: "state", label: t.groups.state, choices: t.transactions.states }, { name: "older_than_ms", label: t.transactions.older, choices: t.transactions.ages }]}
        keyOf={(row) => row.id}
        onOpen={(row) => route(page("transactions", row.id))}
        load={(query, signal) => getRows<Transaction>("transactions", "/v1/transactions", { ...query, state: query["state"] === ALL ? "" : query["state"], open: !query["state"] }, signal)}
        empty={{ title: t.transactions.none, text: t.transactions.noneText, icon: "transaction" }}
        columns={[
          { id: "id", title: t.transactions.id, isWide: true, cell: (row) => <a href={page("transactions", row.id)}><Marked text={row.transactional_id} /></a> },
          { id: "state", title: t.groups.state, cell: (row) => <Badge text={row.state} /> },
          { id: "producer", title: t.transactions.producer, isNumber: true, cell: (row) => <Copyable text={String(row.producer_id)} /> },
          { id: "epoch", title: t.group.epoch, isNumber: true, cell: (row) => <Count value={row.producer_epoch} /> },
          { id: "open", title: t.transactions.open, isNumber: true, cell: (row) => (row.started_at !== null && OPEN.includes(row.state) ? <Duration ms={Date.now() - row.started_at} /> : "–") },
          { id: "updated", title: t.transactions.updated, cell: (row) => <Time ms={row.updated_at} /> },
          { id: "parts", title: t.topics.partitions, isNumber: true, cell: (row) => <Count value={row.participants.length} /> },
        ]}
      />
      {params["id"] && <OneTransaction id={params["id"]} onClose={() => route(page("transactions"))} onDone={() => setRevision(revision + 1)} />}
    </>
  );
}

function OneTransaction({ id, onClose, onDone }: { id: string; onClose: () => void; onDone: () => void }) {
  const [isAborting, setAborting] = useState(false);
  const loaded = useLoad((signal) => get<Transaction>(`/v1/transactions/${part(id)}`, {}, signal), [id], 4000);
  const may = useMay("transactional_id", loaded.data?.transactional_id ?? "");
  const abort = async () => {
    await post(`/v1/transactions/${part(id)}/abort`);
    notify(t.transactions.aborted);
    loaded.reload();
    onDone();
  };
  return (
    <Dialog title={t.transactions.one} onClose={onClose} kind="drawer">
      <Shown of={loaded}>
        {(found) => (
          <>
            <Definitions
              of={[
                [t.transactions.id, <Copyable text={found.transactional_id}><Marked text={found.transactional_id} /></Copyable>],
                [t.message.id, <Copyable text={found.id} />],
                [t.groups.state, <Badge text={found.state} />],
                [t.transactions.begun, <Time ms={found.started_at} />],
                [t.transactions.timeout, <Duration ms={found.timeout_ms} />],
                [t.topics.partitions, <>{found.participants.map((one) => <div key={`${one.topic}/${one.partition}`}><a href={`${page("topics", one.topic)}?partition=${one.partition}`}>{one.topic}/{one.partition}</a></div>)}</>],
              ]}
            />
            {OPEN.includes(found.state) && may("write") && <div class="drawer-body"><Button kind="danger" onClick={() => setAborting(true)}>{t.transactions.abort}</Button></div>}
            {isAborting && (
              <FormDialog title={t.transactions.abort} action={t.transactions.abort} onClose={() => setAborting(false)} onSubmit={abort} isDangerous>
                <p>{t.transactions.abortText}</p>
              </FormDialog>
            )}
          </>
        )}
      </Shown>
    </Dialog>
  );
}
