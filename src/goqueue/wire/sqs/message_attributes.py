"""Message attributes: validation, storage in a record, and selection by a reader.

An attribute is stored as a header of the record with the same name and the plain value, so that
clients of other protocols see the header they would have set themselves. Data types other than
plain text are stored in one more header. Headers set by other clients are attributes too, if SQS
allows their names and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from goqueue.model.attributes import (
    DEDUPLICATED_AT_HEADER,
    DEDUPLICATION_HEADER,
    MESSAGE_ID_HEADER,
)
from goqueue.model.batch import Header
from goqueue.model.dead_letters import PREFIX as DEAD_PREFIX
from goqueue.model.dead_letters import REDRIVEN_HEADER
from goqueue.wire.sqs.errors import InvalidMessageContents, InvalidParameterValue
from goqueue.wire.sqs.shapes import TRACE, AttributeValue
from goqueue.wire.sqs.text import FORBIDDEN, decode_text, is_plain

ATTRIBUTES_MAX = 10
NAME_LENGTH_MAX = 256
TYPE_LENGTH_MAX = 256
ENCODING = "GoQueueEncoding"
SENT_HEADER = "sqs.sent"
_OWN_PREFIX = "sqs."
_USER_PREFIX = "sqs.user."
_TYPES_HEADER = "sqs.types"
_SCHEDULE_PREFIX = "goqueue-schedule"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_NUMBER = re.compile(r"[+-]?(\d{1,200}(\.\d{0,200})?|\.\d{1,200})([eE][+-]?\d{1,3})?")
_TYPES = ("String", "Number", "Binary")

_encode = msgspec.json.Encoder().encode
_types_decoder = msgspec.json.Decoder(dict[str, str])

Attributes = Mapping[str, AttributeValue]


def check_attributes(attributes: Attributes | None) -> None:
    """Raise unless SQS would accept these attributes."""
    if not attributes:
        return
    if len(attributes) > ATTRIBUTES_MAX:
        raise InvalidParameterValue(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    for name, one in attributes.items():
        _check_name(name)
        _check_value(name, one)


def check_trace(attributes: Attributes | None) -> str | None:
    """Validate the only system attribute that can be sent, which is free of the size limit."""
    for name, one in (attributes or {}).items():
        if name != TRACE:
            raise InvalidParameterValue(
                f"Message system attribute name '{name[:100]}' is invalid; {TRACE} is the only one."
            )
        if one.data_type != "String" or not one.string_value:
            raise InvalidParameterValue(
                f"The message system attribute '{TRACE}' must contain a value of type 'String'."
            )
        _check_text(name, one.string_value)
        return one.string_value
    return None


def read_trace(header: bytes) -> str | None:
    """The trace id in the HTTP header of a request; None if there is none."""
    text = decode_text(header.strip())
    return text or None


def encode_text(text: str) -> bytes:
    """Encode a text; raise if it has characters that SQS does not accept."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        content = b"\0"
    if not is_plain(content):
        raise InvalidMessageContents(
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to "
            "#xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF."
        )
    return content


def _check_text(name: str, text: str) -> None:
    try:
        encode_text(text)
    except InvalidMessageContents as error:
        raise InvalidParameterValue(
            f"The value of the message attribute '{name[:100]}' is invalid. {error}"
        ) from None


def _check_name(name: str) -> None:
    lowered = name.lower()
    is_reserved = lowered.startswith(("aws.", "amazon."))
    has_odd_dots = name.startswith(".") or name.endswith(".") or ".." in name
    if not _NAME.fullmatch(name) or is_reserved or has_odd_dots:
        raise InvalidParameterValue(
            f"The message attribute name '{name[:100]}' is invalid. Attribute name can contain "
            "A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters, must not start "
            "or end with a period, have periods in succession, start with AWS. or Amazon., and "
            f"can have up to {NAME_LENGTH_MAX} characters."
        )


