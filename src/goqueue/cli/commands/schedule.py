"""`goqueue schedule`: inspect, reschedule and cancel delayed messages."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.formats import as_field
from goqueue.cli.moments import now_ms, read_duration_ms, read_time_ms, show_time
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.client.http import Schedule
from goqueue.model.errors import GoQueueError, InvalidRequest

CANCELS_MAX = 1000  # in one call

app = typer.Typer(no_args_is_help=True, help="Inspect, reschedule and cancel delayed messages.")

Id = Annotated[str, typer.Argument(help="Id of the schedule.")]
TopicOption = Annotated[str | None, typer.Option(help="Only messages of this topic.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME|2h",
        help="Only those due at this time or later; 2h is two hours from now.",
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME|2h", help="Only those due before this time.")
]


@app.command("list")
def list_schedules(
    ctx: typer.Context,
    topic: TopicOption = None,
    from_: From = None,
    until: Until = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Most to show.")] = 100,
) -> None:
    """List scheduled messages, the earliest first."""
    with connect_http(ctx) as client:
        all_of_them = client.schedules.list_all(
            topic=topic,
            from_=read_due_ms(from_, now_ms=now_ms()),
            until=read_due_ms(until, now_ms=now_ms()),
        )
        found = list(islice(all_of_them, count))
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print("Nothing is scheduled; `goqueue produce --delay` schedules messages.")
    rows = [
        {"id": one.id, "topic": one.topic, "deliver_at": show_time(one.deliver_at)} for one in found
    ]
    print_rows(rows, form)


@app.command()
def show(ctx: typer.Context, schedule_id: Id) -> None:
    """Show one scheduled message."""
    with connect_http(ctx) as client:
        found = client.schedules.get(schedule_id)
    print_item(_as_tree(found), current_call(ctx).output)


@app.command()
def count(
    ctx: typer.Context, topic: TopicOption = None, from_: From = None, until: Until = None
) -> None:
    """Count scheduled messages."""
    with connect_http(ctx) as client:
        found = client.schedules.count(
            topic=topic,
            from_=read_due_ms(from_, now_ms=now_ms()),
            until=read_due_ms(until, now_ms=now_ms()),
        )
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        print(found)
    else:
        print_item({"count": found}, form)


@app.command()
def cancel(
    ctx: typer.Context,
    schedule_ids: Annotated[list[str], typer.Argument(help="Ids of schedules.")],
) -> None:
    """Cancel scheduled messages; a message whose delivery has begun cannot be cancelled."""
    refusals: list[GoQueueError] = []
    with connect_http(ctx) as client:
        announce(ctx, client)
        for start in range(0, len(schedule_ids), CANCELS_MAX):
            some = schedule_ids[start : start + CANCELS_MAX]
            for one, refusal in zip(some, client.schedules.cancel_many(some), strict=True):
                if refusal is None:
                    print(f"Schedule {one} is cancelled.")
                else:
                    refusals.append(refusal)
    for refusal in refusals[:-1]:
        print(refusal, file=sys.stderr)
    if refusals:
        raise refusals[-1]


@app.command()
def reschedule(
    ctx: typer.Context,
    schedule_id: Id,
    delay: Annotated[str | None, typer.Option(metavar="5m", help="New delay from now.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="New delivery time.")] = None,
) -> None:
    """Change the delivery time of a scheduled message."""
    if (delay is None) == (at is None):
        raise InvalidRequest("Give the new time: --delay 5m, or --at 2030-01-31T12:00:00Z.")
    with connect_http(ctx) as client:
        due_ms = client.schedules.reschedule(
            schedule_id,
            delay=None if delay is None else read_duration_ms(delay) / 1000,
            deliver_at=None if at is None else read_time_ms(at),
        )
    form = current_call(ctx).output
    if form is OutputForm.TABLE:
        is_past = due_ms <= now_ms()
        when = "now, because that time has passed" if is_past else f"at {show_time(due_ms)}"
        print(f"Schedule {schedule_id} is due {when}.")
    else:
        print_item({"id": schedule_id, "deliver_at": show_time(due_ms)}, form)


@app.command()
def stats(ctx: typer.Context) -> None:
    """Show how many messages wait, were delivered or cancelled, and how late they were."""
    import msgspec

    with connect_http(ctx) as client:
        found = client.schedules.stats()
    print_item(msgspec.to_builtins(found), current_call(ctx).output)


def read_due_ms(text: str | None, *, now_ms: int) -> int | None:
    """A time, or a duration from now, since schedules are in the future."""
    if text is None:
        return None
    if not text.isdecimal():
        try:
            return now_ms + read_duration_ms(text)
        except InvalidRequest:
            pass
    return read_time_ms(text)


def _as_tree(found: Schedule) -> dict[str, object]:
    return {
        "id": found.id,
        "topic": found.topic,
        "partition": found.partition,
        "deliver_at": show_time(found.deliver_at_ms),
        "timestamp": show_time(found.timestamp_ms),
        **as_field("key", found.key),
        **as_field("value", found.value),
        "headers": [{"name": name, **as_field("value", one)} for name, one in found.headers],
    }
