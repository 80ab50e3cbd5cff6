"""The options of the data source, named as in Spark's Kafka source.

All options are validated before the first request to a broker, and all errors are reported
together. Spark passes option names in lower case, so they are looked up in lower case.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.spark.access import NAMES as ACCESS_NAMES
from goqueue.spark.access import OPEN, Access, read_access
from goqueue.spark.journeys.options import ALL_EVENTS, EventSelection, is_given, read_selection
from goqueue.spark.journeys.options import NAMES as JOURNEY_NAMES
from goqueue.spark.typed.options import NAMES as TYPING_NAMES
from goqueue.spark.typed.options import TypingOptions, read_typing

EARLIEST = -2  # the two ends in Kafka's JSON of offsets
LATEST = -1
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
TRIGGER_DELAY_MS_DEFAULT = 15 * 60 * 1000  # as in Kafka's source
GROUP_PREFIX_DEFAULT = "spark"
SPLIT_BYTES_DEFAULT = 128 << 20  # a Python task costs about 40 ms, whatever it reads

_NUMBER_MAX = (1 << 63) - 1

# Offsets by topic and partition, from JSON such as `{"orders": {"0": 23, "1": -2}}`.
ByPartition = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins or ends: one position for all partitions, or an offset or time for each.

    `fallback` is EARLIEST or LATEST and applies where the others are not given. `offset` is a bound
    for all partitions, which need not contain it: each is read as far as it goes. A time after the
    last record of a partition means its end, unless `needs_match` makes that an error.
    """

    fallback: int
    offset: int | None = None
    offsets: ByPartition = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps: ByPartition = field(default_factory=dict)
    needs_match: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a table or stream of records reads."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    partitions: frozenset[int] | None = None  # None: all partitions of each topic
    start: Start = field(default_factory=lambda: Start(EARLIEST))
    end: Start = field(default_factory=lambda: Start(LATEST))
    has_headers: bool = False
    fails_on_data_loss: bool = True
    is_committed_only: bool = True
    view: str = "records"
    tasks_min: int = 0
    records_per_task_max: int | None = None
    split_bytes: int = SPLIT_BYTES_DEFAULT
    trigger_offsets_min: int | None = None
    trigger_offsets_max: int | None = None
    trigger_bytes_max: int | None = None
    trigger_delay_ms_max: int = TRIGGER_DELAY_MS_DEFAULT
    group_id: str | None = None  # the group under which a stream shows its progress
    group_prefix: str = GROUP_PREFIX_DEFAULT  # prefix of a generated group name
    typing: TypingOptions | None = None  # None: key and value are bytes
    access: Access = OPEN
    events: EventSelection = ALL_EVENTS  # of the view `journeys`


JOURNEYS = "journeys"
VIEWS = ("records", "batches", "audit", JOURNEYS)
_READ_NAMES = (
    "assign",
    "bootstrap.servers",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "group",
    "groupIdPrefix",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafkaConsumer.pollTimeoutMs",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "partitions",
    "splitBytes",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "topic",
    "view",
    *ACCESS_NAMES,
    *JOURNEY_NAMES,
    *TYPING_NAMES,
)
# Consumer options that Kafka's own source refuses too, because it sets them itself.
_DECIDED_HERE = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.enable.auto.commit": "leave it out",
    "kafka.interceptor.classes": "leave it out",
    "kafka.key.deserializer": "keys are bytes; convert the column",
    "kafka.value.deserializer": "values are bytes; convert the column",
}
# Consumer options of Kafka without an effect here are accepted, so that a job can be ported
# unchanged. Of these, those that are not known would have an effect that is missing here.
_SECURITY = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
# Options that Spark itself may add to a query.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname"}
_ENDING_NAMES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


