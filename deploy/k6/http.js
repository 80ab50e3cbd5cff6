// Load on the HTTP API: publish, receive and acknowledge.
//   k6 run -e BASE=http://localhost:8080 -e RATE=200 -e DURATION=1m deploy/k6/http.js
// With credentials: -e API_KEY=...
import http from "k6/http";
import { check } from "k6";
import * as load from "./load.js";

const BASE = __ENV.BASE || "http://localhost:8080";
const PARAMS = { headers: { "Content-Type": "application/json" } };
if (__ENV.API_KEY) PARAMS.headers.Authorization = `Bearer ${__ENV.API_KEY}`;

const shared = load.options();
export const options = {
  ...shared,
  thresholds: { ...shared.thresholds, "http_req_duration{op:publish}": [`p(99)<${load.PUBLISH_P99_MS}`] },
};

const call = (method, path, body, op) =>
  http.request(method, `${BASE}/v1/${path}`, JSON.stringify(body), { ...PARAMS, tags: { op } });

export function setup() {
  const topic = `k6-http-${Date.now()}`;
  check(call("POST", "topics", { name: topic, partitions: 6 }, "setup"), { "topic created": (r) => r.status === 201 });
  check(call("PUT", `groups/${topic}`, { kind: "queue" }, "setup"), { "group created": (r) => r.status < 300 });
  return { topic };
}

export function publish({ topic }) {
  const response = call("POST", `topics/${topic}/publish`, { value: load.newMessage() }, "publish");
  const stored = check(response, { published: (r) => r.status === 200 && r.json("offset") >= 0 });
  if (stored) load.notePublished();
}

export function receive({ topic }) {
  const response = call("POST", `groups/${topic}/receive`, { topic, max_messages: 100, wait_ms: 1000 }, "receive");
  if (!check(response, { received: (r) => r.status === 200 })) return 0;
  const messages = response.json("messages");
  if (messages.length === 0) return 0;
  for (const message of messages) {
    check(message, { intact: (m) => load.isIntact(m.value) });
    if (message.attempt > 1) load.redelivered.add(1);
  }
  const acked = call("POST", `groups/${topic}/ack`, { receipts: messages.map((m) => m.receipt) }, "ack");
  if (check(acked, { acknowledged: (r) => r.status === 200 })) load.noteAcknowledged(messages.length);
  return messages.length;
}

export function teardown({ topic }) {
  load.drain(() => receive({ topic }));
  call("DELETE", `groups/${topic}`, {}, "teardown");
  check(call("DELETE", `topics/${topic}`, {}, "teardown"), { "topic deleted": (r) => r.status < 300 });
}

export const handleSummary = load.summary;
