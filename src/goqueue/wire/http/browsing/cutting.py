"""Messages with long values cut, so that a page of large messages stays small."""

from __future__ import annotations

from goqueue.model.batch import Record
from goqueue.wire.http.browsing.bodies import BrowsedMessage
from goqueue.wire.http.browsing.scans import Match
from goqueue.wire.http.fields import Encoding
from goqueue.wire.http.messages import message_fields

_CHARACTER_BYTES_MAX = 4  # in UTF-8
_CONTINUES = 0b10  # the first bits of a byte that is not the first of its character


class Cutting:
    """Cuts records when they are found, and shows them with the sizes that they had."""

    def __init__(self, topic: str, encoding: Encoding, value_bytes: int) -> None:
        self._topic = topic
        self._encoding = encoding
        self._value_bytes = value_bytes

    def cut(self, partition: int, record: Record) -> Match:
        """Return a record without the end of a long value."""
        value = record.value
        if value is None:
            return Match(partition, record, 0)
        if len(value) > self._value_bytes:
            record = record._replace(value=value[: _boundary(value, self._value_bytes)])
        return Match(partition, record, len(value))

    def show(self, match: Match) -> BrowsedMessage:
        """Return the message of a record."""
        partition, record, value_bytes = match
        return BrowsedMessage(
            **message_fields(self._topic, partition, record, self._encoding),
            value_bytes=value_bytes,
            is_cut=len(record.value or b"") < value_bytes,
        )


def _boundary(value: bytes, most: int) -> int:
    """Return where to cut a value: not within a character, if it is text."""
    for end in range(most, max(0, most - _CHARACTER_BYTES_MAX), -1):
        if value[end] >> 6 != _CONTINUES:
            return end
    return most
