/** Tables, and lists that the server pages, sorts and filters. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Query } from "../api/client";
import type { PageInfo } from "../api/types";
import * as format from "../format";
import { useAddress } from "../state/address";
import { useLoad } from "../state/load";
import { usePrevious } from "../state/paging";
import { t } from "../texts";
import { Button, Empty, ErrorNote, Missing, Skeleton } from "./basics";
import { Select } from "./fields";
import { Icon, type IconName } from "./icons";
import { InTable } from "./numbers";
import { Marked } from "./text";

export interface Column<Row> {
  id: string;
  title: string;
  cell: (row: Row) => ComponentChildren;
  isNumber?: boolean;
  isSortable?: boolean;
  isWide?: boolean;
}

export interface Sorting {
  by: string;
  order: string;
  onSort: (by: string) => void;
}

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
  sorting?: Sorting;
  isOld?: boolean;
  onOpen?: (row: Row) => void;
  isChosen?: (row: Row) => boolean;
}

export function Table<Row>({ label, columns, rows, keyOf, sorting, isOld, onOpen, isChosen }: TableProps<Row>) {
  return (
    <div class={isOld ? "table-frame old" : "table-frame"} role="region" aria-label={label} tabIndex={0} onKeyDown={moveFocus}>
      <table>
        <thead>
          <tr>{columns.map((column) => <Head key={column.id} column={column} sorting={sorting} />)}</tr>
        </thead>
        <InTable.Provider value={true}>
          <tbody>
            {rows.map((row) => (
              <tr key={keyOf(row)} class={`${onOpen ? "opens" : ""} ${isChosen?.(row) ? "chosen" : ""}`} onClick={onOpen && ((event) => isControl(event) || onOpen(row))}>
                {columns.map((column) => <td key={column.id} class={`${column.isNumber ? "numeric" : ""} ${column.isWide ? "wide" : ""}`}>{column.cell(row)}</td>)}
              </tr>
            ))}
          </tbody>
        </InTable.Provider>
      </table>
    </div>
  );
}

function isControl(event: Event): boolean {
  return event.target instanceof Element && event.target.closest("a, button, input, select, label") !== null;
}

function Head<Row>({ column, sorting }: { column: Column<Row>; sorting?: Sorting }) {
  const isSorted = sorting?.by === column.id;
  const direction = isSorted ? (sorting.order === "desc" ? "descending" : "ascending") : undefined;
  return (
    <th scope="col" class={column.isNumber ? "numeric" : ""} aria-sort={direction}>
      {sorting && column.isSortable ? (
        <button type="button" class="sort" onClick={() => sorting.onSort(column.id)}>
          {column.title}<span aria-hidden="true">{isSorted ? (sorting.order === "desc" ? " ↓" : " ↑") : ""}</span>
        </button>
      ) : (
        <Marked text={column.title} />
      )}
    </th>
  );
}

const IN_ROW = "a, button, input, select";

/** Up and down go from row to row, along the first link or button of each; left and right go through a row. */
function moveFocus(event: KeyboardEvent): void {
  const down = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const right = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if ((!down && !right) || (event.target instanceof Element && event.target.closest("input, select") !== null)) return;
  const frame = event.currentTarget as HTMLElement;
  const rows = [...frame.querySelectorAll<HTMLElement>("tbody tr")];
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const target = down ? rows[now + down]?.querySelector<HTMLElement>("a, button.open") : inRow(rows[now], right);
  if (!target) return;
  event.preventDefault();
  target.focus();
}

function inRow(row: HTMLElement | undefined, step: number): HTMLElement | undefined {
  const stops = [...(row?.querySelectorAll<HTMLElement>(IN_ROW) ?? [])];
  return stops[stops.indexOf(document.activeElement as HTMLElement) + step];
}

type ListPage<Row> = PageInfo & { rows: Row[] };

export interface ListFilter {
  name: string;
  label: string;
  choices?: readonly (string | [string, string])[];
  placeholder?: string;
}

interface ServerListProps<Row> {
  label: string;
  columns: Column<Row>[];
  keyOf: (row: Row) => string;
  load: (query: Query, signal: AbortSignal) => Promise<ListPage<Row>>;
  /** The text filter, as the parameter that the server calls it. */
  search?: string;
  filters?: ListFilter[];
  sort?: string;
  order?: "asc" | "desc";
  everyMs?: number;
  empty: { title: string; text?: ComponentChildren; icon?: IconName };
  actions?: ComponentChildren;
  revision?: unknown;
  onOpen?: (row: Row) => void;
}

const LIMITS = ["25", "50", "100", "250"];

