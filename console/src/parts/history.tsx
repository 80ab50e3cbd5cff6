/** Plots of rates of the last minutes or hours. */

import { type Query } from "../api/client";
import type { History } from "../api/types";
import { useAddress } from "../state/address";
import { useHistory } from "../state/history";
import { spanOf } from "../state/spans";
import { t } from "../texts";
import { ErrorNote, Missing, Skeleton } from "./basics";
import { Select } from "./fields";
import { Plot, type Unit } from "./plot";

export interface PlotOf {
  title: string;
  series: string[];
  unit?: Unit;
  isBytes?: boolean;
}

const SPANS: [string, string][] = [["15m", t.history.m15], ["1h", t.history.h1], ["6h", t.history.h6]];

export function HistoryPlots({ plots, selector = {} }: { plots: PlotOf[]; selector?: Query }) {
  const address = useAddress();
  const span = spanOf(address.value("span"));
  const loaded = useHistory(span, selector);
  return (
    <section aria-label={t.history.title}>
      <div class="toolbar">
        <h2>{t.history.title}</h2>
        <span class="spacer" />
        <Select label={t.history.span} value={span} choices={SPANS} onChange={(value) => address.change({ span: value }, true)} />
      </div>
      {loaded.error && <ErrorNote error={loaded.error} onRetry={loaded.reload} />}
      {!loaded.data && !loaded.error && <Skeleton lines={4} />}
      <Missing nodes={loaded.data?.missing_nodes} />
      {loaded.data && (isEmpty(loaded.data, plots) ? <p class="muted">{t.history.none}</p> : <div class="plots">{plots.map((plot) => <OnePlot key={plot.title} plot={plot} history={loaded.data as History} />)}</div>)}
    </section>
  );
}

/** Whether no plot has a value: what is new is recorded up to a minute later. */
function isEmpty({ series }: History, plots: PlotOf[]): boolean {
  return plots.every((plot) => plot.series.every((name) => (series[name] ?? []).every((value) => value === null)));
}

function OnePlot({ plot, history }: { plot: PlotOf; history: History }) {
  const series = plot.series.map((name) => ({ name, title: t.series[name] ?? name, values: history.series[name] ?? history.times.map(() => null) }));
  return <div class="panel"><Plot title={plot.title} times={history.times} series={series} unit={plot.unit} isBytes={plot.isBytes} /></div>;
}
