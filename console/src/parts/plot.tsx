/** Plots over time by uPlot, in the colours of the theme; values under the cursor are shown and read. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import * as format from "../format";
import { isDark } from "../state/theme";
import { t } from "../texts";

export interface Series {
  name: string;
  title: string;
  values: (number | null)[];
}

const COLOURS = ["--plot-1", "--plot-2", "--plot-3", "--plot-4"];
const HEIGHT = 168;
// Steps of an axis of bytes, so that its labels are round in KiB and MiB.
const BINARY_STEPS = Array.from({ length: 50 }, (_unused, power) => 2 ** power);

export type Unit = (value: number) => string;

export function Plot({ title, times, series, unit = format.compact, isBytes = false }: { title: string; times: number[]; series: Series[]; unit?: Unit; isBytes?: boolean }) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [times.map((time) => time / 1000), ...series.map((one) => one.values)] as uPlot.AlignedData;
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const drawn = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        cursor: { points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "time" } },
        padding: [12, 18, 0, 0],
        legend: { live: true },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(high ?? 0, 1) * 1.1] } },
        axes: [{ ...axis, size: 28, values: (_plot, values) => values.map((value) => format.clock(value * 1000).slice(0, 5)) }, { ...axis, size: 72, ...(isBytes && { incrs: BINARY_STEPS }), values: (_plot, values) => values.map((value) => unit(value)) }],
        series: [
          { label: t.time.at, value: (plot, value) => clock(value ?? plot.data[0].at(-1)) },
          ...series.map((one, at) => ({ label: one.title, stroke: colour(COLOURS[at % COLOURS.length] as string), width: 1.75, points: { size: 4, filter: drawnPoints }, value: (plot: uPlot, value: number | null, number: number, index: number | null) => (index === null ? lastOf(plot.data[number] as (number | null)[], unit) : value === null ? "–" : unit(value)) })),
        ],
      },
      data,
      element,
    );
    plot.current = drawn;
    const observer = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      drawn.destroy();
    };
  }, [isDark.value, series.map((one) => one.name).join()]);
  useEffect(() => plot.current?.setData(data), [times.at(-1), times.length]);
  const last = series.map((one) => `${one.title} ${lastOf(one.values, unit)}`).join(", ");
  const span = t.history.between(format.clock(times[0] ?? 0), format.clock(times.at(-1) ?? 0), times.length);
  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      <div ref={frame} role="img" aria-label={`${title}: ${last}; ${span}`} />
    </figure>
  );
}

/** All points where they are far apart; else those that no line would show, between unknown values. */
function drawnPoints(plot: uPlot, number: number, isShown: boolean): number[] | null {
  if (isShown) return null;
  const values = plot.data[number] ?? [];
  return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
}

function clock(seconds: number | undefined): string {
  return seconds === undefined ? "–" : format.clock(seconds * 1000);
}

function lastOf(values: (number | null)[], unit: Unit): string {
  const value = values.findLast((one) => one !== null);
  return value === undefined || value === null ? "–" : unit(value);
}

/** Counts per bucket of time; a click or Enter chooses a bucket. */
export function Bars({ label, from, bucketMs, counts, onChoose, chosen, unit }: { label: string; from: number; bucketMs: number; counts: number[]; onChoose?: (from: number, until: number) => void; chosen?: [from: number, until: number]; unit: string }) {
  const most = Math.max(1, ...counts);
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const all = [...(event.currentTarget as HTMLElement).querySelectorAll("button")];
    all[all.indexOf(document.activeElement as HTMLButtonElement) + step]?.focus();
  };
  return (
    <div class="bars">
      <div class="bars-row" role="group" aria-label={label} onKeyDown={move}>
        {counts.map((amount, at) => {
          const start = from + at * bucketMs;
          const title = `${format.time(start).slice(0, 19)} – ${format.clock(start + bucketMs)}: ${format.count(amount)} ${unit}`;
          const isChosen = chosen !== undefined && start + bucketMs > chosen[0] && start < chosen[1];
          return (
            <button key={at} aria-pressed={isChosen} type="button" tabIndex={at === 0 ? 0 : -1} aria-label={title} title={title} onClick={() => onChoose?.(start, start + bucketMs)}>
              <span style={{ height: amount ? `${Math.max(4, (amount / most) * 100)}%` : "1px" }} />
            </button>
          );
        })}
      </div>
      <div class="bars-axis muted">
        <span>{format.time(from).slice(0, 19)}</span>
        <span>{format.time(from + bucketMs * counts.length).slice(0, 19)}</span>
      </div>
    </div>
  );
}
