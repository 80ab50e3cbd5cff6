/** Messages of a topic as they come from a search or from the end of the log. */

import { useEffect, useRef, useState } from "preact/hooks";
import { events, isAbort, part, Problem, type Query } from "../api/client";
import { parse } from "../api/json";
import type { BrowseDone, Message, Progress } from "../api/types";
import { bytesOf, decode, type Decoded, type DecoderName } from "../decoders/decode";
import { t } from "../texts";
import { MessageFilter } from "./filter";

export interface Row {
  message: Message;
  key: Decoded;
  value: Decoded;
}

export interface Browse {
  rows: Row[];
  phase: string;
  isRunning: boolean;
  progress?: Progress;
  done?: BrowseDone;
  error?: Error;
  /** Left out because they came faster than a person reads. */
  skipped: number;
  /** Seen and not passed by the JavaScript filter. */
  filtered: number;
  /** Not passed by the filter either, but it has seen only the beginning of their values. */
  unjudged: number;
  damaged: number;
  stop: () => void;
  again: () => void;
}

export interface BrowseOptions {
  topic: string;
  query: Query;
  isLive: boolean;
  code: string;
  limit: number;
  keyAs: DecoderName;
  valueAs: DecoderName;
}

/** Rows of a live tail that are kept; older ones go. */
export const LIVE_ROWS_MAX = 500;
const LIVE_PER_S_MAX = 100;
const SHOWN_EVERY_MS = 200;
const BATCH_MAX = 500;
const RETRY_MS = 2000;

type State = Omit<Browse, "stop" | "again">;
const START: State = { rows: [], phase: "looking_up", isRunning: true, skipped: 0, filtered: 0, unjudged: 0, damaged: 0 };

export function useBrowse(options: BrowseOptions): Browse {
  const [state, setState] = useState<State>(START);
  const [turn, setTurn] = useState(0);
  const run = useRef<Run | undefined>(undefined);
  useEffect(() => {
    const now = new Run(options, setState);
    run.current = now;
    setState(START);
    void now.start();
    return () => now.close();
  }, [JSON.stringify(options), turn]);
  return { ...state, stop: () => run.current?.stop(), again: () => setTurn((old) => old + 1) };
}

/** One search or one live tail: from its first request until it is stopped. */
class Run {
  private state: State = { ...START };
  private readonly abort = new AbortController();
  private readonly filter: MessageFilter | undefined;
  private waiting: Message[] = [];
  private timer = 0;
  private isClosed = false;
  private isShowPlanned = false;
  private lastId = "";
  private work: Promise<void> = Promise.resolve();

  constructor(
    private readonly options: BrowseOptions,
    private readonly show: (state: State) => void,
  ) {
    if (options.code) this.filter = new MessageFilter(options.code);
  }

  async start(): Promise<void> {
    this.timer = window.setInterval(() => void this.flush(), SHOWN_EVERY_MS);
    try {
      await (this.options.isLive ? this.tail() : this.search());
    } catch (error) {
      if (!isAbort(error) && !this.isClosed) this.change({ error: error as Error });
    }
    await this.flush();
    window.clearInterval(this.timer);
    this.change({ isRunning: false });
    this.filter?.close();
  }

  stop(): void {
    this.abort.abort();
  }

  close(): void {
    this.isClosed = true;
    this.stop();
    window.clearInterval(this.timer);
    this.filter?.close();
  }

  /** Page after page while the JavaScript filter leaves fewer messages than were asked for. */
  private async search(): Promise<void> {
    let cursor = "";
    do {
      const query = { ...this.options.query, encoding: "base64", ...(cursor && { cursor }) };
      cursor = await this.page(query);
      await this.flush();
    } while (this.filter && cursor && this.state.rows.length < this.options.limit && !this.abort.signal.aborted);
  }

  private async page(query: Query): Promise<string> {
    const path = `/v1/topics/${part(this.options.topic)}/browse`;
    for await (const event of events(path, query, this.abort.signal)) this.take(event.event, event.data);
    return this.state.done?.cursor ?? "";
  }

