"""Headers in which a record stores its sender's ids of the message.

Senders to a named queue identify a message by an id, and prevent duplicates by a deduplication id.
Both are headers of the record, so that every way of reading returns them, and so that recent ones
can be read back from the log after a restart.
"""

from __future__ import annotations

from goqueue.model.batch import Header

MESSAGE_ID_HEADER = "sqs.id"
DEDUPLICATION_HEADER = "sqs.dedup"
# When a message was sent under that id, in milliseconds. A later stored duplicate, dead-lettered
# or redriven, was not sent again.
DEDUPLICATED_AT_HEADER = "sqs.dedup-at"


def header_text(headers: tuple[Header, ...], wanted: str) -> str | None:
    """The text of a header, or None if it is absent or not text."""
    for name, content in headers:
        if name == wanted and content is not None:
            try:
                return content.decode()
            except UnicodeDecodeError:
                return None
    return None
