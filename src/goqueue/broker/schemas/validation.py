"""Validates records against a schema, if their topic requires it.

A payload begins with a zero byte and the id of its schema, as registry serializers write it; in a
Protobuf payload the indexes of its message in the schema follow. The id must be that of a version,
not deleted, of the subject given by the topic's strategy, and the rest must conform to the schema.
An absent payload (a tombstone's value, a missing key) conforms to every schema.

Parsing and compiling a schema is done once; results for an id are cached until the registry
changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from goqueue.broker.schemas.registry import Schemas
from goqueue.broker.topics.topics import Topic
from goqueue.model.batch import Header, Record, decode_records, unpack_payload
from goqueue.model.errors import InvalidSchema, SchemaMismatch
from goqueue.model.tenants import plain_name
from goqueue.partition.rules import check_produced
from goqueue.schemas.catalog import Content
from goqueue.schemas.formats import (
    Schema,
    SchemaKind,
    SchemaViolation,
    Validate,
    protobuf_validator,
    record_name,
    validator,
)
from goqueue.schemas.formats.framing import (
    FIRST_MESSAGE,
    FRAME_BYTES,
    GUID_FRAME_BYTES,
    frame_in_headers,
    read_message_frame,
)
from goqueue.schemas.names import Subject, default_context

VALIDATORS_MAX = 256  # compiled schemas cached
TOPICS_MAX = 10_000  # whose schemas are cached at a time
KNOWN_MAX = 1000  # cached schema ids per topic
FAULTS_MAX = 100  # reported for one batch

_SMALL_BYTES = 4096


class Strategy(StrEnum):
    """The subject under which a payload's schema must be registered."""

    TOPIC = "topic"  # orders-value
    RECORD = "record"  # shop.Order
    TOPIC_RECORD = "topic-record"  # orders-shop.Order


class Rules(NamedTuple):
    """What a topic requires of its records; None requires nothing."""

    key: Strategy | None
    value: Strategy | None


class _Part:
    """The keys or the values of one topic, with cached results for their schemas."""

    __slots__ = ("context", "known", "name", "strategy", "topic")

    def __init__(self, topic: str, strategy: Strategy, *, is_key: bool) -> None:
        self.topic = plain_name(topic)
        self.context = default_context(topic)
        self.strategy = strategy
        self.name = "key" if is_key else "value"
        # By the bytes that identify a schema: the validator of a payload, or why none is valid.
        self.known: dict[bytes, Validate | str] = {}

    def subject(self, record: str) -> str:
        """Where a schema must be registered; empty if a record has no name to derive it from."""
        if self.strategy is Strategy.TOPIC:
            return self._subject(f"{self.topic}-{self.name}")
        if not record:
            return ""
        is_plain = self.strategy is Strategy.RECORD
        return self._subject(record if is_plain else f"{self.topic}-{record}")

    def _subject(self, name: str) -> str:
        return str(Subject(self.context, name))


class _Asked(NamedTuple):
    """The requirements of a topic, valid as long as its metadata does not change."""

    fact: object
    key: _Part | None
    value: _Part | None


