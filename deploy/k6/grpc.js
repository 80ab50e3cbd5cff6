// Load on the gRPC API: publish, pull and acknowledge.
//   k6 run -e ADDRESS=localhost:9000 -e RATE=200 -e DURATION=1m deploy/k6/grpc.js
// With credentials: -e API_KEY=...; with TLS: -e TLS=1
import grpc from "k6/net/grpc";
import encoding from "k6/encoding";
import { check } from "k6";
import * as load from "./load.js";

const ADDRESS = __ENV.ADDRESS || "localhost:9000";
const PARAMS = { metadata: __ENV.API_KEY ? { authorization: `Bearer ${__ENV.API_KEY}` } : {} };

const client = new grpc.Client();
client.load(
  ["../../proto"],
  "goqueue/v1/publish_service.proto",
  "goqueue/v1/consume_service.proto",
  "goqueue/v1/ack_service.proto",
  "goqueue/v1/topic_service.proto",
  "goqueue/v1/group_service.proto",
);

const shared = load.options();
export const options = {
  ...shared,
  thresholds: { ...shared.thresholds, "grpc_req_duration{op:publish}": [`p(99)<${load.PUBLISH_P99_MS}`] },
};

let isConnected = false;

function call(method, message, op) {
  if (!isConnected) {
    client.connect(ADDRESS, { plaintext: !__ENV.TLS, timeout: "10s" });
    isConnected = true;
  }
  return client.invoke(`goqueue.v1.${method}`, message, { ...PARAMS, tags: { op } });
}

const isOk = (response) => response.status === grpc.StatusOK;

export function setup() {
  const topic = `k6-grpc-${Date.now()}`;
  const made = call("TopicService/CreateTopic", { name: topic, partitions: 6 }, "setup");
  check(made, { "topic created": isOk });
  const group = call("GroupService/PutQueueGroup", { group: topic }, "setup");
  check(group, { "group created": isOk });
  return { topic };
}

export function publish({ topic }) {
  const value = encoding.b64encode(load.newMessage());
  const response = call("PublishService/Publish", { topic, messages: [{ value }] }, "publish");
  const stored = check(response, {
    published: (r) => isOk(r) && r.message.report.errors.length === 0 && Number(r.message.report.offsets[0]) >= 0,
  });
  if (stored) load.notePublished();
}

export function receive({ topic }) {
  const pull = { group: topic, topic, messagesMax: 100, waitMs: 1000 };
  const response = call("ConsumeService/Pull", pull, "receive");
  if (!check(response, { received: isOk })) return 0;
  const messages = response.message.messages;
  if (messages.length === 0) return 0;
  for (const one of messages) {
    check(one, { intact: (m) => load.isIntact(encoding.b64decode(m.value, "std", "s")) });
    if (one.attempt > 1) load.redelivered.add(1);
  }
  const acked = call("AckService/Ack", { group: topic, receipts: messages.map((m) => m.receipt) }, "ack");
  if (check(acked, { acknowledged: (r) => isOk(r) && r.message.errors.length === 0 })) {
    load.noteAcknowledged(messages.length);
  }
  return messages.length;
}

export function teardown({ topic }) {
  load.drain(() => receive({ topic }));
  call("GroupService/DeleteGroup", { group: topic }, "teardown");
  check(call("TopicService/DeleteTopic", { topic }, "teardown"), { "topic deleted": isOk });
}

export const handleSummary = load.summary;
