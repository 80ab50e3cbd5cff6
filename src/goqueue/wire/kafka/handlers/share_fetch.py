"""ShareFetch and ShareAcknowledge: records that a share group leases, and what became of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.share_groups import ShareFetched, SharePart
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import (
    AccessDenied,
    CorruptBatch,
    GoQueueError,
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    StorageFailed,
    UnknownTopicId,
)
from goqueue.model.share_groups import ShareAcknowledge, ShareFetch, ShareWanted
from goqueue.wire.kafka.errors import code_of
from goqueue.wire.kafka.fetched_records import RecordsWriter
from goqueue.wire.kafka.messages import share_acknowledge as acknowledged
from goqueue.wire.kafka.messages.share_fetch import (
    AcquiredRecords,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from goqueue.wire.kafka.share_places import Acks, Leaders, Place, Places, fetch_code
from goqueue.wire.kafka.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PartitionRef,
    SessionKey,
    ShareSession,
)

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_MEMBER_ID_CHARS_MAX = 36
_RECORD_LIMIT = 1
# How long the answer to a client that cannot be served now is put off at most, so that it does not
# ask again at once.
_PAUSE_MS_MAX = 5_000

_log = logging.getLogger(__name__)


async def share_fetch(
    front: FrontEnd, call: Call, request: ShareFetchRequest
) -> ShareFetchResponse:
    try:
        key = _key(call, request.group_id, request.member_id)
        _check_renewal(request)
        session = _session(front, call, request, key)
    except ShareSessionLimitReached as error:
        await _pause(front, call, request.max_wait_ms)
        return _refused(error)
    except GoQueueError as error:
        return _refused(error)
    places = Places(front, call)
    acks = Acks(places, request.topics, may_renew=request.is_renew_ack)
    answer = _Answer(places, session, is_whole=request.share_session_epoch == INITIAL_EPOCH)
    wanted = answer.find(session.in_turn()) if _reads(call, request) else ()
    try:
        fetched = await _fetch(front, call, request, wanted, acks, session_id=session.id)
        acks.settled([one.error for one in fetched.acked])
        session.lock_ms = fetched.lock_ms or session.lock_ms
        answer.add(fetched.parts)
    except GoQueueError as error:
        if isinstance(error, AccessDenied):
            front.share_sessions.close(session)
        if not error.retryable:
            return _refused(error)
        # There may be records later. Clients expect an answer without any until then.
        acks.failed(error)
        await _pause(front, call, request.max_wait_ms)
    if request.share_session_epoch == FINAL_EPOCH:
        await _end(front, call, session)
    answer.add_acks(acks)
    return answer.response()


def _key(call: Call, group: str | None, member: str | None) -> SessionKey:
    if group is None:
        raise InvalidRequest("The request names no group.")
    if not member or len(member) > _MEMBER_ID_CHARS_MAX:
        raise InvalidRequest(f"The id of a member has 1 to {_MEMBER_ID_CHARS_MAX} characters.")
    return SessionKey(call.session.tenant, call.session.principal, group, member)


def _check_renewal(request: ShareFetchRequest) -> None:
    """Raise if a request that renews leases asks for records too."""
    asks = request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    if request.is_renew_ack and asks:
        raise InvalidRequest(
            "A request that renews leases fetches nothing: its MaxBytes, MinBytes, MaxRecords and "
            "MaxWaitMs must be 0."
        )


def _session(
    front: FrontEnd, call: Call, request: ShareFetchRequest, key: SessionKey
) -> ShareSession:
    sessions = front.share_sessions
    if request.share_session_epoch == FINAL_EPOCH:
        return sessions.find(key)
    named = [(topic.topic_id, one) for topic in request.topics for one in topic.partitions]
    wanted = [(topic_id, one.partition_index) for topic_id, one in named]
    if request.share_session_epoch == INITIAL_EPOCH:
        has_acks = any(one.acknowledgement_batches for _, one in named)
        session = sessions.open(key, wanted, has_acks=has_acks)
        _hold(front, call, session)
        return session
    forgotten = [
        (topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    return sessions.resume(key, request.share_session_epoch, wanted, forgotten)


def _reads(call: Call, request: ShareFetchRequest) -> bool:
    """Whether a request gets records. A client over its quota is muted instead."""
    if request.share_session_epoch == FINAL_EPOCH or request.is_renew_ack:
        return False
    meter = call.connection.grants.meter
    wait_ms = 0 if meter is None else meter.fetch_wait_ms()
    if wait_ms:
        call.connection.mute(wait_ms)
    return request.max_records > 0 and not wait_ms


async def _fetch(
    front: FrontEnd,
    call: Call,
    request: ShareFetchRequest,
    wanted: Sequence[ShareWanted],
    acks: Acks,
    *,
    session_id: int,
) -> ShareFetched:
    """Acknowledge, then lease records, now or when some arrive."""
    meter = call.connection.grants.meter
    bytes_max = min(max(0, request.max_bytes), front.limits.fetch_bytes_max)
    if meter is not None:
        bytes_max = meter.fetch_bytes_max(bytes_max)
    cancellation = Cancellation()
    promise = front.gate.share_groups.fetch(
        call.session,
        call=ShareFetch(
            group_id=request.group_id or "",
            member_id=request.member_id or "",
            wanted=tuple(wanted),
            acks=tuple(acks.wanted),
            wait_ms=max(0, request.max_wait_ms) if wanted else 0,
            bytes_max=bytes_max,
            records_max=request.max_records,
            is_record_limited=request.share_acquire_mode == _RECORD_LIMIT,
            batch_records=max(0, request.batch_size),
            is_new_session=request.share_session_epoch == INITIAL_EPOCH,
            session_id=session_id,
        ),
        cancellation=cancellation,
    )
    if promise.is_done:
        fetched = await promise
    else:
        waits_since = perf_counter()
        call.connection.cancellations[promise] = cancellation.cancel
        if not acks.wanted:
            # The owner of the group may be another node, which answers a call that is cancelled
            # without saying what has become of its acknowledgements.
            call.connection.long_poll(call, cancellation.cancel)
        try:
            fetched = await promise
        finally:
            call.connection.cancellations.pop(promise, None)
            call.connection.long_polls.pop(call, None)
            call.leave_out(perf_counter() - waits_since)
    if meter is not None:
        meter.consumed(*_size_and_count(fetched))
    return fetched


def _size_and_count(fetched: ShareFetched) -> tuple[int, int]:
    """The bytes of batches and the leased records."""
    size = sum(one.length for part in fetched.parts for one in part.batches)
    count = sum(one.last - one.first + 1 for part in fetched.parts for one in part.acquired)
    return size, count


async def _pause(front: FrontEnd, call: Call, wait_ms: int) -> None:
    """Wait as long as the client wants to wait for records."""
    pause: Promise[None] = Promise()
    waits_since = perf_counter()

    def end() -> None:
        if not pause.is_done:
            pause.resolve(None)

    front.gate.clock.call_later(max(0, min(wait_ms, _PAUSE_MS_MAX)), end)
    call.connection.long_poll(call, end)
    await pause
    call.connection.long_polls.pop(call, None)
    call.leave_out(perf_counter() - waits_since)


def _refused(error: GoQueueError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code_of(error), error_message=str(error), responses=[])


class _Answer:
    """The partitions of a response to ShareFetch."""

    __slots__ = ("_is_whole", "_leaders", "_partitions", "_places", "_refs", "_session")

    def __init__(self, places: Places, session: ShareSession, *, is_whole: bool) -> None:
        """A whole answer contains all partitions of the session, others only those with news."""
        self._places = places
        self._session = session
        self._is_whole = is_whole
        self._leaders = Leaders(places)
        self._refs: dict[Place, PartitionRef] = {}
        self._partitions: dict[PartitionRef, PartitionData] = {}

    def find(self, refs: Sequence[PartitionRef]) -> list[ShareWanted]:
        """Return the partitions that exist; the answer has errors for the others."""
        wanted, overdue = [], self._session.overdue
        for ref in refs:
            place = self._places.find(ref)
            if place is None:
                self._fail(ref, UnknownTopicId(ref[0].hex()))
                continue
            if self._is_whole or ref in overdue:
                overdue.discard(ref)
                self._of(ref)
            self._refs[place] = ref
            wanted.append(ShareWanted(*place))
        return wanted

    def add(self, parts: Sequence[SharePart]) -> None:
        """Add what was fetched from the partitions that `find` returned."""
        writer = RecordsWriter(one for part in parts for one in part.batches)
        for part in parts:
            ref = self._refs[part.topic, part.partition]
            error = part.error
            if error is None and part.acquired:
                error = self._add_records(self._of(ref), part, writer)
            if error is not None:
                self._fail(ref, error)

    def _add_records(
        self, data: PartitionData, part: SharePart, writer: RecordsWriter
    ) -> GoQueueError | None:
        try:
            data.records = writer.joined(part.batches)  # type: ignore[assignment]
        except CorruptBatch as error:
            return error
        except OSError as error:
            return StorageFailed(str(error))
        data.acquired_records = [
            AcquiredRecords(one.first, one.last, one.delivery_count) for one in part.acquired
        ]
        return None

    def add_acks(self, acks: Acks) -> None:
        """Add what has become of acknowledgements."""
        for ref, error in acks.errors.items():
            data = self._of(ref)
            if error is not None:
                data.acknowledge_error_code = code_of(error)
                data.acknowledge_error_message = str(error)
                self._leaders.name_in(data, ref, error)

    def response(self) -> ShareFetchResponse:
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in self._partitions.items():
            if topic_id not in topics:
                topics[topic_id] = ShareFetchableTopicResponse(topic_id, [])
            topics[topic_id].partitions.append(data)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._session.lock_ms,
            responses=list(topics.values()),
            node_endpoints=[NodeEndpoint(*one) for one in self._leaders.endpoints()],
        )

    def _of(self, ref: PartitionRef) -> PartitionData:
        data = self._partitions.get(ref)
        if data is None:
            data = self._partitions[ref] = PartitionData(partition_index=ref[1])
        return data

    def _fail(self, ref: PartitionRef, error: GoQueueError) -> None:
        code = fetch_code(error)
        if not code:
            return
        data = self._of(ref)
        data.error_code, data.error_message = code, str(error)
        self._leaders.name_in(data, ref, error)
        self._session.overdue.add(ref)  # It is told too when there is no error any more.


# ShareAcknowledge


async def share_acknowledge(
    front: FrontEnd, call: Call, request: acknowledged.ShareAcknowledgeRequest
) -> acknowledged.ShareAcknowledgeResponse:
    try:
        key = _key(call, request.group_id, request.member_id)
        session = _acknowledging(front, key, request.share_session_epoch)
    except GoQueueError as error:
        return _not_acknowledged(error)
    places = Places(front, call)
    acks = Acks(places, request.topics, may_renew=request.is_renew_ack)
    refusal: GoQueueError | None = None
    try:
        await _acknowledge(front, call, key, acks)
    except GoQueueError as error:
        refusal = error
    if request.share_session_epoch == FINAL_EPOCH:
        await _end(front, call, session)
    if refusal is not None:
        return _not_acknowledged(refusal)
    return _acknowledged(places, acks, session.lock_ms)


def _acknowledging(front: FrontEnd, key: SessionKey, epoch: int) -> ShareSession:
    """Return the session of a request that only acknowledges."""
    if epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpoch("Only a fetch opens a share session.")
    sessions = front.share_sessions
    return sessions.find(key) if epoch == FINAL_EPOCH else sessions.resume(key, epoch)


async def _acknowledge(front: FrontEnd, call: Call, key: SessionKey, acks: Acks) -> None:
    outcomes = await front.gate.share_groups.acknowledge(
        call.session,
        call=ShareAcknowledge(group_id=key.group, member_id=key.member, acks=tuple(acks.wanted)),
    )
    acks.settled([one.error for one in outcomes])


def _not_acknowledged(error: GoQueueError) -> acknowledged.ShareAcknowledgeResponse:
    return acknowledged.ShareAcknowledgeResponse(
        error_code=code_of(error), error_message=str(error), responses=[]
    )


def _acknowledged(
    places: Places, acks: Acks, lock_ms: int
) -> acknowledged.ShareAcknowledgeResponse:
    leaders = Leaders(places)
    topics: dict[bytes, acknowledged.ShareAcknowledgeTopicResponse] = {}
    for ref, error in acks.errors.items():
        topic_id, number = ref
        if topic_id not in topics:
            topics[topic_id] = acknowledged.ShareAcknowledgeTopicResponse(topic_id, [])
        data = acknowledged.PartitionData(number)
        if error is not None:
            data.error_code, data.error_message = code_of(error), str(error)
            leaders.name_in(data, ref, error)
        topics[topic_id].partitions.append(data)
    return acknowledged.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=[acknowledged.NodeEndpoint(*one) for one in leaders.endpoints()],
    )


# The end of a session


def _hold(front: FrontEnd, call: Call, session: ShareSession) -> None:
    """Let a session end with the connection that has opened it."""
    connection = call.connection

    def let_go() -> None:
        connection.cancellations.pop(session, None)

    session.let_go = let_go
    connection.cancellations[session] = partial(_lose, front, call, session)


def _lose(front: FrontEnd, call: Call, session: ShareSession) -> None:
    """Return the records of a client that has hung up."""
    if front.share_sessions.close(session):
        _release(front, call, session).then(_report)


async def _end(front: FrontEnd, call: Call, session: ShareSession) -> None:
    """Close a session as its member asks, and return the records that it has not settled."""
    front.share_sessions.close(session)
    try:
        await _release(front, call, session)
    except GoQueueError as error:
        _report(None, error)


def _release(front: FrontEnd, call: Call, session: ShareSession) -> Promise[None]:
    """Return what the member of a closed session holds. As in Kafka, its delivery counts."""
    found = map(Places(front, call).find, session.partitions)
    return front.gate.share_groups.release(
        call.session,
        group=session.key.group,
        member_id=session.key.member,
        partitions=tuple(ShareWanted(*one) for one in found if one is not None),
        session_id=session.id,
        is_counted=True,
    )


def _report(_: None, error: Exception | None) -> None:
    if error is not None:
        _log.info("records of a closed share session stay leased until they expire: %s", error)
