"""`goqueue produce`: write messages from the command line, a file, a pipe, or for a load test."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from goqueue.cli.connecting import connect, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import now_ms, read_duration_ms, read_time_ms, show_time
from goqueue.cli.output import OutputForm, print_item, print_rows, progress
from goqueue.cli.payload_options import Part, WrittenPart, written_part
from goqueue.client import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    Delivery,
    Producer,
    ProducerSettings,
)
from goqueue.model.attributes import (
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    PRIORITY_HEADER,
    TTL_HEADER,
    parse_attributes,
)
from goqueue.model.batch import Header
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidRequest

app = typer.Typer()

ACKS = {
    "none": ACKS_NONE,
    "0": ACKS_NONE,
    "leader": ACKS_LEADER,
    "1": ACKS_LEADER,
    "all": ACKS_ALL,
    "-1": ACKS_ALL,
}
READ_BYTES_MAX = 256 << 10
SIZE_DEFAULT = 100
# Load-test payloads are slices of this much random data, so that they are cheap and do not repeat.
NOISE_BYTES = 64 << 10
NOISE_STEP = 101
PROGRESS_STEP = 1000
RATE_COUNT_MIN = 1000  # for fewer messages no rate is printed, since it would measure the typing


@dataclass(frozen=True, slots=True)
class Template:
    """The properties that all messages of one call share."""

    topic: str
    key: bytes | None
    partition: int | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None
    due_ms: int | None = None  # delivery time of the messages, if not at once

    def send(self, producer: Producer, value: bytes | None, key: bytes | None = None) -> Delivery:
        return producer.send(
            self.topic,
            value,
            key=self.key if key is None else key,
            headers=self.headers,
            timestamp_ms=self.timestamp_ms,
            partition=self.partition,
        )


Encode = Callable[[bytes], bytes]


def as_given(data: bytes) -> bytes:
    """The encoding of keys and values without a schema."""
    return data


@dataclass(frozen=True, slots=True)
class Encoding:
    """What makes the bytes of keys and values from what the user gave."""

    key: Encode = as_given
    value: Encode = as_given


SchemaOption = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEMA",
        help="JSON is written with this schema of the registry: latest, the number of a version, "
        "id:NUMBER, or a schema to register: FILE.avsc, FILE.json, FILE.proto, the text of an Avro "
        "schema.",
    ),
]
SubjectOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Subject of that schema; default TOPIC-key or TOPIC-value."),
]
MessageOption = Annotated[
    str, typer.Option(metavar="NAME", help="Message of a Protobuf schema; default the first.")
]


@app.command()
def produce(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    message: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", help="Value of a message; may be repeated."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="Partition to write to; by default chosen by key."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Read messages from this file, one per line."),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Separator of key and value in each line.")
    ] = None,
    tombstone: Annotated[
        bool,
        typer.Option(
            "--tombstone",
            help="Write a tombstone (null value), which makes compaction remove the key.",
        ),
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="Load test: number of messages to write.")
    ] = None,
    size: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Load test: random bytes per message.")
    ] = SIZE_DEFAULT,
    acks: Annotated[
        str,
        typer.Option(
            metavar="none|leader|all",
            help="Replicas that must have a message before it is acknowledged.",
        ),
    ] = "all",
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Compression of batches.")
    ] = "none",
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Timestamp of every message, RFC 3339 or milliseconds since 1970; default now.",
        ),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="5m", help="Deliver the messages after this delay.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Deliver the messages at this time.")
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="critical|high|normal|low|background", help="Priority lane for queue groups."
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            metavar="1h", help="Time to live: queue groups do not receive the messages after this."
        ),
    ] = None,
    key_schema: SchemaOption = None,
    value_schema: SchemaOption = None,
    key_subject: SubjectOption = None,
    value_subject: SubjectOption = None,
    key_message: MessageOption = "",
    value_message: MessageOption = "",
) -> None:
    """Write messages given by -m, or the lines of a file or of standard input."""
    settings = read_producer_settings(acks=acks, compression=compression)
    attributes = read_attributes(delay=delay, at=at, priority=priority, ttl=ttl)
    if at is not None and read_time_ms(at) <= now_ms():
        typer.echo(f"{at} has passed, so the messages are delivered at once.", err=True)
    written = (
        written_part(Part.KEY, key_schema, key_subject, key_message),
        written_part(Part.VALUE, value_schema, value_subject, value_message),
    )
    if value_schema is not None and count is not None and not message:
        raise InvalidRequest("Random values fit no schema; give the value to repeat with -m.")
    encoding = _find_schemas(ctx, topic, *written)
    template = Template(
        topic=topic,
        key=None if key is None else encoding.key(key.encode()),
        partition=partition,
        headers=read_headers(header or []) + attributes,
        timestamp_ms=None if timestamp is None else read_time_ms(timestamp),
        due_ms=parse_attributes(attributes).due_ms(now_ms()),
    )
    form = current_call(ctx).output
    with connect(ctx) as client, client.producer(settings) as producer:
        if tombstone:
            _send_each(producer, template, [None], form)
        elif message and count is None:
            values = [encoding.value(text.encode()) for text in message]
            _send_each(producer, template, values, form)
        elif count is not None:
            repeated = encoding.value(message[0].encode()) if message else None
            load = random_values(size) if repeated is None else _repeated(repeated)
            _send_load(producer, template, load, count, form)
        else:
            _send_lines(producer, template, Lines(file, key_separator, encoding), form)


def _find_schemas(
    ctx: typer.Context, topic: str, key: WrittenPart | None, value: WrittenPart | None
) -> Encoding:
    """Look the schemas up, or register them, before anything is sent."""
    if key is None and value is None:
        return Encoding()
    with connect_http(ctx) as client:
        return Encoding(
            as_given if key is None else key.writer(client, topic),
            as_given if value is None else value.writer(client, topic),
        )


def read_producer_settings(*, acks: str, compression: str) -> ProducerSettings:
    """The producer settings for the given options."""
    if acks.lower() not in ACKS:
        raise InvalidRequest(f"--acks {acks} is unknown; use none, leader or all.")
    codecs = {codec.name.lower(): codec for codec in Compression}
    if compression.lower() not in codecs:
        raise InvalidRequest(f"--compression {compression} is unknown; use {', '.join(codecs)}.")
    number = ACKS[acks.lower()]
    return ProducerSettings(
        acks=number,
        compression=codecs[compression.lower()],
        is_idempotent=number == ACKS_ALL,
    )


def read_headers(assignments: list[str]) -> tuple[Header, ...]:
    """Headers in the given order; a name may occur more than once."""
    headers: list[Header] = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidRequest(f"{assignment!r} is not a header; write NAME=VALUE.")
        headers.append((name, value.encode()))
    return tuple(headers)


def read_attributes(
    *, delay: str | None, at: str | None, priority: str | None, ttl: str | None
) -> tuple[Header, ...]:
    """Delay, lane and time to live as message headers, which every client may set."""
    if delay is not None and at is not None:
        raise InvalidRequest("Give --delay or --at, not both.")
    attributes = {
        PRIORITY_HEADER: priority,
        DELAY_HEADER: None if delay is None else read_duration_ms(delay),
        DELIVER_AT_HEADER: None if at is None else read_time_ms(at),
        TTL_HEADER: None if ttl is None else read_duration_ms(ttl),
    }
    headers = tuple(
        (name, str(one).encode()) for name, one in attributes.items() if one is not None
    )
    parse_attributes(headers)  # refuse an invalid lane before anything is sent
    return headers


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidRequest(
            f"The line {line[:60]!r} has no key separator {separator.decode()!r}; add it, or "
            "remove --key-separator."
        )
    return key, value


@dataclass(frozen=True, slots=True)
class Lines:
    """Where lines come from, and what keys and values they become."""

    file: Path | None
    separator: str | None
    encoding: Encoding

    def split(self, line: bytes) -> tuple[bytes | None, bytes]:
        separator = None if self.separator is None else self.separator.encode()
        key, value = split_line(line, separator)
        return None if key is None else self.encoding.key(key), self.encoding.value(value)


def read_lines(source: BinaryIO, *, pause: Callable[[], object]) -> Iterator[bytes]:
    """Yield lines without line ends; call `pause` before blocking for more input."""
    rest = b""
    read = getattr(source, "read1", source.read)
    while chunk := read(READ_BYTES_MAX):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(chunk) < READ_BYTES_MAX:
            pause()
    if rest:
        yield rest


def random_values(size: int) -> Iterator[bytes]:
    """Yield random payloads without end."""
    noise = random.randbytes(NOISE_BYTES + size)
    start = 0
    while True:
        yield noise[start : start + size]
        start = (start + NOISE_STEP) % NOISE_BYTES


def _repeated(value: bytes) -> Iterator[bytes]:
    while True:
        yield value


def _send_each(
    producer: Producer, template: Template, values: Sequence[bytes | None], form: OutputForm
) -> None:
    deliveries = [template.send(producer, value) for value in values]
    found = [delivery.result() for delivery in deliveries]
    if form is not OutputForm.TABLE:
        print_rows([stored._asdict() for stored in found], form)
        return
    for stored in found:
        if stored.offset < 0 and template.due_ms is not None:
            print(f"Scheduled for {stored.topic}, at {show_time(template.due_ms)}.")
        elif stored.offset < 0:
            print(f"Sent to {stored.topic}/{stored.partition}; no acknowledgement was requested.")
        else:
            print(f"Stored in {stored.topic}/{stored.partition} at offset {stored.offset}.")


def _send_load(
    producer: Producer, template: Template, values: Iterator[bytes], count: int, form: OutputForm
) -> None:
    started = time.monotonic()
    byte_count = 0
    with progress(count) as tick:
        for index in range(count):
            value = next(values)
            byte_count += len(value)
            template.send(producer, value)
            if index % PROGRESS_STEP == 0:
                tick(index)
        producer.flush()
        tick(count)
    _summarise(template, count, byte_count, time.monotonic() - started, form)


def _send_lines(producer: Producer, template: Template, lines: Lines, form: OutputForm) -> None:
    started = time.monotonic()
    count = byte_count = 0
    with ExitStack() as stack:
        source, total = _open_source(stack, lines.file)
        tick = stack.enter_context(progress(total)) if lines.file else lambda _: None
        for line in read_lines(source, pause=producer.push):
            try:
                key, value = lines.split(line)
            except InvalidRequest as error:
                producer.flush()
                before = f" The {count} before it were sent." if count else ""
                raise InvalidRequest(f"Line {count + 1}: {error}{before}") from error
            template.send(producer, value, key)
            count += 1
            byte_count += len(line) + 1
            if count % PROGRESS_STEP == 0:
                tick(byte_count)
        producer.flush()
        tick(byte_count)
    _summarise(template, count, byte_count, time.monotonic() - started, form)


def _open_source(stack: ExitStack, file: Path | None) -> tuple[BinaryIO, int]:
    if file is None:
        if sys.stdin.isatty():
            print("Type messages, one per line; Ctrl-D ends.", file=sys.stderr)
        return sys.stdin.buffer, 0
    try:
        return stack.enter_context(file.open("rb")), file.stat().st_size
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from error


def _summarise(
    template: Template, count: int, byte_count: int, seconds: float, form: OutputForm
) -> None:
    rate = count / seconds if seconds > 0 else 0.0
    if form is not OutputForm.TABLE:
        print_item(
            {
                "messages": count,
                "bytes": byte_count,
                "seconds": round(seconds, 3),
                "messages_per_second": round(rate),
            },
            form,
        )
        return
    noun = "message" if count == 1 else "messages"
    verb = "Stored" if template.due_ms is None else "Scheduled"
    if count < RATE_COUNT_MIN:
        print(f"{verb} {count} {noun}.")
        return
    megabytes = byte_count / seconds / 1e6 if seconds > 0 else 0.0
    print(f"{verb} {count:,} {noun} in {seconds:.2f} s: {rate:,.0f}/s, {megabytes:.1f} MB/s.")
