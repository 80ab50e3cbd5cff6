"""Produce: batches go from the socket's buffer to the log unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.grants import Stored
from goqueue.loop.promise import Promise
from goqueue.model import errors
from goqueue.model.errors import GoQueueError, InvalidRecord
from goqueue.wire.kafka.errors import ErrorCode, transaction_code
from goqueue.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from goqueue.wire.kafka.old_format import convert_old_records

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_ACKS_ALL = -1
_ACKS_ALLOWED = (_ACKS_ALL, 0, 1)
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_LAST_VERSION_OF_OLD_FORMATS = 2
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_JOINS = 12
# Coordinator errors are temporary. Not every producer retries them as such, but all retry a batch
# for which there were too few replicas, without refreshing their metadata first.
_PASSING = (
    errors.ConcurrentTransactions,
    errors.CoordinatorLoading,
    errors.CoordinatorNotAvailable,
    errors.NotCoordinator,
)


class _Answer:
    """The response to one request, complete when all its batches are committed."""

    __slots__ = ("_promise", "_response", "_waiting", "version")

    def __init__(self, response: ProduceResponse, version: int) -> None:
        self.version = version
        self._response = response
        self._waiting = 1
        self._promise: Promise[ProduceResponse] = Promise()

    def wait_for(self, result: PartitionProduceResponse, stored: Stored) -> _Pending:
        self._waiting += 1
        return _Pending(self, result, stored)

    def one_done(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._promise.resolve(self._response)

    def finish(self) -> Promise[ProduceResponse]:
        self.one_done()
        return self._promise


class _Pending:
    """The batch of one partition that is not committed yet."""

    __slots__ = ("_answer", "_result", "_stored")

    def __init__(self, answer: _Answer, result: PartitionProduceResponse, stored: Stored) -> None:
        self._answer = answer
        self._result = result
        self._stored = stored

    def __call__(self, error: GoQueueError | None) -> None:
        if error is None:
            self._result.base_offset = self._stored.base_offset
            self._result.log_append_time_ms = self._stored.timestamp_ms
        else:
            _refuse(self._result, error, self._answer.version)
        self._answer.one_done()


def produce(
    front: FrontEnd, call: Call, request: ProduceRequest
) -> Promise[ProduceResponse] | None:
    """Store every batch; respond when all are committed, or not at all with acks=0."""
    response = ProduceResponse(responses=[])
    answer = _Answer(response, call.version)
    for data in request.topic_data:
        uses_ids = call.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        topic = data.topic_id if uses_ids else data.name
        results: list[PartitionProduceResponse] = []
        for one in data.partition_data:
            result = PartitionProduceResponse(index=one.index, base_offset=-1)
            results.append(result)
            try:
                _append(call, request, topic, one, result, answer)
            except GoQueueError as error:
                _refuse(result, error, call.version)
        response.responses.append(
            TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=results
            )
        )
    if request.acks == 0:
        if any(one.error_code for topic in response.responses for one in topic.partition_responses):
            # The only way to report an error to a client that requested no response.
            call.connection.refuse("an unacknowledged batch could not be stored")
        call.answer_nothing()
        return None
    return answer.finish()


def _append(
    call: Call,
    request: ProduceRequest,
    topic: str | bytes,
    data: PartitionProduceData,
    result: PartitionProduceResponse,
    answer: _Answer,
) -> None:
    writer = call.connection.grants.writer(topic, data.index)
    if request.acks not in _ACKS_ALLOWED:
        result.error_code = ErrorCode.INVALID_REQUIRED_ACKS
        return
    shortage = writer.shortage
    if request.acks == _ACKS_ALL and shortage is not None:
        raise writer.refuse(data.records or b"", shortage)
    records = data.records
    if not records:
        raise InvalidRecord("A produce request must bring a batch for each of its partitions.")
    if call.version <= _LAST_VERSION_OF_OLD_FORMATS:
        records = convert_old_records(memoryview(records))
    is_transactional = request.transactional_id is not None
    if request.transactional_id is not None:
        call.connection.grants.check_transactional_id(request.transactional_id)
        # The batch may have to wait, and the socket's buffer is reused.
        records = bytearray(records)
    stored = writer.produce(
        memoryview(records),
        transactional_id=request.transactional_id,
        joins_transaction=is_transactional and call.version >= _FIRST_VERSION_THAT_JOINS,
    )
    result.log_start_offset = writer.log_start_offset
    if request.acks == 0:
        return
    pending = answer.wait_for(result, stored)
    writer.when_stored(stored, pending, is_replicated=request.acks == _ACKS_ALL)


def _refuse(result: PartitionProduceResponse, error: GoQueueError, version: int) -> None:
    if isinstance(error, _PASSING):
        result.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        knows_abortable = version >= _FIRST_VERSION_WITH_ABORTABLE
        # In this API a fenced producer has always had the error code of an old epoch.
        result.error_code = transaction_code(
            error, knows_fenced=False, knows_abortable=knows_abortable
        )
    result.error_message = str(error)
    result.base_offset = -1
    if isinstance(error, errors.RecordFaults):
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.faults.items()
        ]
