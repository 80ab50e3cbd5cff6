"""Publishing: single messages and batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, cast

from goqueue.broker.gate.areas.records import Published, PublishResult, Scheduled
from goqueue.loop.promise import Promise
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import problem_of
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.messages import check_header_count, message_id, to_record

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

Results = list[PublishResult]


def publish(front: FrontEnd, call: Call, body: bodies.PublishOne) -> Promise[bodies.Published]:
    topic = call.text("topic")
    now_ms = front.now_ms()
    promise: Promise[bodies.Published] = Promise()

    def done(results: Results | None, error: Exception | None) -> None:
        if results is None:
            promise.settle(None, error)
        elif isinstance(results[0], GoQueueError):
            promise.reject(results[0])
        else:
            promise.resolve(_published(topic, results[0]))

    front.gate.records.publish(
        call.session,
        topic=topic,
        records=[to_record(body, now_ms=now_ms, trace_parent=call.trace_parent)],
        partition=body.partition,
        waits=body.acks != "none",
        now_ms=now_ms,
    ).then(done)
    return promise


async def publish_many(
    front: FrontEnd, call: Call, body: bodies.PublishMany
) -> bodies.PublishedMany:
    """One call per given partition, and one for all messages without a partition."""
    topic = call.text("topic")
    await front.gate.records.prepare(call.session, topic=topic)
    check_header_count(body.messages)
    now_ms = front.now_ms()
    results: list[PublishResult | None] = [None] * len(body.messages)
    groups: dict[int | None, tuple[list[int], list[Record]]] = {}
    for index, one in enumerate(body.messages):
        try:
            record = to_record(one, now_ms=now_ms, trace_parent=call.trace_parent)
        except GoQueueError as error:
            results[index] = error
            continue
        group = groups.get(one.partition)
        if group is None:
            group = groups[one.partition] = ([], [])
        group[0].append(index)
        group[1].append(record)
    waits = body.acks != "none"
    calls = [
        (
            indexes,
            front.gate.records.publish(
                call.session,
                topic=topic,
                records=records,
                partition=partition,
                waits=waits,
                now_ms=now_ms,
            ),
        )
        for partition, (indexes, records) in groups.items()
    ]
    # All calls are started before the first is awaited, so they share a group commit.
    for indexes, promise in calls:
        try:
            outcomes = await promise
        except GoQueueError as error:
            outcomes = [error] * len(indexes)
        for index, outcome in zip(indexes, outcomes, strict=True):
            results[index] = outcome
    assert None not in results, "every message has a result"
    return published_many(repeat(topic), cast(list[PublishResult], results))


def published_many(topics: Iterable[str], results: Sequence[PublishResult]) -> bodies.PublishedMany:
    """The results of messages, each with its topic."""
    return bodies.PublishedMany(
        results=[_result(topic, result) for topic, result in zip(topics, results, strict=False)],
        failed=sum(isinstance(one, GoQueueError) for one in results),
    )


def _result(topic: str, result: PublishResult) -> bodies.PublishResult:
    if isinstance(result, GoQueueError):
        return bodies.PublishResult(problem=problem_of(result))
    return bodies.PublishResult(_published(topic, result))


def _published(topic: str, result: Published | Scheduled) -> bodies.Published:
    if isinstance(result, Scheduled):
        schedule_id, due_ms = result
        return bodies.Published(topic, schedule_id=schedule_id, deliver_at=due_ms)
    partition, offset, timestamp_ms = result
    return bodies.Published(
        topic, message_id(topic, partition, offset), partition, offset, timestamp_ms
    )