class OptionReader:
    """Reads options one by one and collects their errors."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: Sequence[str],
        *,
        decided_here: Mapping[str, str] = _DECIDED_HERE,
    ) -> None:
        self._decided_here = decided_here
        self._options = {name.lower(): value for name, value in options.items()}
        self.problems: list[str] = []
        spelled = {name.lower(): name for name in known}
        for name in self._options:
            if name in spelled or name in _SPARKS_OWN:
                continue
            if name.startswith("kafka."):
                self._check_consumer_option(name)
                continue
            near = difflib.get_close_matches(name, spelled, n=1)
            hint = f"; did you mean {spelled[near[0]]!r}?" if near else "."
            self.problems.append(f"There is no option {name!r}{hint}")

    def _check_consumer_option(self, name: str) -> None:
        if name in self._decided_here:
            self.problems.append(f"{name} is not supported: {self._decided_here[name]}.")
        if name.startswith(_SECURITY):
            self.problems.append(
                f"{name} is not supported here; the options for TLS and SASL that are: "
                f"{', '.join(ACCESS_NAMES)}."
            )

    def text(self, *names: str) -> str | None:
        """Return the first of these options that is given."""
        for name in names:
            if (value := self._options.get(name.lower())) is not None and value.strip():
                return value.strip()
        return None

    def secret(self, name: str) -> str | None:
        """Return an option exactly as it was given; an empty one too."""
        return self._options.get(name.lower())

    def number(self, name: str, *, least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d+", text) or not least <= int(text) <= _NUMBER_MAX:
            self.problems.append(f"{name} is {text!r}; give a whole number from {least} on.")
            return None
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            self.problems.append(f"{name} is {text!r}; give true or false.")
        return text == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = (self.text(name) or default).lower()
        if text not in choices:
            self.problems.append(f"{name} is {text!r}; give one of {', '.join(choices)}.")
        return text

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Parse milliseconds, or a number with a Spark unit: `90s`, `15min`, `15 minutes`."""
        text = self.text(name)
        if text is None:
            return default_ms
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
        unit = None if found is None else _UNITS_MS.get(found[2] or "ms")
        if found is None or unit is None:
            self.problems.append(f"{name} is {text!r}; give a duration such as 500ms or 15min.")
            return default_ms
        return int(int(found[1]) * unit)

    def numbers(self, name: str) -> frozenset[int] | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d+(\s*,\s*\d+)*", text):
            self.problems.append(f"{name} is {text!r}; give numbers of partitions, as 0,1,5.")
            return None
        return frozenset(int(one) for one in text.split(","))

    def timestamp_ms(self, name: str) -> int | None:
        """Parse milliseconds since 1970, as in Kafka's source, or an RFC 3339 time."""
        text = self.text(name)
        if text is None:
            return None
        if re.fullmatch(r"\d+", text) and int(text) <= _NUMBER_MAX:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.problems.append(
                f"{name} is {text!r}; give milliseconds since 1970 or a time such as "
                "2026-01-31T12:00:00Z."
            )
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)

    def by_partition(self, name: str, *, least: int) -> ByPartition:
        """Parse `{"orders": {"0": 23}}`; None if the option is not given."""
        text = self.text(name)
        return {} if text is None else self._by_partition(name, text, least)

    def start(self, name: str, *, allowed: tuple[int, ...], default: int) -> Start:
        """Parse `earliest`, `latest`, a number, or JSON offsets in which -2 and -1 are the ends."""
        text = self.text(name)
        words = {word: end for word, end in _ENDS.items() if end in allowed}
        if text is None:
            return Start(default)
        if text.lower() in words:
            return Start(words[text.lower()])
        if re.fullmatch(r"\d+", text) and int(text) <= _NUMBER_MAX:
            return Start(default, offset=int(text))
        if text.startswith("{"):
            offsets = self._by_partition(name, text, EARLIEST)
            found = {offset for numbers in offsets.values() for offset in numbers.values()}
            for end in found & (set(_ENDS.values()) - set(allowed)):
                self.problems.append(f"{name} cannot hold {end}; give {_or(words)} or offsets.")
            return Start(default, offsets=offsets)
        self.problems.append(
            f"{name} is {text!r}; give {_or(words)}, a number, or JSON such as "
            '{"orders": {"0": 23}}.'
        )
        return Start(default)

    def assigned(self) -> dict[str, tuple[int, ...]]:
        text = self.text("assign")
        if text is None:
            return {}
        try:
            found = json.loads(text)
            return {
                str(topic): tuple(sorted({_natural(number) for number in numbers}))
                for topic, numbers in found.items()
            }
        except (ValueError, TypeError, AttributeError):
            self.problems.append('assign takes JSON such as {"orders": [0, 1]}.')
            return {}

    def raise_problems(self) -> None:
        if self.problems:
            raise InvalidRequest(" ".join(self.problems))

    def _by_partition(self, name: str, text: str, least: int) -> ByPartition:
        try:
            found = json.loads(text)
            return {
                str(topic): {
                    _natural(number): _at_least(value, least) for number, value in numbers.items()
                }
                for topic, numbers in found.items()
            }
        except (ValueError, TypeError, AttributeError):
            self.problems.append(f'{name} takes JSON such as {{"orders": {{"0": 23, "1": 7}}}}.')
            return {}


