"""Fetch: whole batches from the log, at once or when enough are available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from goqueue.broker.gate.grants import Wanted
from goqueue.broker.gate.views import FetchedData
from goqueue.loop.promise import Promise
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionRef,
    SessionPartition,
)
from goqueue.wire.kafka.fetched_records import RecordsWriter
from goqueue.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from goqueue.wire.parts import FileRange

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_RACKS = 11
_READ_COMMITTED = 1


def fetch(front: FrontEnd, call: Call, request: FetchRequest) -> Promise[FetchResponse]:
    promise: Promise[FetchResponse] = Promise()
    uses_topic_ids = call.version >= _FIRST_VERSION_WITH_TOPIC_IDS
    meter = call.connection.grants.meter
    throttle_ms = 0 if meter is None else meter.fetch_wait_ms()
    if throttle_ms and request.session_epoch == INITIAL_EPOCH:
        promise.resolve(_throttled(call, throttle_ms, NO_SESSION))
        return promise
    try:
        session = _session(front, call, request, uses_topic_ids=uses_topic_ids)
    except GoQueueError as error:
        promise.resolve(FetchResponse(error_code=code_of(error), responses=[]))
        return promise
    if throttle_ms:
        promise.resolve(
            _throttled(call, throttle_ms, NO_SESSION if session is None else session.id)
        )
        return promise
    is_incremental = session is not None and request.session_epoch != INITIAL_EPOCH
    places = _places(session, request, uses_topic_ids)
    is_committed_only = request.isolation_level == _READ_COMMITTED
    may_follow = call.version >= _FIRST_VERSION_WITH_RACKS
    wanted = [_want(call, key, place, is_committed_only, may_follow) for key, place in places]
    # A consumer with a closer replica is sent there at once.
    nearer = _nearer(call, places, request.rack_id) if request.rack_id else {}

    waits_since: float | None = None

    def done(results: Sequence[FetchedData]) -> None:
        call.connection.cancellations.pop(promise, None)
        if waits_since is not None:
            call.leave_out(perf_counter() - waits_since)
        if call.connection.is_closed:
            return
        response = FetchResponse(
            session_id=session.id if session is not None else NO_SESSION,
            responses=_topics(places, results, session, is_incremental, is_committed_only, nearer),
        )
        promise.resolve(response)

    waiting = call.connection.grants.fetch(
        wanted,
        bytes_min=0 if nearer else request.min_bytes,
        bytes_max=min(request.max_bytes, front.limits.fetch_bytes_max),
        wait_ms=request.max_wait_ms,
        done=done,
    )
    if not promise.is_done:
        waits_since = perf_counter()
        call.connection.cancellations[promise] = waiting.cancel
    return promise


def _throttled(call: Call, throttle_ms: int, session_id: int) -> FetchResponse:
    """The response to a fetch over the quota: empty, as KIP-219 has it."""
    call.connection.mute(throttle_ms)
    return FetchResponse(session_id=session_id, responses=[])


def _session(
    front: FrontEnd, call: Call, request: FetchRequest, *, uses_topic_ids: bool
) -> FetchSession | None:
    if call.version < _FIRST_VERSION_WITH_SESSIONS:
        return None
    owner = (call.session.tenant, call.session.principal)
    sessions = front.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return sessions.open(request, uses_topic_ids=uses_topic_ids, owner=owner)
    return sessions.resume(request, uses_topic_ids=uses_topic_ids, owner=owner)


Place = tuple[PartitionRef, FetchPartition]


def _places(
    session: FetchSession | None, request: FetchRequest, uses_topic_ids: bool
) -> list[Place]:
    if session is not None:
        return [(key, one.wanted) for key, one in session.partitions.items()]
    return [
        ((topic.topic_id if uses_topic_ids else topic.topic, one.partition), one)
        for topic in request.topics
        for one in topic.partitions
    ]


def _want(
    call: Call,
    key: PartitionRef,
    wanted: FetchPartition,
    is_committed_only: bool,
    may_follow: bool,
) -> Wanted:
    try:
        reader = call.connection.grants.reader(*key)
    except GoQueueError as error:
        return Wanted(error, wanted.fetch_offset, wanted.partition_max_bytes)
    return reader.want(
        wanted.fetch_offset,
        wanted.partition_max_bytes,
        wanted.current_leader_epoch,
        is_committed_only=is_committed_only,
        may_follow=may_follow,
    )


def _nearer(call: Call, places: list[Place], rack: str) -> dict[PartitionRef, int]:
    """The followers that a consumer in a rack should read from, if any."""
    racks = call.connection.grants.racks(rack)
    found: dict[PartitionRef, int] = {}
    if not racks:
        return found
    for key, _ in places:
        try:
            node = call.connection.grants.reader(*key).nearer(racks)
        except GoQueueError:
            continue  # The response for this partition is an error.
        if node is not None:
            found[key] = node
    return found


def _topics(
    places: list[Place],
    results: Sequence[FetchedData],
    session: FetchSession | None,
    is_incremental: bool,
    is_committed_only: bool,
    nearer: Mapping[PartitionRef, int],
) -> list[FetchableTopicResponse]:
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    served: list[PartitionRef] = []
    writer = RecordsWriter(one.batches for one in results)
    for (key, _), result in zip(places, results, strict=True):
        if nearer and key in nearer and result.error is None:
            data = _elsewhere(key[1], result, nearer[key])
        else:
            data = _partition_data(key[1], result, is_committed_only, writer)
        known = session.partitions.get(key) if session is not None else None
        if known is not None and not _has_news(known, data) and is_incremental:
            continue
        if data.records:
            served.append(key)
        topic = topics.get(key[0])
        if topic is None:
            topic = FetchableTopicResponse(partitions=[])
            if isinstance(key[0], bytes):
                topic.topic_id = key[0]
            else:
                topic.topic = key[0]
            topics[key[0]] = topic
        topic.partitions.append(data)
    if session is not None:
        session.serve_last(served)
    return list(topics.values())


def _has_news(known: SessionPartition, data: PartitionData) -> bool:
    has_news = (
        bool(data.records)
        or data.error_code != 0
        or data.high_watermark != known.high_watermark
        or data.log_start_offset != known.log_start_offset
        or data.preferred_read_replica >= 0
    )
    # Errors are repeated in each response, so the session does not remember them.
    known.high_watermark = -1 if data.error_code else data.high_watermark
    known.log_start_offset = data.log_start_offset
    return has_news


def _partition_data(
    number: int, result: FetchedData, is_committed_only: bool, writer: RecordsWriter
) -> PartitionData:
    partition, error = result.partition, result.error
    records: bytes | FileRange = b""
    if error is None and result.batches is not None:
        try:
            records = writer.records(result.batches)
        except (CorruptBatch, OSError) as failure:
            assert partition is not None
            error = partition.unreadable(failure, result.batches.offset)
    if partition is None:
        code = code_of(error) if error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        return PartitionData(
            partition_index=number, error_code=code, high_watermark=-1, records=b""
        )
    return PartitionData(
        partition_index=number,
        error_code=code_of(error) if error is not None else 0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.start_offset,
        aborted_transactions=_aborted(result) if is_committed_only else None,
        records=records,  # type: ignore[arg-type]
    )


def _elsewhere(number: int, result: FetchedData, node: int) -> PartitionData:
    """Send the consumer to a closer replica."""
    partition = result.partition
    assert partition is not None
    return PartitionData(
        partition_index=number,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.start_offset,
        aborted_transactions=None,
        preferred_read_replica=node,
        records=b"",
    )


def _aborted(result: FetchedData) -> list[AbortedTransaction]:
    """The aborted transactions: the client drops a producer's batches from there to its marker."""
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in result.aborted
    ]
