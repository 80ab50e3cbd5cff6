"""The options of a stream that reads topics as a queue group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from goqueue.model.errors import InvalidRequest
from goqueue.spark.access import NAMES as ACCESS_NAMES
from goqueue.spark.access import read_access
from goqueue.spark.options import BOOTSTRAP_DEFAULT, SPLIT_BYTES_DEFAULT, OptionReader, ReadOptions
from goqueue.spark.sink.options import WriteOptions, located

GROUP_OPTION = "queue.group"
MESSAGES_DEFAULT = 10_000
# The checkpoint stores non-adjacent messages of an epoch one by one.
MESSAGES_MAX = 100_000
HOLD_MS_DEFAULT = 15 * 60 * 1000
HOLD_MS_MIN = 1_000

_NAMES = (
    "bootstrap.servers",
    "failOnDataLoss",
    "http.address",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "maxMessagesPerTrigger",
    "maxRecordsPerPartition",
    "minPartitions",
    "queue.group",
    "queue.hold",
    "splitBytes",
    "subscribe",
    "topic",
    *ACCESS_NAMES,
)
# Options of offset streams that do not apply here: the group tracks what was delivered.
_NOT_OF_QUEUES = (
    "assign",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "group",
    "kafka.group.id",
    "kafka.isolation.level",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "partitions",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "subscribePattern",
    "view",
)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Which messages of which group a stream takes, and how its tasks read them."""

    read: ReadOptions
    group: str
    http: str = ""  # address of the broker's HTTP API, where messages are received
    messages_max: int = MESSAGES_DEFAULT
    hold_ms: int = HOLD_MS_DEFAULT


def is_queue(options: Mapping[str, str]) -> bool:
    """Return whether these are the options of a queue."""
    return any(name.lower() == GROUP_OPTION for name in options)


def queue_options(options: Mapping[str, str]) -> QueueOptions:
    """Parse the options of a stream; all errors are reported in one `InvalidRequest`."""
    reader = OptionReader(options, (*_NAMES, *_NOT_OF_QUEUES))
    group, topics = reader.text(GROUP_OPTION), _topics(reader)
    if group is None:
        reader.problems.append(f"{GROUP_OPTION} is empty; name the queue group.")
    for name in _NOT_OF_QUEUES:
        if reader.text(name) is not None:
            reader.problems.append(
                f"{name} does not go with {GROUP_OPTION}: the group decides which messages come; "
                "leave one of the two out."
            )
    messages_max = reader.number("maxMessagesPerTrigger") or MESSAGES_DEFAULT
    if messages_max > MESSAGES_MAX:
        reader.problems.append(f"maxMessagesPerTrigger can be at most {MESSAGES_MAX}.")
    hold_ms = reader.duration_ms("queue.hold", HOLD_MS_DEFAULT)
    if hold_ms < HOLD_MS_MIN:
        reader.problems.append("queue.hold is less than a second; an epoch takes longer.")
    read = ReadOptions(
        bootstrap=reader.text("kafka.bootstrap.servers", "bootstrap.servers") or BOOTSTRAP_DEFAULT,
        topics=topics,
        has_headers=reader.flag("includeHeaders", default=False),
        fails_on_data_loss=reader.flag("failOnDataLoss", default=True),
        tasks_min=reader.number("minPartitions") or 0,
        records_per_task_max=reader.number("maxRecordsPerPartition"),
        split_bytes=reader.number("splitBytes", least=1 << 16) or SPLIT_BYTES_DEFAULT,
        access=read_access(reader),
    )
    found = QueueOptions(
        read, group or "", reader.text("http.address") or "", messages_max, hold_ms
    )
    reader.raise_problems()
    return found


def _topics(reader: OptionReader) -> tuple[str, ...]:
    names = [name.strip() for name in (reader.text("subscribe", "topic") or "").split(",")]
    topics = tuple(dict.fromkeys(name for name in names if name))
    if not topics:
        reader.problems.append("Name the topics of the queue with subscribe.")
    return topics


def refuse_table(options: Mapping[str, str]) -> None:
    """Refuse a queue as a table: a table can be read any number of times, a queue once."""
    if is_queue(options):
        raise InvalidRequest(
            f"{GROUP_OPTION} is for streams: what a table has read cannot be acknowledged. Use "
            "spark.readStream, with trigger(availableNow=True) for a single run, or leave it out."
        )


def with_address(options: QueueOptions) -> QueueOptions:
    """Return the options with the HTTP address, requested from the broker if not given."""
    if options.http:
        return options
    read = options.read
    return replace(options, http=located(WriteOptions(read.bootstrap, access=read.access)).http)
