"""Exports journeys as traces to a collector of OpenTelemetry.

It is a stream group of the journal without members: each partition is exported by its leader, which
commits up to where the collector has the spans. While the collector is away nothing is read, and
the export continues where it was, on whichever node leads the partition then.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.group_offsets import CommitOffsets, OffsetToCommit
from goqueue.broker.gate.areas.records import RecordFilter
from goqueue.broker.journeys.chunks import slices
from goqueue.broker.journeys.exporting import Sampling, SpanSource
from goqueue.broker.journeys.otlp import request
from goqueue.broker.reading.records import Place as Where
from goqueue.config import JourneySettings, MetricsSettings
from goqueue.config.coordinators import CHILD
from goqueue.config.metrics import GZIP
from goqueue.delivery.schedules.records import read_key, read_message
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Cancellation, Promise, start
from goqueue.metrics import Samples
from goqueue.metrics import catalogue as metrics
from goqueue.metrics.otlp.sending import Answer, Sending
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, UnknownTopic
from goqueue.model.names import JOURNEYS_TOPIC, SCHEDULED_TOPIC
from goqueue.model.session import INTERNAL
from goqueue.model.support import release
from goqueue.partition import Partition
from goqueue.runtime.measuring.collector import Collector
from goqueue.tracing.events import Place
from goqueue.tracing.spans import TRACE_HEADER, Context, Span, read_context

if TYPE_CHECKING:
    from goqueue.broker import Broker

GROUP = "__otlp-traces"
POLL_MS = 500
RETRY_MS = 5_000
SPANS_PER_REQUEST = 1_000
RECORDS_PER_TURN = 20
FOUND_MAX = 1_000  # records with trace context, of one search
SEARCH_BYTES = 16 << 20
RECORDS_MAX = 1_000  # that are read at once
STOP_SECONDS_MAX = 2.0

_TRACED = RecordFilter(header=TRACE_HEADER)
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The node stops, so the export ends where it is."""


