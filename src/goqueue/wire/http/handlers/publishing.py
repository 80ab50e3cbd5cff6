"""Publishing: one message, and many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.promise import Promise
from goqueue.broker.publishing import Outgoing, Published, PublishResult
from goqueue.model.errors import GoQueueError, InternalTopic
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.messages import message_id, to_record
from goqueue.wire.http.problems import problem_of

if TYPE_CHECKING:
    from goqueue.wire.http.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

Results = list[PublishResult]


def publish(front: FrontEnd, call: Call, body: bodies.PublishOne) -> Promise[bodies.Published]:
    topic = call.text("topic")
    record = to_record(body, now_ms=front.now_ms())
    promise: Promise[bodies.Published] = Promise()

    def done(results: Results | None, error: Exception | None) -> None:
        if results is None:
            promise.settle(None, error)
        elif isinstance(results[0], GoQueueError):
            promise.reject(results[0])
        else:
            promise.resolve(_published(topic, results[0]))

    publishing = front.broker.publish(
        topic, [Outgoing(record)], partition=body.partition, waits=body.acks != "none"
    )
    publishing.then(done)
    return promise


async def publish_many(
    front: FrontEnd, call: Call, body: bodies.PublishMany
) -> bodies.PublishedMany:
    """One call for each partition that is named, and one for all messages that name none."""
    topic = call.text("topic")
    if front.broker.topics.get(topic).is_internal:
        raise InternalTopic(topic)
    now_ms = front.now_ms()
    results: dict[int, PublishResult] = {}
    groups: dict[int | None, list[tuple[int, Outgoing]]] = {}
    for index, one in enumerate(body.messages):
        try:
            record = to_record(one, now_ms=now_ms)
        except GoQueueError as error:
            results[index] = error
        else:
            groups.setdefault(one.partition, []).append((index, Outgoing(record)))
    calls = [
        (
            [index for index, _ in numbered],
            front.broker.publish(
                topic,
                [outgoing for _, outgoing in numbered],
                partition=partition,
                waits=body.acks != "none",
            ),
        )
        for partition, numbered in groups.items()
    ]
    # All calls are under way before the first is waited for, so they share their syncs.
    for indexes, promise in calls:
        try:
            results.update(zip(indexes, await promise, strict=True))
        except GoQueueError as error:
            results.update(dict.fromkeys(indexes, error))
    answers = [_result(topic, results[index]) for index in range(len(body.messages))]
    failed = sum(isinstance(one, GoQueueError) for one in results.values())
    return bodies.PublishedMany(results=answers, failed=failed)


def _result(topic: str, result: PublishResult) -> bodies.PublishResult:
    if isinstance(result, GoQueueError):
        return bodies.PublishResult(problem=problem_of(result))
    return bodies.PublishResult(published=_published(topic, result))


def _published(topic: str, result: PublishResult) -> bodies.Published:
    assert not isinstance(result, GoQueueError)
    if isinstance(result, Published):
        return bodies.Published(
            id=message_id(topic, result.partition, result.offset),
            topic=topic,
            partition=result.partition,
            offset=result.offset,
            timestamp=result.timestamp_ms,
        )
    return bodies.Published(topic=topic, schedule_id=result.schedule_id, deliver_at=result.due_ms)
