"""The HTTP connection of a command to its broker, and the display of messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from goqueue.cli.formats import as_field
from goqueue.cli.moments import show_time
from goqueue.cli.target import HTTP_SETTINGS, bare, http_address, no_broker
from goqueue.client.http import Client, Message
from goqueue.model.errors import InvalidRequest

_TEXT_SHOWN = 60  # characters of a key or a value in a table


@contextmanager
def connect_http(ctx: typer.Context) -> Iterator[Client]:
    """Connect to the given broker; if that fails, the error says what the user can do."""
    address = http_address(ctx)
    with no_broker(bare(address), "--http", "HTTP "), Client(address, HTTP_SETTINGS) as client:
        yield client


def message_row(message: Message) -> dict[str, object]:
    """A message for a table, with long texts cut."""
    return {
        "id": message.id,
        "time": show_time(message.timestamp_ms),
        "key": shorten(message.key),
        "value": shorten(message.value),
    }


def message_tree(message: Message) -> dict[str, object]:
    """A whole message for programs; bytes that are not UTF-8 are in `value_base64` and so on."""
    return {
        "id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": show_time(message.timestamp_ms),
        "timestamp_ms": message.timestamp_ms,
        **as_field("key", message.key),
        **as_field("value", message.value),
        "headers": [{"name": name, **as_field("value", one)} for name, one in message.headers],
    }


def shorten(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data.decode("utf-8", "backslashreplace")
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…"


def read_places(texts: list[str], what: str) -> list[tuple[int, int]]:
    """Pairs such as `0:42`, a partition and an offset."""
    places = []
    for text in texts:
        number, colon, offset = text.partition(":")
        if not (colon and number.isdecimal() and offset.isdecimal()):
            raise InvalidRequest(
                f"{what} {text} is not valid; write PARTITION:OFFSET, such as 0:42."
            )
        places.append((int(number), int(offset)))
    return places
