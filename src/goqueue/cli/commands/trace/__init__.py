"""`goqueue trace`: what happened to messages."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import msgspec
import typer

from goqueue.cli.commands.trace.drawing import draw, name_of, summary_of
from goqueue.cli.connecting import connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import now_ms, read_duration_ms, read_time_ms, show_time
from goqueue.cli.output import (
    OutputForm,
    Row,
    plain,
    print_item,
    print_rows,
    show_size,
    terminal_width,
)
from goqueue.client.http import Client, JourneyEvent, JourneyOutcome, JourneySummary
from goqueue.client.http.messages import Message

WAIT_S = 20  # of one request that follows the journal
PAGE = 1000
FOLLOWED_EMPTY_MAX = 10_000  # pages without a result of one command

app = typer.Typer(no_args_is_help=True, help="Show what happened to messages.")

Outcome = enum.StrEnum(  # type: ignore[misc]
    "Outcome", {one.upper(): one for one in get_args(JourneyOutcome)}
)
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Only messages of this topic.")]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="And partition.")]
Group = Annotated[str | None, typer.Option("--group", "-g", help="Only what this group did.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="2h|TIME", help="Not earlier than this.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="2h|TIME", help="Earlier than this.")]
Limit = Annotated[int, typer.Option("--count", "-n", min=1, help="Most results to show.")]


@app.command()
def get(
    ctx: typer.Context,
    message_id: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="A message id, or a schedule's.")
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="The target of a schedule id.")
    ] = None,
) -> None:
    """Show the journey of one message as a timeline."""
    with connect_http(ctx) as client:
        journey = client.journeys.get(message_id, topic=topic)
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        sys.stdout.write(draw(journey, width=terminal_width()))
    else:
        print_item(msgspec.to_builtins(journey), form)


@app.command(name="list")
def list_all(
    ctx: typer.Context,
    topic: Topic = None,
    partition: Partition = None,
    group: Group = None,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="How messages stand now.")
    ] = None,
    from_: From = None,
    until: Until = None,
    count: Limit = 100,
) -> None:
    """List messages by what happened to them, the oldest first.

    Messages that are still scheduled are not among them: see "goqueue schedule list".
    """
    wanted = {
        "topic": topic,
        "partition": partition,
        "group": group,
        "outcome": None if outcome is None else outcome.value,
        **_times(from_, until),
    }
    with connect_http(ctx) as client:
        rows = [_row(one) for one in _journeys(client, wanted, count)]
    print_rows(rows, current_call(ctx).output)


@app.command()
def search(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic to search.")],
    key: Annotated[str | None, typer.Option("--key", "-k", help="The whole key.")] = None,
    trace_id: Annotated[
        str | None, typer.Option("--trace-id", help="In traceparent or AWSTraceHeader.")
    ] = None,
    header: Annotated[
        str | None, typer.Option("--header", metavar="NAME[=VALUE]", help="A header.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="In the key, the value or a header.")
    ] = None,
    partition: Partition = None,
    from_: From = None,
    until: Until = None,
    count: Limit = 100,
) -> None:
    """Find messages of a topic by key, trace id, header or text."""
    name, equals, value = (header or "").partition("=")
    wanted: dict[str, Any] = {
        "key": key,
        "trace_id": trace_id,
        "header": name or None,
        "header_value": value if equals else None,
        "text": text,
    }
    found: list[Message] = []
    read = skipped = 0
    with connect_http(ctx) as client:
        where: dict[str, Any] = {"partition": partition, **_times(from_, until)}
        for _ in range(FOLLOWED_EMPTY_MAX):
            page = client.search_page(topic, limit=min(PAGE, count - len(found)), **wanted, **where)
            found += page.messages
            read, skipped = read + page.read_bytes, skipped + page.skipped_bytes
            if not page.cursor or len(found) >= count:
                break
            where = {"cursor": page.cursor, "until": where["until"]}
    print_rows([_message_row(one) for one in found], current_call(ctx).output)
    if sys.stderr.isatty():
        sys.stderr.write(f"{show_size(read)} read, {show_size(skipped)} ruled out by filters\n")


@app.command()
def stats(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partition: Partition = None,
    group: Group = None,
    from_: From = None,
    until: Until = None,
) -> None:
    """Count the messages of a topic by what happened to them."""
    with connect_http(ctx) as client:
        found = client.journeys.stats(
            topic, partition=partition, group=group, **_times(from_, until)
        )
    rows = [
        {
            "what": one.kind.replace("_", " "),
            "group": plain(one.group),
            "messages": one.messages,
            "bytes": one.bytes,
        }
        for one in found.counts
    ]
    print_rows(rows, current_call(ctx).output)
    if not found.complete:
        sys.stderr.write("Only a part of the journal was read; give a shorter time.\n")


@app.command()
def follow(
    ctx: typer.Context,
    topic: Topic = None,
    partition: Partition = None,
    group: Group = None,
    from_: From = None,
) -> None:
    """Show what happens to messages as it is recorded; end with ctrl-c."""
    wanted = {"topic": topic, "partition": partition, "group": group}
    form = current_call(ctx).output
    with connect_http(ctx) as client:
        for event in _followed(client, wanted, _times(from_, None)["from_"]):
            if form is OutputForm.TABLE:
                cells = (str(value) for value in _event_row(event).values() if value != "")
                line = "  ".join(cells)
            else:
                line = msgspec.json.encode(event).decode()
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def _journeys(client: Client, wanted: dict[str, Any], count: int) -> Iterator[JourneySummary]:
    cursor, left = "", count
    for _ in range(FOLLOWED_EMPTY_MAX):
        page = client.journeys.list_page(**wanted, cursor=cursor, limit=min(PAGE, left))
        yield from page.journeys
        cursor, left = page.cursor, left - len(page.journeys)
        if not cursor or left <= 0:
            return


def _followed(
    client: Client, wanted: dict[str, Any], from_ms: int | None
) -> Iterator[JourneyEvent]:
    cursor = ""
    while True:
        wait = WAIT_S if cursor else 0
        page = client.journeys.events(
            **wanted, from_=None if cursor else from_ms, cursor=cursor, wait=wait, limit=PAGE
        )
        yield from page.events
        cursor = page.cursor


def _times(from_: str | None, until: str | None) -> dict[str, int | None]:
    return {"from_": _past_ms(from_), "until": _past_ms(until)}


def _past_ms(text: str | None) -> int | None:
    """A time, or a duration before now."""
    if text is None:
        return None
    if text[-1:].isalpha() and text[:1].isdigit() and text[-1:] != "Z":
        return now_ms() - read_duration_ms(text)
    return read_time_ms(text)


def _row(one: JourneySummary) -> Row:
    return {
        "time": show_time(one.time),
        "message": name_of(one.message),
        "outcome": summary_of(one.outcomes),
    }


def _message_row(one: Message) -> Row:
    return {
        "time": show_time(one.timestamp_ms),
        "message": f"{one.topic}:{one.partition}:{one.offset}",
        "key": plain((one.key or b"").decode("utf-8", "replace")),
        "value": plain((one.value or b"").decode("utf-8", "replace"))[:200],
    }


def _event_row(one: JourneyEvent) -> Row:
    last = one.end_offset - 1
    offsets = str(one.offset) if last == one.offset else f"{one.offset}-{last}"
    return {
        "time": show_time(one.time),
        "what": one.kind.replace("_", " "),
        "messages": f"{one.topic or 'scheduled'}:{one.partition}:{offsets}",
        "group": plain(one.group),
        "who": plain(one.consumer or one.principal),
        "reason": plain(one.reason),
    }