export function ServerList<Row>(props: ServerListProps<Row>) {
  const address = useAddress();
  const names = [props.search ?? "", ...(props.filters ?? []).map((filter) => filter.name)].filter(Boolean);
  const query: Query = { limit: address.value("limit", "50"), cursor: address.value("cursor") };
  if (props.sort) Object.assign(query, { sort: address.value("sort", props.sort), order: address.value("order", props.order ?? "asc") });
  for (const name of names) query[name] = address.value(name);
  const loaded = useLoad((signal) => props.load(query, signal), [JSON.stringify(query), props.revision], props.everyMs ?? 10000);
  const isFiltered = names.some((name) => address.value(name));
  const sorting = props.sort
    ? { by: String(query["sort"]), order: String(query["order"]), onSort: (by: string) => address.change({ sort: by, order: by === query["sort"] && query["order"] === "asc" ? "desc" : by === query["sort"] ? "asc" : by === "name" ? "asc" : "desc", cursor: null }) }
    : undefined;
  const page = loaded.data;
  const clear = <Button kind="quiet" onClick={() => address.change(Object.fromEntries([...names, "cursor"].map((name) => [name, null])))}>{t.list.clear}</Button>;
  return (
    <>
      <div class="toolbar" role="search">
        {props.search && <SearchBox value={address.value(props.search)} label={t.list.search(props.label)} onChange={(text) => address.change({ [props.search as string]: text, cursor: null }, true)} />}
        {(props.filters ?? []).map((filter) => <ListFilterBox key={filter.name} filter={filter} />)}
        {isFiltered && page !== undefined && page.rows.length > 0 && clear}
        <span class="spacer" />
        {props.actions}
        <Button icon="refresh" kind="quiet" title={t.refresh} aria-label={t.refresh} onClick={loaded.reload} />
      </div>
      {loaded.error && <ErrorNote error={loaded.error} onRetry={loaded.reload} />}
      <Missing nodes={page?.missing_nodes} />
      {!page ? (
        !loaded.error && <Skeleton lines={10} />
      ) : page.rows.length === 0 ? (
        query["cursor"] ? <Empty title={t.list.noMore} icon={props.empty.icon} /> : isFiltered ? <Empty title={t.list.noMatch} icon="search">{clear}</Empty> : <Empty title={props.empty.title} icon={props.empty.icon}>{props.empty.text}</Empty>
      ) : (
        <Table label={props.label} columns={props.columns} rows={page.rows} keyOf={props.keyOf} sorting={sorting} isOld={loaded.error !== undefined} onOpen={props.onOpen} />
      )}
      {page && (page.rows.length > 0 || address.value("cursor")) && <Pager page={page} />}
    </>
  );
}

function Pager<Row>({ page }: { page: ListPage<Row> }) {
  const address = useAddress();
  const previous = usePrevious(address, page.cursor);
  return (
    <nav class="pager" aria-label={t.list.pages}>
      <span class="muted">{page.total === undefined ? format.plural(page.rows.length, t.list.row, t.list.rows) : t.list.of(format.count(page.rows.length), format.count(page.total))}</span>
      <span class="spacer" />
      <label class="inline">{t.list.perPage} <Select value={address.value("limit", "50")} choices={LIMITS} onChange={(limit) => address.change({ limit, cursor: null })} /></label>
      {address.value("cursor") && <a class="button" href={address.with({ cursor: null })}>{t.list.first}</a>}
      {address.value("cursor") && previous !== undefined && <a class="button" rel="prev" href={address.with({ cursor: previous || null })}>{t.list.previous}</a>}
      {page.cursor ? <a class="button" rel="next" href={address.with({ cursor: page.cursor })}>{t.list.next} <Icon name="right" /></a> : null}
    </nav>
  );
}

const TYPING_MS = 250;

/** `isNamed`: the label is seen when a text hides the placeholder. */
export function SearchBox({ value, label, onChange, placeholder, isNamed }: { value: string; label: string; onChange: (text: string) => void; placeholder?: string; isNamed?: boolean }) {
  const [text, setText] = useState(value);
  const latest = useRef(onChange);
  latest.current = onChange; // of now and not of when the typing began, since then more may have changed
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = window.setTimeout(() => latest.current(text), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [text]);
  return (
    <div class="search">
      <Icon name="search" />
      {isNamed && text !== "" && <span class="search-name" aria-hidden="true">{label}</span>}
      <input type="search" aria-label={label} placeholder={placeholder ?? label} value={text} data-search="" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
    </div>
  );
}

function ListFilterBox({ filter }: { filter: ListFilter }) {
  const address = useAddress();
  const value = address.value(filter.name);
  const change = (text: string) => address.change({ [filter.name]: text, cursor: null }, true);
  if (filter.choices) return <label class="inline"><span class="sr">{filter.label}</span><Select label={filter.label} value={value} choices={filter.choices} onChange={change} /></label>;
  return <SearchBox value={value} label={filter.label} placeholder={filter.placeholder ?? filter.label} onChange={change} isNamed />;
}
