/** Requests to /v1: credentials, errors as values that people can read, event streams. */

import { signal } from "@preact/signals";
import { t } from "../texts";
import { parse, write } from "./json";
import type { PageInfo } from "./types";

const CREDENTIALS = "goqueue.credentials";

/** The header `Authorization` of every request; kept until the tab is closed. */
export const credentials = signal(sessionStorage.getItem(CREDENTIALS) ?? "");
export const signInNeeded = signal(false);
/** True when a session has ended by itself, such as that of an expired key. */
export const sessionEnded = signal(false);
/** True while the node that served this page does not answer. */
export const offline = signal(false);

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly field = "",
    readonly retryable = false,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | bigint | boolean | null | undefined>;

interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

export interface StreamEvent {
  event: string;
  id: string;
  data: string;
}

export function signIn(header: string): void {
  credentials.value = header;
  sessionStorage.setItem(CREDENTIALS, header);
  signInNeeded.value = false;
  sessionEnded.value = false;
}

export function signOut(): void {
  credentials.value = "";
  sessionStorage.removeItem(CREDENTIALS);
  sessionEnded.value = false;
  signInNeeded.value = true;
}

export function basic(user: string, password: string): string {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

export function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return call<T>("GET", path, { query, signal });
}

/** One page of a list: the answer has its rows under a name of their own. */
export async function getRows<Row>(name: string, path: string, query?: Query, signal?: AbortSignal): Promise<PageInfo & { rows: Row[] }> {
  const { [name]: rows, ...info } = await get<PageInfo & Record<string, unknown>>(path, query, signal);
  return { rows: rows as Row[], ...info };
}

export function post<T>(path: string, body: unknown = {}, query?: Query): Promise<T> {
  return call<T>("POST", path, { body, query });
}

export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  const text = await response.text();
  return (text ? parse(text) : null) as T;
}

/** The events of a stream, until it ends or `signal` aborts it. */
export async function* events(path: string, query: Query, signal: AbortSignal, lastId = ""): AsyncGenerator<StreamEvent> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (lastId) headers["Last-Event-ID"] = lastId;
  const response = await send("GET", path, { query, signal, headers });
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = eventOf(block);
      if (event) yield event;
    }
  }
}

function eventOf(block: string): StreamEvent | null {
  const event: StreamEvent = { event: "message", id: "", data: "" };
  let isComment = true;
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    isComment = false;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "data") event.data += event.data ? `\n${value}` : value;
    else if (name === "event") event.event = value;
    else if (name === "id") event.id = value;
  }
  return isComment ? null : event;
}

async function send(method: string, path: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (credentials.value) headers["Authorization"] = credentials.value;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(address(path, options.query), {
      method,
      headers,
      body: options.body === undefined ? undefined : write(options.body),
      signal: options.signal,
      cache: "no-store",
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    offline.value = true;
    throw new Problem(0, "offline", t.errors.offline, "", true);
  }
  offline.value = false;
  if (response.ok) return response;
  throw await problemOf(response);
}

export function address(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

async function problemOf(response: Response): Promise<Problem> {
  if (response.status === 401) {
    sessionEnded.value ||= !signInNeeded.value && credentials.value !== "";
    signInNeeded.value = true;
  }
  const text = await response.text();
  try {
    const body = parse<{ code?: string; detail?: string; message?: string; field?: string; retryable?: boolean }>(text);
    const detail = body.detail ?? body.message ?? response.statusText;
    return new Problem(response.status, body.code ?? "", detail, body.field, body.retryable ?? response.status === 503);
  } catch {
    return new Problem(response.status, "", text || t.errors.status(response.status), "", response.status >= 502);
  }
}

/** A part of a path: names may contain anything. */
export function part(name: string | number | bigint): string {
  return encodeURIComponent(String(name));
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
