"""One consumer of one kind, as a process: `worker KIND ADDRESSES QUEUE`, until its input ends.

It prints "got N" for each message that it receives, and "settled N" for each one whose
acknowledgement was confirmed. Messages are numbers; the queue is a topic and a group of one name.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import grpc
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException

from goqueue.client.http import Client
from goqueue.model.errors import GoQueueError
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from tests.integration.rpc.calls import Rpc, Stream
from tests.integration.sharing import COMMIT_SECONDS, received, share_consumer, text
from tests.integration.sqs import BATCH, connect

BATCH_MAX = 50
WAIT_SECONDS = 1
CREDIT = 200  # messages that a gRPC stream holds at most

Over = threading.Event


def say(what: str, values: Iterable[str]) -> None:
    lines = "".join(f"{what} {value}\n" for value in values)
    if lines:
        sys.stdout.write(lines)
        sys.stdout.flush()


def in_turn(addresses: str) -> Iterator[str]:
    """One node after the other, as behind a load balancer."""
    nodes = addresses.split(",")
    while True:
        yield from nodes


def share(addresses: str, queue: str, over: Over) -> None:
    """A member of the share group, by confluent-kafka."""
    with share_consumer(addresses, queue, queue) as consumer:
        while not over.is_set():
            try:
                messages = received(consumer)
                say("got", map(text, messages))
                for message in messages:
                    consumer.acknowledge(message)
                outcomes = consumer.commit_sync(COMMIT_SECONDS) if messages else {}
            except KafkaException as error:
                say("failed", [str(error)])
                continue
            failed = {
                (one.topic, one.partition) for one, error in outcomes.items() if error is not None
            }
            say(
                "settled",
                (text(one) for one in messages if (one.topic(), one.partition()) not in failed),
            )


def http(addresses: str, queue: str, over: Over) -> None:
    """Receives and acknowledges over HTTP, in requests of their own."""
    for address in in_turn(addresses):
        with Client(address) as client:
            worker = client.queue(queue, group=queue)
            try:
                while not over.is_set():
                    messages = worker.receive(BATCH_MAX, wait=WAIT_SECONDS)
                    values = [str(one.text) for one in messages]
                    say("got", values)
                    outcomes = worker.ack_many(messages) if messages else []
                    say(
                        "settled",
                        (
                            value
                            for value, error in zip(values, outcomes, strict=True)
                            if error is None
                        ),
                    )
            except GoQueueError as error:
                say("failed", [str(error)])
        if over.is_set():
            return


def sqs(addresses: str, queue: str, over: Over) -> None:
    """Receives and deletes with boto3."""
    for address in in_turn(addresses):
        client = connect(address)
        try:
            url = client.get_queue_url(QueueName=queue)["QueueUrl"]
            while not over.is_set():
                _receive_and_delete(client, url)
        except (BotoCoreError, ClientError) as error:
            say("failed", [str(error)])
        if over.is_set():
            return


def _receive_and_delete(client: object, url: str) -> None:
    receive, delete = client.receive_message, client.delete_message_batch  # type: ignore[attr-defined]
    answer = receive(QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=WAIT_SECONDS)
    messages = answer.get("Messages", [])
    if not messages:
        return
    say("got", (one["Body"] for one in messages))
    entries = [
        {"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]}
        for number, one in enumerate(messages)
    ]
    done = delete(QueueUrl=url, Entries=entries).get("Successful", [])
    say("settled", (messages[int(one["Id"])]["Body"] for one in done))


def grpc_stream(addresses: str, queue: str, over: Over) -> None:
    """Receives and acknowledges over one stream of gRPC."""
    for address in in_turn(addresses):
        with Rpc(address) as rpc:
            start = consuming.ReceiveStart(
                group=queue, topic=queue, consumer=uuid.uuid4().hex, messages_max=BATCH_MAX
            )
            stream = rpc.stream(
                rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=CREDIT)
            )
            ending = threading.Thread(target=_end, args=(stream, over), daemon=True)
            ending.start()
            try:
                _receive_and_ack(stream)
            except grpc.RpcError as error:
                say("failed", [str(error.code())])  # type: ignore[attr-defined]
            finally:
                stream.close()
        if over.is_set():
            return


def _end(stream: Stream, over: Over) -> None:
    over.wait()
    stream.close()


def _receive_and_ack(stream: Stream) -> None:
    asked: dict[int, Sequence[tuple[str, str]]] = {}  # receipts and values, by number of request
    number = 0
    for response in stream:
        if response.messages:
            number += 1
            asked[number] = [(one.receipt, one.value.decode()) for one in response.messages]
            say("got", (value for _, value in asked[number]))
            stream.send(
                consuming.ReceiveRequest(
                    number=number,
                    ack=[receipt for receipt, _ in asked[number]],
                    credit=len(asked[number]),
                )
            )
        for outcome in response.settlements:
            failed = {one.receipt for one in outcome.errors}
            say(
                "settled",
                (value for receipt, value in asked.pop(outcome.number) if receipt not in failed),
            )


KINDS: dict[str, Callable[[str, str, Over], None]] = {
    "share": share,
    "http": http,
    "sqs": sqs,
    "grpc": grpc_stream,
}


def main(kind: str, addresses: str, queue: str) -> None:
    over = Over()

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    KINDS[kind](addresses, queue, over)


if __name__ == "__main__":
    main(*sys.argv[1:])
