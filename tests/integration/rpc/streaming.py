"""Clients that publish and receive over streams, through nodes that come and go."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle

import grpc

from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing

from .calls import Rpc, Stream, messages

BATCH = 20
CREDIT = 50
RETRY_SECONDS = 0.1
Addresses = Callable[[], Sequence[str]]
Position = tuple[int, int]  # partition and offset


class Publisher:
    """Publishes values over one stream after another, until each of them is confirmed."""

    def __init__(self, addresses: Addresses, topic: str) -> None:
        self.confirmed: dict[bytes, Position] = {}
        self._addresses = addresses
        self._topic = topic

    def publish(self, values: Sequence[bytes]) -> None:
        for turn in cycle(range(3)):
            left = [one for one in values if one not in self.confirmed]
            if not left:
                return
            addresses = self._addresses()
            with Rpc(addresses[turn % len(addresses)]) as rpc:
                self._publish(rpc, left)

    def _publish(self, rpc: Rpc, values: Sequence[bytes]) -> None:
        batches = [values[at : at + BATCH] for at in range(0, len(values), BATCH)]
        requests = (
            publishing.PublishStreamRequest(
                number=number, topic=self._topic, messages=messages(*batch)
            )
            for number, batch in enumerate(batches)
        )
        try:
            for response in rpc.publishing.PublishStream(requests, timeout=60):
                report = response.report
                places = zip(report.partitions, report.offsets, strict=True)
                for value, place in zip(batches[response.number], places, strict=False):
                    if place[1] >= 0:
                        self.confirmed[value] = place
        except grpc.RpcError:
            return  # The rest is published over another node.


class Worker(threading.Thread):
    """Receives and acknowledges messages until it is told to stop."""

    def __init__(self, addresses: Addresses, turn: int, topic: str) -> None:
        super().__init__(daemon=True)
        self.accepted: Counter[Position] = Counter()
        self.uncertain: set[Position] = set()  # acknowledged, and never confirmed
        self.failures: list[BaseException] = []
        self._addresses = addresses
        self._turn = turn
        self._topic = topic
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                addresses = self._addresses()
                with Rpc(addresses[self._turn % len(addresses)]) as rpc:
                    self._receive(rpc)
                self._turn += 1
                self._stopping.wait(RETRY_SECONDS)
        except BaseException as error:
            self.failures.append(error)

    def stop(self) -> None:
        self._stopping.set()

    def _receive(self, rpc: Rpc) -> None:
        start = consuming.ReceiveStart(group=self._topic, topic=self._topic)
        stream = rpc.stream(
            rpc.consuming.Receive, consuming.ReceiveRequest(start=start, credit=CREDIT)
        )
        pending: dict[int, list[Position]] = {}
        watching = threading.Thread(target=self._stop_later, args=(stream,), daemon=True)
        watching.start()
        try:
            for number, response in enumerate(stream, 2):
                self._confirm(response, pending, stream)
                if response.messages:
                    pending[number] = [(one.partition, one.offset) for one in response.messages]
                    stream.send(
                        consuming.ReceiveRequest(
                            number=number,
                            ack=[one.receipt for one in response.messages],
                            credit=0 if self._stopping.is_set() else len(response.messages),
                        )
                    )
        except grpc.RpcError:
            self.uncertain.update(place for places in pending.values() for place in places)
        finally:
            stream.half_close()

    def _stop_later(self, stream: Stream) -> None:
        self._stopping.wait()
        stream.send(consuming.ReceiveRequest(stop=True, number=1))

    def _confirm(
        self,
        response: consuming.ReceiveResponse,
        pending: dict[int, list[Position]],
        stream: Stream,
    ) -> None:
        for settled in response.settlements:
            if settled.number == 1:
                stream.half_close()
                continue
            places = pending.pop(settled.number)
            if settled.errors:
                self.uncertain.update(places)
            else:
                self.accepted.update(places)
