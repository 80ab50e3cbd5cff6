"""Headers by which a record remembers what its sender called the message.

Senders to a named queue know a message by an id, and those who must not store one twice by a
deduplication id. Both are headers of the record, so that they come back with it over every way of
reading, and so that what was sent lately can be read back from the log after a restart.
"""

from __future__ import annotations

from goqueue.model.batch import Header

MESSAGE_ID_HEADER = "sqs.id"
DEDUPLICATION_HEADER = "sqs.dedup"
# When a message was sent under that id, in milliseconds. A copy of it that is stored later, because
# it died or was brought back, was not sent again.
DEDUPLICATED_AT_HEADER = "sqs.dedup-at"


def header_text(headers: tuple[Header, ...], wanted: str) -> str | None:
    """The text of a header, or None if there is none or it is no text."""
    for name, content in headers:
        if name == wanted and content is not None:
            try:
                return content.decode()
            except UnicodeDecodeError:
                return None
    return None
