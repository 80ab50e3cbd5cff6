"""Produce: batches go from the socket's buffer to the log as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.promise import Promise
from goqueue.broker.schedule_split import Split
from goqueue.model.errors import GoQueueError, InvalidRecord
from goqueue.wire.kafka.errors import ErrorCode, code_of
from goqueue.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from goqueue.wire.kafka.old_format import convert_old_records

if TYPE_CHECKING:
    from goqueue.broker.topics import Topic
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_ACKS_ALLOWED = (-1, 0, 1)
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_LAST_VERSION_OF_OLD_FORMATS = 2


class _Answer:
    """The answer to one request, complete when all its batches are committed."""

    __slots__ = ("_promise", "_response", "_waiting")

    def __init__(self, response: ProduceResponse) -> None:
        self._response = response
        self._waiting = 1
        self._promise: Promise[ProduceResponse] = Promise()

    def wait_for(self, result: PartitionProduceResponse) -> _Pending:
        self._waiting += 1
        return _Pending(self, result)

    def one_done(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._promise.resolve(self._response)

    def finish(self) -> Promise[ProduceResponse]:
        self.one_done()
        return self._promise


class _Pending:
    """One partition's batch on its way to being committed."""

    __slots__ = ("_answer", "_result")

    def __init__(self, answer: _Answer, result: PartitionProduceResponse) -> None:
        self._answer = answer
        self._result = result

    def __call__(self, error: GoQueueError | None) -> None:
        if error is not None:
            self._result.error_code = code_of(error)
            self._result.error_message = str(error)
            self._result.base_offset = -1
        self._answer.one_done()


def produce(
    front: FrontEnd, call: Call, request: ProduceRequest
) -> Promise[ProduceResponse] | None:
    """Store every batch; answer when all are committed, or not at all if the client says so."""
    response = ProduceResponse(responses=[])
    answer = _Answer(response)
    for data in request.topic_data:
        topic = _find_topic(front, call, data.name, data.topic_id)
        results: list[PartitionProduceResponse] = []
        for one in data.partition_data:
            result = PartitionProduceResponse(index=one.index, base_offset=-1)
            results.append(result)
            try:
                _append(front, call, request, topic, one, result, answer)
            except GoQueueError as error:
                result.error_code = code_of(error)
                result.error_message = str(error)
        response.responses.append(
            TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=results
            )
        )
    if request.acks == 0:
        if any(one.error_code for topic in response.responses for one in topic.partition_responses):
            # The only way to tell a client that wants no answers.
            call.connection.refuse("an unacknowledged batch could not be stored")
        call.answer_nothing()
        return None
    return answer.finish()


def _find_topic(front: FrontEnd, call: Call, name: str, topic_id: bytes) -> Topic | GoQueueError:
    try:
        if call.version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            return front.broker.topics.get_by_id(topic_id)
        return front.broker.topics.get(name)
    except GoQueueError as error:
        return error


def _append(
    front: FrontEnd,
    call: Call,
    request: ProduceRequest,
    topic: Topic | GoQueueError,
    data: PartitionProduceData,
    result: PartitionProduceResponse,
    answer: _Answer,
) -> None:
    if isinstance(topic, GoQueueError):
        raise topic
    if request.acks not in _ACKS_ALLOWED:
        result.error_code = ErrorCode.INVALID_REQUIRED_ACKS
        return
    partition = topic.partition(data.index)
    records = data.records
    if not records:
        raise InvalidRecord("A produce request must bring a batch for each of its partitions.")
    if call.version <= _LAST_VERSION_OF_OLD_FORMATS:
        records = convert_old_records(memoryview(records))
    appended = front.broker.produce(topic, partition, memoryview(records))
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.timestamp_ms
    result.log_start_offset = partition.log.start_offset
    if request.acks == 0:
        return
    if isinstance(appended, Split):
        appended.when_committed(answer.wait_for(result))
    else:
        partition.when_committed(appended.last_offset, answer.wait_for(result))
