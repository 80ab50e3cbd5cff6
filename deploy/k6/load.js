// What the load tests share: arrival rates, thresholds, and messages that can be checked.
//
// Publishing has an open arrival rate: k6 starts an iteration when one is due, whether or not earlier
// ones have ended, so a broker that stops is not measured as a fast one. Consumers receive in a loop.
import crypto from "k6/crypto";
import { Counter, Trend } from "k6/metrics";
import exec from "k6/execution";

export const RATE = Number(__ENV.RATE || 200); // publish requests a second
export const DURATION = __ENV.DURATION || "30s";
export const CONSUMERS = Number(__ENV.CONSUMERS || 4);
export const SIZE = Number(__ENV.SIZE || 200); // bytes of a message, about
export const PUBLISH_P99_MS = Number(__ENV.PUBLISH_P99_MS || 100);
export const DELIVERY_P99_MS = Number(__ENV.DELIVERY_P99_MS || 1000);
// Consumers go on for this long after the last message was published.
const DRAIN_SECONDS = Number(__ENV.DRAIN_SECONDS || 5);
const RECEIVES_MAX = 1000; // of the rest, when the consumers have ended

const published = new Counter("messages_published");
const acknowledged = new Counter("messages_acknowledged");
// Published and not acknowledged yet. Counters of k6 go down as well, and a threshold holds for one
// metric only, so this is what fails a run that has lost a message.
const missing = new Counter("messages_missing");
export const redelivered = new Counter("messages_redelivered");
export const delivery = new Trend("delivery_ms", true);

export function notePublished() {
  published.add(1);
  missing.add(1);
}

export function noteAcknowledged(count) {
  acknowledged.add(count);
  missing.add(-count);
}

const padding = "x".repeat(SIZE);

export function options() {
  return {
    scenarios: {
      publish: {
        executor: "constant-arrival-rate",
        exec: "publish",
        rate: RATE,
        timeUnit: "1s",
        duration: DURATION,
        preAllocatedVUs: Math.max(10, Math.ceil(RATE / 10)),
        maxVUs: Math.max(50, RATE * 5),
      },
      receive: {
        executor: "constant-vus",
        exec: "receive",
        vus: CONSUMERS,
        duration: `${seconds(DURATION) + DRAIN_SECONDS}s`,
        gracefulStop: "30s",
      },
    },
    thresholds: {
      checks: ["rate==1"],
      dropped_iterations: ["count==0"], // the rate was kept
      messages_published: ["count>0"],
      messages_missing: ["count==0"], // all that was published was acknowledged, at the end
      messages_redelivered: ["count==0"], // nobody has to receive a message twice
      delivery_ms: [`p(99)<${DELIVERY_P99_MS}`],
    },
    summaryTrendStats: ["min", "med", "p(95)", "p(99)", "max"],
  };
}

// A message with a number, the time, and a checksum of both.
export function newMessage() {
  const text = `${exec.vu.idInTest}-${exec.vu.iterationInScenario} ${Date.now()} ${padding}`;
  return `${crypto.md5(text, "hex")} ${text}`;
}

// Whether a message is as it was published; notes how long it took.
export function isIntact(message) {
  const text = message.slice(33);
  if (crypto.md5(text, "hex") !== message.slice(0, 32)) return false;
  delivery.add(Date.now() - Number(text.split(" ")[1]));
  return true;
}

// Receives what the consumers have left; each receive waits for a second before it returns nothing.
export function drain(receive) {
  for (let left = RECEIVES_MAX; left > 0 && receive() > 0; left--);
}

// What happened, in words and in the file SUMMARY for programs.
export function summary(data) {
  const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  const sent = count("messages_published");
  const done = count("messages_acknowledged");
  const failed = Object.entries(data.metrics).flatMap(([name, metric]) =>
    Object.entries(metric.thresholds || {}).filter(([, one]) => !one.ok).map(([text]) => `${name} ${text}`),
  );
  const p99 = (name) => (data.metrics[name] ? data.metrics[name].values["p(99)"] : NaN);
  const lines = [
    `published ${sent}, acknowledged ${done}, missing ${sent - done}, redelivered ${count("messages_redelivered")}`,
    `delivery p99 ${p99("delivery_ms").toFixed(1)} ms`,
    failed.length ? `FAILED: ${failed.join("; ")}` : "all thresholds hold",
    "",
  ];
  const result = { published: sent, acknowledged: done, failed };
  const files = { stdout: lines.join("\n") };
  if (__ENV.SUMMARY) files[__ENV.SUMMARY] = JSON.stringify(result);
  return files;
}

function seconds(duration) {
  const units = { s: 1, m: 60, h: 3600 };
  let total = 0;
  for (const [, number, unit] of duration.matchAll(/(\d+)([smh])/g)) total += Number(number) * units[unit];
  return total;
}
