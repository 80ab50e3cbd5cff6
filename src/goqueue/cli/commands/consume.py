"""`goqueue consume`: print the messages of a topic."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated

import typer

from goqueue.cli.connecting import connect, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.extras import need_schemas
from goqueue.cli.formats import Format, Render, as_decoded_json, rendering
from goqueue.cli.lookups import partitions_of, refuse_members, require_kind
from goqueue.cli.moments import POSITION_METAVAR, now_ms, read_position
from goqueue.cli.output import OutputForm
from goqueue.cli.payload_options import OnMismatch, Part
from goqueue.client import (
    LogClient,
    Position,
    PositionKind,
    Reader,
    ReaderSettings,
    ReadRecord,
    start_reading,
)
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition

app = typer.Typer()

COMMIT_SECONDS = 1.0  # after a crash a group reads again what came since the last commit


@dataclass(slots=True)
class Progress:
    """Tracks the position of the output and commits it for a group."""

    client: LogClient
    group: str | None
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    committed_at: float = field(default_factory=time.monotonic)

    def printed(self, record: ReadRecord) -> None:
        if self.group is not None:
            partition = TopicPartition(record.topic, record.partition)
            self.next_offsets[partition] = record.offset + 1

    def flush(self, *, is_last: bool = False) -> None:
        """Flush the output; commit periodically, and at the end."""
        sys.stdout.flush()
        is_due = time.monotonic() - self.committed_at >= COMMIT_SECONDS
        if self.group is not None and self.next_offsets and (is_last or is_due):
            self.client.groups.commit(self.group, self.next_offsets)
            self.next_offsets.clear()
            self.committed_at = time.monotonic()


@app.command()
def consume(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar=POSITION_METAVAR,
            help="Where to start; default earliest, or latest with --follow.",
        ),
    ] = None,
    until: Annotated[
        str, typer.Option(metavar=POSITION_METAVAR, help="Where to stop, exclusive.")
    ] = "latest",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Continue from the offsets of this group, and commit; it must have no members."
        ),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Output format of a message; default text.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help=r"Template for each message: %t topic, %p partition, %o offset, %k key, %s value, "
            r"%h headers, %T timestamp, %K and %S lengths, \n, \t.",
        ),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Skip messages of open and aborted transactions.")
    ] = False,
    decode: Annotated[
        Part | None,
        typer.Option(
            help="Show as JSON what was written with schemas of the registry (Avro, JSON Schema, "
            "Protobuf): keys, values or both."
        ),
    ] = None,
    on_mismatch: Annotated[
        OnMismatch,
        typer.Option(help="What to do with a message that cannot be decoded; raw shows its bytes."),
    ] = OnMismatch.STOP,
) -> None:
    """Print messages, oldest first within each partition."""
    is_json = current_call(ctx).output is OutputForm.JSON
    chosen = format_ or (Format.JSON if is_json else Format.TEXT)
    is_json_line = chosen is Format.JSON and template is None
    start = _start(from_, is_followed=follow)
    end = None if follow else read_position(until, now_ms=now_ms())
    if end is not None and end.kind is PositionKind.EARLIEST:
        raise InvalidRequest("There is nothing before --until earliest; give a later position.")
    settings = ReaderSettings(is_committed_only=committed, out_of_range="earliest")
    if group is not None:
        with connect_http(ctx) as api:
            instead = f"use `goqueue queue receive {topic} --group {group}`"
            require_kind(api, group, "stream", instead=instead)
    with ExitStack() as stack:
        render = _render(stack, ctx, rendering(chosen, template), decode, on_mismatch, is_json_line)
        client = stack.enter_context(connect(ctx))
        partitions = partitions_of(client, topic, only=partition)
        positions = _positions(client, partitions, start, group, is_from_given=from_ is not None)
        reader = start_reading(client.cluster, partitions, positions, until=end, settings=settings)
        _print_all(reader, render, count, Progress(client, group))


def _render(
    stack: ExitStack,
    ctx: typer.Context,
    render: Render,
    part: Part | None,
    on_mismatch: OnMismatch,
    is_json: bool,
) -> Render:
    """What prints a record, decoded first if that is wanted."""
    if part is None:
        return render
    need_schemas()
    from goqueue.cli.decoding import Decoding

    decoding = Decoding(stack.enter_context(connect_http(ctx)), part, on_mismatch)

    def render_decoded(record: ReadRecord) -> bytes:
        decoded = decoding.decode(record)
        if decoded is None:
            return b""
        return as_decoded_json(decoded) if is_json else render(decoded.record)

    return render_decoded


def _start(text: str | None, *, is_followed: bool) -> Position:
    if text is not None:
        return read_position(text, now_ms=now_ms())
    return Position.latest() if is_followed else Position.earliest()


def _positions(
    client: LogClient,
    partitions: list[TopicPartition],
    start: Position,
    group: str | None,
    *,
    is_from_given: bool,
) -> dict[TopicPartition, int]:
    """The offsets to start at: those committed by the group, unless --from is given."""
    if group is None:
        return client.offsets.resolve(partitions, start)
    refuse_members(client, group)
    fallback = start if is_from_given else Position.earliest()
    positions = client.offsets.resolve(partitions, fallback)
    if not is_from_given:
        committed = client.groups.committed(group, partitions)
        positions |= {partition: each.offset for partition, each in committed.items()}
    return positions


def _print_all(reader: Reader, render: Render, count: int | None, progress: Progress) -> None:
    try:
        _print_until_done(reader, render, count, progress)
        progress.flush(is_last=True)
    except KeyboardInterrupt:
        progress.flush(is_last=True)
    except BrokenPipeError:
        # The reader of the pipe has exited. Python would report the unwritten output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_until_done(
    reader: Reader, render: Render, count: int | None, progress: Progress
) -> None:
    write = sys.stdout.buffer.write
    left = count
    while not reader.is_at_end:
        for record in _some(reader.poll(), left):
            write(render(record))
            progress.printed(record)
            left = None if left is None else left - 1
        progress.flush()
        if left == 0:
            return


def _some(records: Iterator[ReadRecord], count: int | None) -> Iterator[ReadRecord]:
    """Yield the first `count` records, without fetching a further one."""
    if count is None:
        yield from records
        return
    for _, record in zip(range(count), records, strict=False):
        yield record
