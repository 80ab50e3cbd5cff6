"""What of the journal becomes spans, and that it is the same wherever the export continues."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goqueue.broker.journeys.exporting import Sampling, SpanSource
from goqueue.broker.journeys.otlp import request
from goqueue.broker.journeys.searching import JournalSearch
from goqueue.loop.promise import promised
from goqueue.model.batch import Record, decode_batch
from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.partition import Partition
from goqueue.tracing.events import Place
from goqueue.tracing.spans import Context, Span
from tests.unit.broker.journeys.test_recording import JourneyNode

SAMPLED = Context(b"t" * 16, b"s" * 8, True)
NOT_SAMPLED = SAMPLED._replace(is_sampled=False)
CONTEXTS = {0: SAMPLED, 1: NOT_SAMPLED, 3: SAMPLED}


class Exporting:
    """A source of spans of a node's journal, and what it asked for."""

    def __init__(self, node: JourneyNode, every: int = 0) -> None:
        self.node = node
        self.asked: list[tuple[int, int]] = []
        self.source = SpanSource(
            JournalSearch(node.broker.clock, node.broker.topics),
            self._find_contexts,
            lambda name: node.broker.topics.get(name).id,
            Sampling(every, is_child=False),
        )

    async def _find_contexts(self, place: Place, first: int, end: int) -> Mapping[int, Context]:
        if place.topic != "orders":
            return {}
        self.asked.append((first, end))
        return {one: found for one, found in CONTEXTS.items() if first <= one < end}

    def spans(self, partition: Partition, record: Record) -> list[Span]:
        found: list[Span] = self.node.wait(promised(self.source.spans(partition, record)))
        return found


def journal(node: JourneyNode) -> list[tuple[Partition, Record]]:
    node.journal()
    return [
        (partition, record)
        for partition in node.broker.topics.get(JOURNEYS_TOPIC).partitions
        for _, batch in partition.log.batches(0, until_offset=partition.high_watermark)
        for record in decode_batch(batch)
    ]


@pytest.fixture
def node() -> JourneyNode:
    """A node with five messages: all but one are acknowledged, in two steps, and one is refused."""
    node = JourneyNode()
    node.create("orders", 1)
    node.send("a", "b", "c", "d", "e")
    node.journal()
    messages = node.receive(messages_max=5)
    node.journal()
    node.settle("ack", messages[:2])
    node.journal()
    node.settle("reject", messages[2:3], reason="no")
    node.settle("ack", messages[3:])
    node.run_for(2_000)
    return node


def names(spans: list[Span], offset: int) -> list[str]:
    pair = ("messaging.kafka.offset", offset)
    return [one.name for one in spans if pair in one.attributes and one.name.endswith(" orders")]


def test_sampled_messages_and_failures_are_exported(node: JourneyNode) -> None:
    exporting = Exporting(node)
    spans = [one for record in journal(node) for one in exporting.spans(*record)]
    way = ["persist orders", "wait orders", "hold orders"]
    assert names(spans, 0) == names(spans, 3) == way
    assert names(spans, 2) == [*way, "dead_letter orders"]
    assert names(spans, 1) == names(spans, 4) == []
    assert exporting.asked == [(0, 5)], "each message is looked up once"


def test_a_share_of_all_messages_is_exported(node: JourneyNode) -> None:
    exporting = Exporting(node, every=1)
    spans = [one for record in journal(node) for one in exporting.spans(*record)]
    assert len(names(spans, 4)) == len(names(spans, 1)) == 3
    assert [one.links for one in spans if one.name == "persist orders"][1] == (NOT_SAMPLED[:2],)


@pytest.mark.parametrize("every", [0, 1])
def test_an_export_that_begins_anew_after_each_record_sends_the_same_bytes(
    node: JourneyNode, every: int
) -> None:
    records, whole = journal(node), Exporting(node, every)
    for record in records:
        assert encoded(Exporting(node, every).spans(*record)) == encoded(whole.spans(*record))


def test_no_span_is_sent_twice(node: JourneyNode) -> None:
    exporting = Exporting(node, every=2)
    ids = [one.span_id for record in journal(node) for one in exporting.spans(*record)]
    assert len(ids) == len(set(ids)) > 0


def test_a_request_is_what_the_official_classes_read(node: JourneyNode) -> None:
    exporting = Exporting(node, every=1)
    spans = [one for record in journal(node) for one in exporting.spans(*record)]
    read = ExportTraceServiceRequest.FromString(encoded(spans))
    [resource] = read.resource_spans
    [scope] = resource.scope_spans
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == {"a": "b"}
    assert (scope.scope.name, scope.scope.version) == ("goqueue", "1.0")
    assert scope.schema_url == resource.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    for ours, theirs in zip(spans, scope.spans, strict=True):
        assert (theirs.trace_id, theirs.span_id) == ours[:2]
        assert theirs.parent_span_id == ours.parent_id
        assert (theirs.name, theirs.kind) == (ours.name, ours.kind)
        assert theirs.start_time_unix_nano == ours.start_ms * 1_000_000
        assert theirs.end_time_unix_nano == ours.end_ms * 1_000_000
        found = [
            (one.key, one.value.string_value or one.value.int_value) for one in theirs.attributes
        ]
        assert found == list(ours.attributes)
        events = [(one.name, one.time_unix_nano) for one in theirs.events]
        assert events == [(one.name, one.time_ms * 1_000_000) for one in ours.events]
        assert [(one.trace_id, one.span_id) for one in theirs.links] == list(ours.links)
        assert (theirs.status.message, theirs.status.code) == (ours.error, 2 if ours.error else 0)


def encoded(spans: list[Span]) -> bytes:
    return request({"a": "b"}, "1.0", spans)