class Validation:
    """Validates the records of topics that require it."""

    def __init__(self, schemas: Schemas, defaults: Mapping[str, str]) -> None:
        self._schemas = schemas
        self._defaults = defaults
        self._changes = -1
        self._asked: dict[bytes, _Asked] = {}
        self._compiled: OrderedDict[tuple[Content, tuple[int, ...]], Validate] = OrderedDict()
        # Called with the topic of records that were validated, and whether they are valid.
        self.checked: Callable[[str, bool], None] = lambda topic, is_valid: None

    def check_batch(self, topic: Topic, batch: memoryview, *, now_ms: int) -> None:
        """Refuse a producer's batch with a record that does not conform to its schema."""
        header = check_produced(batch, topic.settings, now_ms=now_ms)
        faults = self.faults(topic, decode_records(header, unpack_payload(batch, header)))
        if faults:
            raise SchemaMismatch(faults)

    def check_record(self, topic: Topic, record: Record) -> None:
        """Refuse one record that does not conform to its schema."""
        faults = self.faults(topic, (record,))
        if faults:
            raise SchemaMismatch(faults)

    def faults(self, topic: Topic, records: Iterable[Record]) -> dict[int, str]:
        """The faults of the records that have one, by position."""
        asked = self._asked.get(topic.id)
        if asked is None or asked.fact is not topic.fact or self._schemas.changes != self._changes:
            asked = self._ask(topic)
        for_key, for_value = asked.key, asked.value
        faults: dict[int, str] = {}
        for index, (key, value, headers, _, _) in enumerate(records):
            fault = None
            if for_key is not None and key is not None:
                fault = self._fault(for_key, key, headers)
            if fault is None and for_value is not None and value is not None:
                fault = self._fault(for_value, value, headers)
            if fault is not None:
                faults[index] = fault
                if len(faults) == FAULTS_MAX:
                    break
        if for_key is not None or for_value is not None:
            self.checked(topic.name, not faults)
        return faults

    def _ask(self, topic: Topic) -> _Asked:
        """Get a topic's requirements; a change of the registry clears the cache."""
        if self._schemas.changes != self._changes or len(self._asked) >= TOPICS_MAX:
            self._asked.clear()
            self._changes = self._schemas.changes
        rules = read_rules({**self._defaults, **topic.fact.settings})
        key = None if rules.key is None else _Part(topic.name, rules.key, is_key=True)
        value = None if rules.value is None else _Part(topic.name, rules.value, is_key=False)
        asked = self._asked[topic.id] = _Asked(topic.fact, key, value)
        return asked

    def _fault(
        self, part: _Part, payload: bytes | memoryview, headers: tuple[Header, ...]
    ) -> str | None:
        frame = frame_in_headers(part.name, headers) if headers else None
        rest = payload
        if frame is None:
            frame = bytes(payload[:FRAME_BYTES])
            # A copy of a small payload is cheaper than a view of it.
            is_small = len(payload) < _SMALL_BYTES
            rest = (payload if is_small else memoryview(payload))[FRAME_BYTES:]
        check = part.known.get(frame)
        if check is None:
            check = self._learn(part, frame)
        if isinstance(check, str):
            return check
        try:
            check(rest)
        except SchemaViolation as violation:
            where = f" at {violation.path}" if violation.path else ""
            return f"The {part.name} does not obey its schema{where}: {violation.reason}."
        return None

    def _learn(self, part: _Part, frame: bytes) -> Validate | str:
        if len(part.known) >= KNOWN_MAX:
            part.known.clear()
        check = part.known[frame] = self._find(part, frame)
        return check

    def _find(self, part: _Part, frame: bytes) -> Validate | str:
        """The validator of payloads with this schema, or why none is valid."""
        if len(frame) == GUID_FRAME_BYTES:
            told = str(UUID(bytes=frame[1:]))
            content = self._schemas.schema_by_guid(told, context=part.context)
        elif len(frame) == FRAME_BYTES and frame[0] == 0:
            told = str(int.from_bytes(frame[1:], "big"))
            content = self._schemas.schema_by_id(int(told), context=part.context)
        else:
            return (
                f"The {part.name} does not begin with a zero byte and the four bytes of a schema's "
                "id, as its topic asks (setting schema.validation); use a serializer of the "
                "registry."
            )
        if content is None:
            self._schemas.check_sure(frame)
            return f"The {part.name} names the schema {told}, which is not registered."
        try:
            schema = self._schemas.read(content)
            if content.kind is SchemaKind.PROTOBUF:
                return _ProtobufCheck(self, part, content, schema, frame)
            problem = _problem(part, content, record_name(schema))
            if problem is not None:
                self.check_sure(part.topic, frame)
            return problem or self.validator(content, schema)
        except InvalidSchema as error:
            return f"The {part.name} names the schema {told}, which cannot be read: {error}"

    def check_sure(self, topic: str, frame: bytes) -> None:
        """Raise a retryable error if this node's registry may be behind that of the cluster."""
        self._schemas.check_sure(topic.encode() + frame)

    def validator(
        self, content: Content, schema: Schema, indexes: tuple[int, ...] = ()
    ) -> Validate:
        """The compiled schema; for Protobuf, that of the message at the given indexes."""
        place = (content, indexes)
        check = self._compiled.get(place)
        if check is None:
            check = protobuf_validator(schema, indexes) if indexes else validator(schema)
            self._compiled[place] = check
            if len(self._compiled) > VALIDATORS_MAX:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(place)
        return check


class _ProtobufCheck:
    """Validates payloads of one Protobuf schema; each begins with the indexes of its message."""

    __slots__ = ("_by_place", "_content", "_frame", "_part", "_schema", "_validation")

    def __init__(
        self, validation: Validation, part: _Part, content: Content, schema: Schema, frame: bytes
    ) -> None:
        self._frame = frame
        self._validation = validation
        self._part = part
        self._content = content
        self._schema = schema
        self._by_place: dict[tuple[int, ...], Validate] = {}

    def __call__(self, rest: bytes | memoryview) -> None:
        indexes: tuple[int, ...] = FIRST_MESSAGE
        start = 1
        if not rest or rest[0]:
            indexes, start = read_message_frame(rest)
        check = self._by_place.get(indexes)
        if check is None:
            check = self._find(indexes)
        check(rest[start:])

    def _find(self, indexes: tuple[int, ...]) -> Validate:
        check = self._validation.validator(self._content, self._schema, indexes)
        problem = _problem(self._part, self._content, record_name(self._schema, indexes))
        if problem is not None:
            self._validation.check_sure(self._part.topic, self._frame)
            raise SchemaViolation("", problem.rstrip("."))
        if len(self._by_place) >= VALIDATORS_MAX:
            self._by_place.clear()
        self._by_place[indexes] = check
        return check


def read_rules(settings: Mapping[str, str]) -> Rules:
    """What the settings of a topic, defaults included, require of its records."""
    wanted = settings["schema_validation"]
    key = Strategy(settings["schema_key_subject_strategy"])
    value = Strategy(settings["schema_value_subject_strategy"])
    return Rules(
        key if wanted in ("key", "both") else None, value if wanted in ("value", "both") else None
    )


def _problem(part: _Part, content: Content, record: str) -> str | None:
    """Why a schema is not valid for this part of its topic."""
    subject = part.subject(record)
    if not subject:
        return f"The schema {content.id} has no name, which the strategy {part.strategy} needs."
    live = [one for one in content.versions.values() if not one.is_deleted]
    if any(str(one.subject) == subject for one in live):
        return None
    return (
        f"The {part.name} names the schema {content.id}, which is not registered under the subject "
        f"{subject!r} (settings schema.validation and schema.{part.name}.subject.strategy)."
    )