  /** The end of the log; a lost connection continues where it was. */
  private async tail(): Promise<void> {
    const path = `/v1/topics/${part(this.options.topic)}/stream`;
    const query = { ...this.options.query, encoding: "base64", sample_per_s: LIVE_PER_S_MAX };
    this.change({ phase: "connecting" });
    while (!this.abort.signal.aborted) {
      try {
        for await (const event of events(path, query, this.abort.signal, this.lastId)) {
          if (event.id) this.lastId = event.id;
          if (this.state.error || this.state.phase !== "waiting") this.change({ error: undefined, phase: "waiting" });
          if (event.data) this.take(event.event, event.data);
        }
      } catch (error) {
        if (this.abort.signal.aborted || (error instanceof Problem && !error.retryable)) throw error;
        this.change({ error: error as Error, phase: "connecting" });
      }
      if (!this.abort.signal.aborted) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  private take(event: string, data: string): void {
    if (event === "message") this.waiting.push(parse<Message>(data));
    else if (event === "phase") this.change({ phase: parse<{ phase: string }>(data).phase });
    else if (event === "progress") this.change({ progress: parse<Progress>(data) });
    else if (event === "done") this.change({ done: parse<BrowseDone>(data) });
    else if (event === "damage") this.change({ damaged: this.state.damaged + 1 });
    else if (event === "skipped") this.change({ skipped: this.state.skipped + parse<{ messages: number }>(data).messages });
    else if (event === "error") throw problemOf(data);
    if (this.options.isLive && this.waiting.length > BATCH_MAX) {
      const over = this.waiting.splice(0, this.waiting.length - BATCH_MAX).length;
      this.change({ skipped: this.state.skipped + over });
    }
  }

  private flush(): Promise<void> {
    this.work = this.work.then(() => this.addWaiting());
    return this.work;
  }

  private async addWaiting(): Promise<void> {
    const messages = this.waiting.splice(0);
    if (messages.length === 0 || this.isClosed) return;
    const rows = await Promise.all(messages.map((message) => this.row(message)));
    const passed = await this.passing(rows);
    const all = this.options.isLive ? [...passed.reverse(), ...this.state.rows].slice(0, LIVE_ROWS_MAX) : [...this.state.rows, ...passed];
    const unjudged = rows.filter((row) => row.message.is_cut && !passed.includes(row)).length;
    this.change({ rows: all, filtered: this.state.filtered + rows.length - passed.length - unjudged, unjudged: this.state.unjudged + unjudged });
  }

  private async row(message: Message): Promise<Row> {
    const [key, value] = await Promise.all([
      decode(bytesOf(message.key, message.key_encoding), this.options.keyAs),
      decode(bytesOf(message.value, message.value_encoding), this.options.valueAs, message.is_cut),
    ]);
    return { message, key, value };
  }

  private async passing(rows: Row[]): Promise<Row[]> {
    if (!this.filter) return rows;
    try {
      const { passed, error } = await this.filter.run(rows.map(filterable));
      if (error) this.change({ error: new Error(t.filter.error(error)) });
      return rows.filter((_row, at) => passed[at]);
    } catch (error) {
      this.change({ error: error as Error });
      this.stop();
      return [];
    }
  }

  /** Events come by the thousand; what they change is shown together. */
  private change(part: Partial<State>): void {
    this.state = { ...this.state, ...part };
    if (this.isShowPlanned) return;
    this.isShowPlanned = true;
    window.setTimeout(() => this.showNow(), this.options.isLive ? SHOWN_EVERY_MS : 0);
  }

  private showNow(): void {
    this.isShowPlanned = false;
    if (!this.isClosed) this.show(this.state);
  }
}

function problemOf(data: string): Problem {
  const body = parse<{ status: number; code: string; detail: string; field?: string; retryable?: boolean }>(data);
  return new Problem(body.status, body.code, body.detail, body.field, body.retryable);
}

/** A message as JavaScript filters see it. */
function filterable({ message, key, value }: Row): unknown {
  const headers = Object.fromEntries(message.headers.map((header) => [header.name, headerText(header)]));
  return { key: key.value, value: value.value, text: value.text, headers, topic: message.topic, partition: message.partition, offset: message.offset, timestamp: message.timestamp, is_cut: message.is_cut ?? false };
}

export function headerText(header: Message["headers"][number]): string {
  const bytes = bytesOf(header.value, header.encoding);
  return bytes === null ? "null" : new TextDecoder().decode(bytes);
}
