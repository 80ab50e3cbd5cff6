// Load on the SQS listener in the JSON protocol of AWS: SendMessage, ReceiveMessage, DeleteMessageBatch.
//   k6 run -e ENDPOINT=http://localhost:9324 -e RATE=200 -e DURATION=1m deploy/k6/sqs.js
// With access keys: -e ACCESS_KEY=... -e SECRET_KEY=...
import http from "k6/http";
import crypto from "k6/crypto";
import { check } from "k6";
import * as load from "./load.js";

const ENDPOINT = __ENV.ENDPOINT || "http://localhost:9324";
const REGION = __ENV.REGION || "us-east-1";
const HOST = ENDPOINT.replace(/^https?:\/\//, "").replace(/\/.*$/, "");
const TYPE = "application/x-amz-json-1.0";

const shared = load.options();
export const options = {
  ...shared,
  thresholds: { ...shared.thresholds, "http_req_duration{op:SendMessage}": [`p(99)<${load.PUBLISH_P99_MS}`] },
};

function call(action, message) {
  const body = JSON.stringify(message);
  const headers = { "Content-Type": TYPE, "X-Amz-Target": `AmazonSQS.${action}` };
  if (__ENV.ACCESS_KEY) sign(headers, body);
  return http.post(`${ENDPOINT}/`, body, { headers, tags: { op: action } });
}

// Signature Version 4.
function sign(headers, body) {
  const time = new Date().toISOString().replace(/[:-]|\.\d{3}/g, "");
  const scope = `${time.slice(0, 8)}/${REGION}/sqs/aws4_request`;
  const signed = "content-type;host;x-amz-date;x-amz-target";
  const canonical = [
    "POST", "/", "",
    `content-type:${TYPE}`, `host:${HOST}`, `x-amz-date:${time}`, `x-amz-target:${headers["X-Amz-Target"]}`, "",
    signed, crypto.sha256(body, "hex"),
  ].join("\n");
  const text = ["AWS4-HMAC-SHA256", time, scope, crypto.sha256(canonical, "hex")].join("\n");
  let key = `AWS4${__ENV.SECRET_KEY}`;
  for (const part of scope.split("/")) key = crypto.hmac("sha256", key, part, "binary");
  const signature = crypto.hmac("sha256", key, text, "hex");
  headers["X-Amz-Date"] = time;
  headers.Authorization =
    `AWS4-HMAC-SHA256 Credential=${__ENV.ACCESS_KEY}/${scope}, SignedHeaders=${signed}, Signature=${signature}`;
}

export function setup() {
  const response = call("CreateQueue", { QueueName: `k6-sqs-${Date.now()}`, Attributes: { VisibilityTimeout: "30" } });
  check(response, { "queue created": (r) => r.status === 200 });
  return { QueueUrl: response.json("QueueUrl") };
}

export function publish({ QueueUrl }) {
  const MessageBody = load.newMessage();
  const response = call("SendMessage", { QueueUrl, MessageBody });
  const stored = check(response, {
    published: (r) => r.status === 200 && r.json("MD5OfMessageBody") === crypto.md5(MessageBody, "hex"),
  });
  if (stored) load.notePublished();
}

export function receive({ QueueUrl }) {
  const response = call("ReceiveMessage", {
    QueueUrl,
    MaxNumberOfMessages: 10,
    WaitTimeSeconds: 1,
    MessageSystemAttributeNames: ["ApproximateReceiveCount"],
  });
  if (!check(response, { received: (r) => r.status === 200 })) return 0;
  const messages = response.json("Messages") || [];
  if (messages.length === 0) return 0;
  for (const message of messages) {
    check(message, { intact: (m) => load.isIntact(m.Body) });
    if (Number(message.Attributes.ApproximateReceiveCount) > 1) load.redelivered.add(1);
  }
  const Entries = messages.map((m, index) => ({ Id: String(index), ReceiptHandle: m.ReceiptHandle }));
  const deleted = call("DeleteMessageBatch", { QueueUrl, Entries });
  if (check(deleted, { acknowledged: (r) => r.status === 200 && (r.json("Failed") || []).length === 0 })) {
    load.noteAcknowledged(messages.length);
  }
  return messages.length;
}

export function teardown({ QueueUrl }) {
  load.drain(() => receive({ QueueUrl }));
  check(call("DeleteQueue", { QueueUrl }), { "queue deleted": (r) => r.status === 200 });
}

export const handleSummary = load.summary;