def read_options(options: Mapping[str, str], *, is_streaming: bool | None) -> ReadOptions:
    """Parse the options of a reader; all errors are reported in one `InvalidRequest`.

    `is_streaming` is None while that is unknown: then options of both tables and streams are valid.
    """
    reader = OptionReader(options, _READ_NAMES)
    view = reader.choice("view", VIEWS, VIEWS[0])
    topics, pattern, assigned = _which_topics(reader, JOURNEYS_TOPIC if view == JOURNEYS else None)
    events = read_selection(reader)
    start_default = LATEST if is_streaming else EARLIEST
    allowed = (EARLIEST,) if is_streaming is False else (EARLIEST, LATEST)
    start = _start(reader, "starting", allowed=allowed, default=start_default)
    strategy = reader.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    has_time = start.timestamp_ms is not None or bool(start.timestamps)
    start = replace(start, needs_match=has_time and strategy == "error")
    if events.journal_from_ms is not None and start == Start(start_default):
        start = Start(start_default, timestamp_ms=events.journal_from_ms)
    end = _start(reader, "ending", allowed=(LATEST,), default=LATEST)
    if is_streaming and reader.text(*_ENDING_NAMES) is not None:
        reader.problems.append("A stream has no end; leave the ending options out.")
    isolation = reader.choice(
        "kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
    )
    bootstrap = reader.text("kafka.bootstrap.servers", "bootstrap.servers") or BOOTSTRAP_DEFAULT
    access = read_access(reader)
    found = ReadOptions(
        bootstrap=bootstrap,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        partitions=reader.numbers("partitions"),
        start=start,
        end=end,
        has_headers=reader.flag("includeHeaders", default=False),
        fails_on_data_loss=reader.flag("failOnDataLoss", default=True),
        is_committed_only=isolation == "read_committed",
        view=view,
        tasks_min=reader.number("minPartitions") or 0,
        records_per_task_max=reader.number("maxRecordsPerPartition"),
        split_bytes=reader.number("splitBytes", least=1 << 16) or SPLIT_BYTES_DEFAULT,
        trigger_offsets_min=reader.number("minOffsetsPerTrigger"),
        trigger_offsets_max=reader.number("maxOffsetsPerTrigger"),
        trigger_bytes_max=reader.number("maxBytesPerTrigger"),
        trigger_delay_ms_max=reader.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS_DEFAULT),
        group_id=reader.text("group", "kafka.group.id"),
        group_prefix=reader.text("groupIdPrefix") or GROUP_PREFIX_DEFAULT,
        typing=read_typing(reader, topics or tuple(assigned), access, bootstrap),
        access=access,
        events=events,
    )
    least, most = found.trigger_offsets_min, found.trigger_offsets_max
    if least is not None and most is not None and least > most:
        reader.problems.append(
            f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})."
        )
    if found.typing is not None and found.view != VIEWS[0]:
        reader.problems.append("Only records have schemas; leave schema.registry out, or view.")
    if view != JOURNEYS and is_given(reader):
        reader.problems.append(f"{', '.join(JOURNEY_NAMES)} need the view {JOURNEYS}.")
    reader.raise_problems()
    return found


def _which_topics(
    reader: OptionReader, default: str | None
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    subscribed, pattern = reader.text("subscribe", "topic"), reader.text("subscribePattern")
    assigned = reader.assigned()
    if subscribed is None and not assigned and reader.text("subscribePattern", "assign") is None:
        subscribed = default
    names = [name.strip() for name in (subscribed or "").split(",")]
    topics = tuple(dict.fromkeys(name for name in names if name))
    if sum(map(bool, (topics, pattern, reader.text("assign")))) != 1:
        reader.problems.append(
            "Name the topics with exactly one of subscribe, subscribePattern and assign."
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            reader.problems.append(f"subscribePattern is no regular expression: {error}.")
    return topics, pattern, assigned


def _start(reader: OptionReader, prefix: str, *, allowed: tuple[int, ...], default: int) -> Start:
    """Return the option with the highest precedence: one time for all, times, offsets."""
    timestamp_ms = reader.timestamp_ms(f"{prefix}Timestamp")
    timestamps = reader.by_partition(f"{prefix}OffsetsByTimestamp", least=0)
    start = reader.start(f"{prefix}Offsets", allowed=allowed, default=default)
    if timestamp_ms is not None:
        return Start(default, timestamp_ms=timestamp_ms)
    return Start(default, timestamps=timestamps) if timestamps else start


def _natural(value: Any) -> int:
    """Parse the number of a partition, which is text where it is a JSON key."""
    is_text = isinstance(value, str) and re.fullmatch(r"\d+", value)
    return _at_least(int(value) if is_text else value, 0)


def _at_least(value: Any, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _NUMBER_MAX:
        return value
    raise ValueError(value)


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)


_ENDS = {"earliest": EARLIEST, "latest": LATEST}
_UNITS_MS = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 0.001),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
