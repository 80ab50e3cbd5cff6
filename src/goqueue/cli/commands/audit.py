"""`goqueue audit`: show who did what, allowed or denied."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from goqueue.cli.connecting import connect_http
from goqueue.cli.context import current_call
from goqueue.cli.moments import now_ms, read_duration_ms, read_time_ms, show_time
from goqueue.cli.output import OutputForm, Row, plain, print_rows
from goqueue.client.http import Client

WAIT_S = 20  # of one request that follows the log

app = typer.Typer(no_args_is_help=True, help="Show who did what, allowed or denied.")


class Outcome(enum.StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    FAILED = "failed"


@app.callback()
def audit() -> None:
    """Show who did what, allowed or denied."""
    # With a callback, the only command keeps its name.


@app.command()
def tail(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further events; end with ctrl-c.")
    ] = False,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="Newest events to begin with.")
    ] = 20,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="2h|TIME", help="Begin at a time instead."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only events of this user.")] = None,
    operation: Annotated[
        str | None, typer.Option(help="Only this operation, or this area: topics.create, topics.")
    ] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only this outcome.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only with this resource.")] = None,
) -> None:
    """Show the newest events of the audit log."""
    filters: dict[str, Any] = {
        "user": user,
        "operation": operation,
        "outcome": None if outcome is None else outcome.value,
        "resource": resource,
    }
    begin_ms = None if from_ is None else _read_past_ms(from_)
    form = current_call(ctx).output
    with connect_http(ctx) as client:
        pages = _pages(client, begin_ms, count, filters, follow=follow)
        if form is OutputForm.TABLE and not follow:
            print_rows([row_of(one) for page in pages for one in page], form)
            return
        for page in pages:
            for event in page:
                _print(event, form)


def _pages(
    client: Client, begin_ms: int | None, count: int, filters: dict[str, Any], *, follow: bool
) -> Iterator[list[dict[str, Any]]]:
    """Yield events page by page; with `follow`, without an end."""
    page = client.audit.read(from_=begin_ms, limit=count if begin_ms is None else 1000, **filters)
    yield page.events
    while follow or not page.end:
        wait = WAIT_S if follow else 0
        page = client.audit.read(cursor=page.cursor, limit=1000, wait=wait, **filters)
        yield page.events


def _print(event: dict[str, Any], form: OutputForm) -> None:
    """Print one event: a line for people, or an object on one line."""
    if form is OutputForm.TABLE:
        line = "  ".join(str(value) for value in row_of(event).values() if value != "")
    else:
        line = json.dumps(event)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _read_past_ms(text: str) -> int:
    """A time, or a duration before now."""
    if text[-1:].isalpha() and text[:1].isdigit() and text[-1:] != "Z":
        return now_ms() - read_duration_ms(text)
    return read_time_ms(text)


def row_of(event: dict[str, Any]) -> Row:
    """The attributes of an event that fit into a line."""
    actor, endpoint = event.get("actor", {}), event.get("src_endpoint", {})
    resources = event.get("resources", [])
    operation = event.get("api", {}).get("operation") or str(event["activity_name"]).lower()
    times = event.get("count", 1)
    return {
        "time": show_time(event["time"]),
        "user": plain(actor.get("user", {}).get("name", "")),
        "from": plain(endpoint.get("ip") or endpoint.get("hostname", "")),
        "operation": operation,
        "resources": plain(", ".join(f"{one['type']} {one['name']}" for one in resources)),
        "outcome": event.get("unmapped", {}).get("outcome") or str(event["status"]).lower(),
        "times": times if times > 1 else "",
    }
