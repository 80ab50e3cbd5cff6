// Publishes lines and works through a queue group over gRPC.
//
//   node example.mjs HOST:PORT publish TOPIC          each line of the input is a message
//   node example.mjs HOST:PORT receive TOPIC GROUP    until Ctrl-C; prints and acknowledges
import { once } from "node:events";
import { createInterface } from "node:readline";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const BATCH = 100;
const IN_FLIGHT_MAX = 32;
const STOP = 1; // the number of the request that stops

// The proto files are all that is needed; nothing is generated.
const protos = process.env.GOQUEUE_PROTO ?? new URL("../../../proto", import.meta.url).pathname;
const definition = await protoLoader.load(["goqueue/v1/publish_service.proto", "goqueue/v1/consume_service.proto"], {
  includeDirs: [protos],
  longs: Number, // offsets and times stay exact up to 2^53
  defaults: true,
});
const { goqueue } = grpc.loadPackageDefinition(definition);
const options = {
  // Notices a node that has vanished. Nodes disconnect clients that ask more often than every 10 s.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
};
const credentials = grpc.credentials.createInsecure(); // with TLS: createSsl(readFileSync("ca.pem"))

/** Sends batches, waits while too many are unconfirmed, and returns when all are durable. */
async function publish(address, topic) {
  const client = new goqueue.v1.PublishService(address, credentials, options);
  const stream = client.PublishStream();
  const lines = createInterface({ input: process.stdin });
  const ended = once(stream, "end"); // rejects if the stream fails
  ended.catch(() => lines.close());
  let sent = 0;
  let confirmed = 0;
  let count = 0;
  let confirm = () => {};
  stream.on("data", ({ number, report, error }) => {
    confirmed += 1;
    count += report?.offsets.length ?? 0;
    const failed = error ?? report?.errors[0]?.error;
    if (failed) stream.destroy(new Error(`request ${number}: ${failed.message} (${failed.reason})`));
    confirm();
  });
  const send = async (messages) => {
    sent += 1;
    stream.write({ number: sent, topic, messages });
    while (sent - confirmed >= IN_FLIGHT_MAX) {
      await Promise.race([new Promise((resolve) => (confirm = resolve)), ended]);
    }
  };
  let messages = [];
  for await (const line of lines) {
    messages.push({ value: Buffer.from(line) });
    if (messages.length === BATCH) {
      await send(messages);
      messages = [];
    }
  }
  if (messages.length) await send(messages);
  stream.end();
  await ended;
  client.close();
  console.error(`published ${count}`);
}

/**
 * Prints and acknowledges messages until stopped. All that it has received is acknowledged by then,
 * and what it has not received stays for others.
 */
async function receive(address, topic, group) {
  const client = new goqueue.v1.ConsumeService(address, credentials, options);
  const stream = client.Receive();
  const ended = once(stream, "end");
  // The node sends what there is credit for; each batch that is done gives its credit back.
  stream.write({ start: { group, topic, messagesMax: BATCH }, credit: 10 * BATCH });
  let number = STOP;
  let count = 0;
  let isStopping = false;
  const stop = () => {
    if (!isStopping) stream.write({ stop: true, number: STOP });
    isStopping = true;
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  stream.on("data", ({ messages, settlements }) => {
    for (const message of messages) console.log(message.value?.toString() ?? "(no value)");
    if (messages.length) {
      number += 1;
      const ack = messages.map((message) => message.receipt);
      stream.write({ number, ack, credit: isStopping ? 0 : ack.length });
    }
    for (const settled of settlements) {
      count += settled.accepted;
      // The lease had ended: others receive the message.
      for (const { receipt, error } of settled.errors) console.error(receipt, error.message);
      if (settled.number === STOP) stream.end(); // the last message has come
    }
  });
  await ended;
  client.close();
  console.error(`acknowledged ${count}`);
}

const [address, command, ...rest] = process.argv.slice(2);
const run = { publish, receive }[command];
if (!run || rest.length !== (command === "publish" ? 1 : 2)) {
  console.error("usage: HOST:PORT publish TOPIC | HOST:PORT receive TOPIC GROUP");
  process.exit(2);
}
try {
  await run(address, ...rest);
} catch (error) {
  console.error(error.details ?? error.message);
  process.exit(1);
}