class TracesExport:
    """Reads the journal, sends spans, and commits. One request is on its way at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        broker: Broker,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._broker = broker
        self._settings, shared = broker.settings.journeys, broker.settings.metrics
        self._collector = _collector_of(self._settings, shared)
        self._sending = Sending(random, attempts_max=None)
        ratio = self._settings.otlp_ratio
        sampling = Sampling(round(1 / ratio) if ratio else 0, self._settings.otlp_parent == CHILD)
        self._spans = SpanSource(
            broker.gate.journeys.journal, self._find_contexts, self._find_topic, sampling
        )
        # By partition: the leader epoch in which it was read, and up to where it is exported.
        self._positions: dict[int, tuple[int, int]] = {}
        self._exported = self._rejected = 0
        self._is_failing = self._is_stopping = False
        self._sleeping: tuple[Handle, Promise[None]] | None = None
        self._ended = asyncio.Event()
        self._ended.set()

    def start(self) -> None:
        self._ended.clear()
        start(self._run(), self._done)

    async def stop(self) -> None:
        """End, after the request that is on its way if the collector is fast."""
        self._is_stopping = True
        if self._sleeping is not None:
            timer, promise = self._sleeping
            timer.cancel()
            self._sleeping = None
            promise.resolve(None)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._ended.wait()
        except TimeoutError:
            _log.info("the last traces were not exported in time; the next start sends them")

    def collect(self, samples: Samples) -> Iterator[None]:
        """Count the exports themselves."""
        sending = self._sending
        for outcome, count in (
            ("accepted", sending.sent),
            ("failed", sending.failed),
            ("dropped", sending.dropped),
        ):
            samples.set(metrics.JOURNEY_EXPORTS, count, outcome)
        samples.set(metrics.JOURNEY_EXPORTED_SPANS, self._exported)
        samples.set(metrics.JOURNEY_EXPORT_REJECTED, self._rejected)
        yield

    def _done(self, _: None, error: Exception | None) -> None:
        self._ended.set()
        if error is not None and not isinstance(error, _Stopped):
            raise error

    # Reading

    async def _run(self) -> None:
        while not self._is_stopping:
            wait_ms = POLL_MS
            for partition in self._led():
                try:
                    if await self._export(partition):
                        wait_ms = 0
                except (GoQueueError, OSError) as error:
                    _log.info("%s cannot be exported yet: %s", partition.name, error)
                    self._positions.pop(partition.name.partition, None)
                    wait_ms = RETRY_MS
            await self._sleep(wait_ms)

    def _led(self) -> list[Partition]:
        topic = self._broker.topics.find(JOURNEYS_TOPIC)
        if topic is None:
            return []
        leaders = self._broker.leaders
        return [one for one in topic.partitions if leaders.is_here(topic, one.name.partition)]

    async def _export(self, partition: Partition) -> bool:
        """Export a part of a partition; return whether there was one."""
        number, epoch = partition.name.partition, partition.leader_epoch
        known = self._positions.get(number)
        if known is None or known[0] != epoch:
            self._spans.forget()
            known = self._positions[number] = epoch, await self._committed(number)
        offset = max(known[1], partition.start_offset)
        for _, next_offset, records in slices(partition, offset, partition.high_watermark):
            await self._export_records(partition, [one for one in records if one.offset >= offset])
            if partition.is_following or partition.leader_epoch != epoch:
                return False  # Its new leader exports it from what is committed on.
            await self._commit(number, next_offset)
            self._positions[number] = epoch, next_offset
            return True
        return False

    async def _export_records(self, partition: Partition, records: list[Record]) -> None:
        spans: list[Span] = []
        for place, record in enumerate(records, 1):
            spans += await self._spans.spans(partition, record)
            while len(spans) >= SPANS_PER_REQUEST:
                await self._send(spans[:SPANS_PER_REQUEST])
                del spans[:SPANS_PER_REQUEST]
            if place % RECORDS_PER_TURN == 0:
                await self._sleep(0)
        if spans:
            await self._send(spans)

    async def _committed(self, number: int) -> int:
        """Return where the export of a partition continues; at first, where the journal begins."""
        fetched = await self._broker.gate.group_offsets.fetch(
            INTERNAL, group=GROUP, partitions={JOURNEYS_TOPIC: [number]}
        )
        found = fetched.offsets.get(JOURNEYS_TOPIC, {}).get(number)
        return 0 if found is None else max(0, found.offset)

    async def _commit(self, number: int, offset: int) -> None:
        commit = OffsetToCommit(topic=JOURNEYS_TOPIC, partition=number, offset=offset)
        done = await self._broker.gate.group_offsets.commit(
            INTERNAL, call=CommitOffsets(group_id=GROUP, offsets=[commit])
        )
        for error in done.errors.values():
            raise error

    def _sleep(self, delay_ms: int) -> Promise[None]:
        promise: Promise[None] = Promise()
        if self._is_stopping:
            promise.reject(_Stopped())
            return promise

        def wake() -> None:
            self._sleeping = None
            promise.resolve(None)

        self._sleeping = self._clock.call_later(delay_ms, wake), promise
        return promise

    # What the records of messages say

    def _find_topic(self, name: str) -> bytes | None:
        topic = self._broker.topics.find(name)
        return None if topic is None else topic.id

    async def _find_contexts(self, place: Place, first: int, end: int) -> Mapping[int, Context]:
        """Return the trace contexts in the records of messages, as far as these still exist."""
        topic = self._broker.topics.find_by_id(place.topic_id)
        if topic is None:
            return {}
        if topic.name == SCHEDULED_TOPIC:
            records = _unpacked(await self._read(topic.name, place.partition, first, end))
        else:
            try:
                records = await self._search(topic.name, place.partition, first, end)
            except UnknownTopic:
                return {}  # It was deleted meanwhile.
        found = {}
        for record in records:
            header = dict(reversed(record.headers)).get(TRACE_HEADER)
            context = read_context(header) if header is not None else None
            if context is not None:
                found[record.offset] = context
        return found

    async def _search(self, topic: str, number: int, first: int, end: int) -> list[Record]:
        records: list[Record] = []
        while first < end:
            part = await self._broker.gate.records.search_partition(
                INTERNAL,
                topic=topic,
                partition=number,
                begin=first,
                until=end,
                wanted=_TRACED,
                limit=FOUND_MAX,
                bytes_max=SEARCH_BYTES,
                cancellation=Cancellation(),
            )
            records += part.records
            first = max(first, part.next_offset)
            if part.is_end:
                break
        # A search does not see what belongs to open transactions.
        return records + await self._read(topic, number, first, end)

    async def _read(self, topic: str, number: int, first: int, end: int) -> list[Record]:
        partition = self._broker.topics.get(topic).partition(number)
        records: list[Record] = []
        while first < end:
            reading = self._broker.reads.read(
                [Where(partition, first, end)],
                records_max=RECORDS_MAX,
                bytes_max=SEARCH_BYTES,
                is_committed_only=False,
            )
            found = [record for _, record in (await reading.promise).records]
            if not found:
                break
            records += found
            first = found[-1].offset + 1
        return records

    # Sending

    async def _send(self, spans: list[Span]) -> None:
        """Send spans until the collector has taken or refused them."""
        self._sending.add(request(self._attributes(), release(), spans))
        while self._sending.waiting:
            body = self._sending.take(self._clock.now_ms())
            if body is None:
                await self._sleep(self._sending.wait_ms(self._clock.now_ms()) or 0)
                continue
            answer = await self._post(body)
            self._sending.answered(answer, self._clock.now_ms())
            self._exported += len(spans) if answer.is_success else 0
            self._rejected += answer.rejected
            self._log(answer)

    def _post(self, body: bytes) -> Promise[Answer]:
        answered: Promise[Answer] = Promise()

        def post() -> None:
            answer = self._collector.post(body)
            try:
                self._loop.call_soon_threadsafe(partial(answered.resolve, answer))
            except RuntimeError:
                return  # The node has stopped meanwhile.

        # A thread of its own, because those of the node must not wait for a collector.
        threading.Thread(target=post, name="otlp-traces", daemon=True).start()
        return answered

    def _attributes(self) -> dict[str, str]:
        shared = self._broker.settings.metrics
        node, cluster = str(self._broker.node_id), str(self._broker.cluster_id)
        return {
            **dict(shared.otlp_attributes),
            "service.name": shared.otlp_service_name,
            "service.version": release(),
            "service.instance.id": f"{cluster}/{node}",
            "goqueue.cluster.id": cluster,
            "goqueue.node.id": node,
        }

    def _log(self, answer: Answer) -> None:
        """Log once that exports fail, and once that they succeed again."""
        if answer.is_success == self._is_failing:
            address = self._settings.otlp_endpoint
            if answer.is_success:
                _log.info("traces are exported to %s again", address)
            else:
                what = f"{answer.status or ''} {answer.reason}".strip()
                _log.warning("traces cannot be exported to %s: %s", address, what)
        self._is_failing = not answer.is_success


def _collector_of(settings: JourneySettings, shared: MetricsSettings) -> Collector:
    return Collector(
        settings.otlp_endpoint,
        dict(settings.otlp_headers),
        shared.otlp_timeout_ms,
        is_compressed=shared.otlp_compression == GZIP,
        authorities=shared.otlp_authorities,
    )


def _unpacked(records: list[Record]) -> list[Record]:
    """Return the messages in records of the schedule log, which have their headers in the value."""
    messages = []
    for record in records:
        # Others change or end a message, whose number is its offset.
        if record.value is not None and read_key(record.key) == (record.offset, False):
            messages.append(record._replace(headers=read_message(record.value).headers))
    return messages