def _check_value(name: str, one: AttributeValue) -> None:
    data_type = one.data_type
    if not data_type:
        raise InvalidParameterValue(
            f"The message attribute '{name}' must contain non-empty message attribute type."
        )
    if one.string_list_values or one.binary_list_values:
        raise InvalidParameterValue(
            "Message attribute list values in SendMessage operation are not supported."
        )
    base = data_type.partition(".")[0]
    if base not in _TYPES or len(data_type) > TYPE_LENGTH_MAX or FORBIDDEN.search(data_type):
        raise InvalidParameterValue(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    is_binary = base == "Binary"
    value: str | bytes | None = one.binary_value if is_binary else one.string_value
    if not value:
        raise InvalidParameterValue(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{base}'."
        )
    if isinstance(value, str):
        _check_text(name, value)
        if base == "Number" and not _NUMBER.fullmatch(value):
            raise InvalidParameterValue(
                f"Can't cast the value of message (user) attribute '{name}' to a number."
            )


# To and from records


def to_headers(
    attributes: Attributes | None, trace: str | None, sent_ms: int | None
) -> tuple[Header, ...]:
    """The record headers for these attributes, without the ids, which the broker adds."""
    if not attributes and trace is None and sent_ms is None:
        return ()
    headers: list[Header] = []
    types: dict[str, str] = {}
    for name, one in (attributes or {}).items():
        assert one.data_type is not None
        if one.data_type != "String" or name == TRACE:
            types[name] = one.data_type
        is_binary = one.data_type.partition(".")[0] == "Binary"
        content = one.binary_value if is_binary else (one.string_value or "").encode()
        is_ours = name.startswith(_OWN_PREFIX) or _is_of_broker(name)
        headers.append((_USER_PREFIX + name if is_ours else name, content))
    if types:
        headers.append((_TYPES_HEADER, _encode(types)))
    if trace is not None:
        headers.append((TRACE, trace.encode()))
    if sent_ms is not None:
        headers.append((SENT_HEADER, b"%d" % sent_ms))
    return tuple(headers)


class Read(NamedTuple):
    """The headers of a record as SQS attributes."""

    attributes: dict[str, AttributeValue]
    message_id: str | None = None
    deduplication_id: str | None = None
    trace: str | None = None
    sent_ms: int | None = None


_NOTHING = Read({})


def read_headers(headers: Sequence[Header]) -> Read:
    if not headers:
        return _NOTHING
    first, content = headers[0]
    if len(headers) == 1 and first == MESSAGE_ID_HEADER:
        # The common case: a message without attributes.
        return Read({}, (content or b"").decode("utf-8", "replace") or None)
    types: dict[str, str] = {}
    own: dict[str, str] = {}
    given: list[Header] = []
    for name, content in headers:
        if name == _TYPES_HEADER:
            types = _read_types(content)
        elif name in (
            MESSAGE_ID_HEADER,
            DEDUPLICATION_HEADER,
            DEDUPLICATED_AT_HEADER,
            SENT_HEADER,
        ):
            own[name] = (content or b"").decode("utf-8", "replace")
        else:
            given.append((name, content))
    attributes: dict[str, AttributeValue] = {}
    trace = None
    for name, content in given:
        if name == TRACE and (TRACE not in types or TRACE in attributes):
            trace = (content or b"").decode("utf-8", "replace")
            continue
        shown = name.removeprefix(_USER_PREFIX)
        value = _to_value(content, types.get(shown))
        if value is not None and _is_attribute(name, shown):
            attributes[shown] = value
    sent = own.get(SENT_HEADER, "")
    return Read(
        attributes,
        own.get(MESSAGE_ID_HEADER) or None,
        own.get(DEDUPLICATION_HEADER),
        trace,
        int(sent) if sent.isascii() and sent.isdigit() and len(sent) < 16 else None,
    )


def wanted(attributes: Attributes, names: Iterable[str]) -> dict[str, AttributeValue]:
    """Select the requested attributes: all, some by name, or by name prefix."""
    exact = set()
    prefixes = []
    for name in names:
        if name in ("All", ".*", "*"):
            return dict(attributes)
        if name.endswith(".*"):
            prefixes.append(name[:-2])
        else:
            exact.add(name)
    return {
        name: one
        for name, one in attributes.items()
        if name in exact or any(name.startswith(prefix) for prefix in prefixes)
    }


def _read_types(content: bytes | None) -> dict[str, str]:
    try:
        return _types_decoder.decode(content or b"{}")
    except (msgspec.DecodeError, ValueError):
        return {}  # A header of this name that another client has written.


def _to_value(content: bytes | None, data_type: str | None) -> AttributeValue | None:
    if not content:
        return None  # SQS has no empty values.
    if data_type is None or data_type.partition(".")[0] != "Binary":
        text = decode_text(content)
        if text is not None:
            return AttributeValue(string_value=text, data_type=data_type or "String")
        data_type = "Binary"
    return AttributeValue(binary_value=content, data_type=data_type)


def _is_attribute(name: str, shown: str) -> bool:
    """Whether a header could have been an attribute of an SQS client, and is not the broker's."""
    return not _is_of_broker(name) and bool(_NAME.fullmatch(shown))


def _is_of_broker(name: str) -> bool:
    """Whether the broker itself writes headers with this name."""
    return name.startswith((DEAD_PREFIX, _SCHEDULE_PREFIX)) or name == REDRIVEN_HEADER
