"""The routes of publishing and reading; part of the table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import READING, ROUTED, STORING, Operation
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.browsing.bodies import Browse, Tail
from goqueue.wire.http.browsing.browse import browse
from goqueue.wire.http.browsing.tail import tail
from goqueue.wire.http.handlers import publishing, reading

_PUBLISHING = (
    errors.UnknownTopic,
    errors.InvalidTopicName,
    errors.UnknownPartition,
    errors.InternalTopic,
    errors.InvalidRecord,
    errors.InvalidAttribute,
    errors.InvalidTimestamp,
    errors.RecordTooLarge,
    *STORING,
)

MESSAGES = (
    Operation(
        "publish",
        "POST",
        "/v1/topics/{topic}/publish",
        publishing.publish,
        "Publish one message, now, after a delay or at a given time.",
        area="messages",
        request=bodies.PublishOne,
        answer=bodies.Published,
        errors=_PUBLISHING,
        example={
            "key": "customer-7",
            "value": '{"total": 12}',
            "headers": [{"name": "source", "value": "web"}],
        },
    ),
    Operation(
        "publishBatch",
        "POST",
        "/v1/topics/{topic}/batch",
        publishing.publish_many,
        "Publish a batch of messages; each has its own result.",
        area="messages",
        request=bodies.PublishMany,
        answer=bodies.PublishedMany,
        errors=(
            errors.UnknownTopic,
            errors.InvalidTopicName,
            errors.InternalTopic,
            *STORING,
        ),
        example={
            "messages": [
                {"value": "one"},
                {"value": "dHdv", "value_encoding": "base64"},
                {"json": {"total": 12}, "key": "customer-7"},
            ]
        },
    ),
    Operation(
        "readMessages",
        "GET",
        "/v1/topics/{topic}/messages",
        reading.read,
        "Read messages from an offset or a time on, without consuming them.",
        area="messages",
        request=bodies.Read,
        answer=bodies.Messages,
        errors=(errors.UnknownTopic, errors.UnknownPartition, errors.OffsetOutOfRange, *READING),
        is_waiting=True,
    ),
    Operation(
        "searchMessages",
        "GET",
        "/v1/topics/{topic}/search",
        reading.search,
        "Find messages by key, trace id, header or text.",
        area="messages",
        request=bodies.Search,
        answer=bodies.Found,
        errors=(
            errors.UnknownTopic,
            errors.UnknownPartition,
            errors.OffsetOutOfRange,
            errors.InvalidRequest,
            errors.NotLeader,
            *ROUTED,
            *READING,
        ),
        is_waiting=True,
    ),
    Operation(
        "readMessage",
        "GET",
        "/v1/topics/{topic}/messages/{partition}/{offset}",
        reading.read_one,
        "Read one message.",
        area="messages",
        request=bodies.ReadOne,
        answer=bodies.Message,
        errors=(
            errors.UnknownTopic,
            errors.UnknownPartition,
            errors.UnknownMessage,
            errors.CorruptBatch,
            *READING,
        ),
    ),
    Operation(
        "browseMessages",
        "GET",
        "/v1/topics/{topic}/browse",
        browse,
        "Browse a topic from either end, with conditions, as events with progress.",
        area="messages",
        request=Browse,
        answer=str,
        errors=(
            errors.UnknownTopic,
            errors.UnknownPartition,
            errors.OffsetOutOfRange,
            errors.InvalidRequest,
            errors.InvalidRegularExpression,
            *ROUTED,
            *READING,
        ),
        is_stream=True,
    ),
    Operation(
        "streamMessages",
        "GET",
        "/v1/topics/{topic}/stream",
        tail,
        "Follow a topic as server-sent events; `Last-Event-ID` resumes an earlier stream.",
        area="messages",
        request=Tail,
        answer=str,
        errors=(
            errors.UnknownTopic,
            errors.UnknownPartition,
            errors.OffsetOutOfRange,
            errors.InvalidRequest,
            errors.InvalidRegularExpression,
            *READING,
        ),
        is_stream=True,
    ),
)
