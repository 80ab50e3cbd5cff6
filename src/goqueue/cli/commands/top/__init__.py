"""`goqueue top`: what a cluster does now, live in a terminal, or once for a program."""

from __future__ import annotations

import enum
import shutil
import sys
import time
from typing import Annotated

import typer

from goqueue.cli.commands.top.measured import Measured, Round
from goqueue.cli.commands.top.screen import OVERVIEW_NAME, Screen, Status, table
from goqueue.cli.commands.top.views import OVERVIEW, VIEWS, overview_of
from goqueue.cli.commands.top.watching import Cluster, Watcher
from goqueue.cli.commands.top.writing import written
from goqueue.cli.connecting import bare, http_address, no_broker
from goqueue.cli.context import current_call
from goqueue.cli.moments import read_duration_ms
from goqueue.cli.output import OutputForm, Row, print_item
from goqueue.cli.remedies import remedies
from goqueue.model.errors import InvalidRequest

INTERVAL_MS_MIN = 500  # each scrape costs a node some milliseconds
LOOK_SECONDS = 60.0  # at most so long without looking whether anything is new
_WIDTH_OF_PIPE = 1_000

app = typer.Typer()


class ViewName(enum.StrEnum):
    OVERVIEW = OVERVIEW_NAME
    TOPICS = "topics"
    GROUPS = "groups"
    QUEUES = "queues"
    NODES = "nodes"


@app.command()
def top(
    ctx: typer.Context,
    interval: Annotated[str, typer.Option("--interval", "-i", help="Time between updates.")] = "2s",
    view: Annotated[
        ViewName | None, typer.Option("--view", "-v", help="View to begin with; 1 to 5 change it.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the figures of one interval and exit.")
    ] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
) -> None:
    """Show rates, lag, queues and nodes of a cluster, live."""
    interval_ms = read_duration_ms(interval)
    if interval_ms < INTERVAL_MS_MIN:
        raise InvalidRequest(f"The interval must be {INTERVAL_MS_MIN}ms or longer.")
    form = current_call(ctx).output
    if not once and (form is not OutputForm.TABLE or not _has_terminal()):
        raise InvalidRequest("The live view needs a terminal; use --once.")
    address, access = http_address(ctx), current_call(ctx).access
    cluster = Cluster(address, access)
    screen = Screen(shows_internal=internal)
    if view is not None:
        screen.view = view.value
    try:
        with remedies(access), no_broker(bare(address), "--http", "HTTP "):
            first = Measured(_answered(cluster.scrape()), {})
        if once:
            time.sleep(interval_ms / 1000)
            measured = first.followed_by(_answered(cluster.scrape()))
            _print(screen, measured, form, only=None if view is None else view.value)
        else:
            _watch(cluster, screen, first, interval_ms / 1000)
    finally:
        cluster.close()


def _has_terminal() -> bool:
    return sys.platform != "win32" and sys.stdin.isatty() and sys.stdout.isatty()


def _answered(done: Round) -> Round:
    """A round in which a node has answered; without one, there is nothing to show."""
    if not done.scrapes:
        raise next(iter(done.failures.values()))
    return done


def _watch(cluster: Cluster, screen: Screen, measured: Measured, interval_seconds: float) -> None:
    from goqueue.cli.commands.top.terminal import Terminal

    terminal = Terminal()
    watcher = Watcher(cluster, interval_seconds, on_round=terminal.wake)
    status = Status(interval_seconds, _clock(), _trouble(measured.last))
    watcher.start()
    try:
        with terminal.taken():
            while True:
                terminal.show(screen.frame(measured, status, terminal.size))
                for key in terminal.wait(LOOK_SECONDS):
                    if not screen.press(key):
                        return
                done = watcher.take()
                if done is None or screen.is_paused:
                    continue
                status.trouble = _trouble(done)
                if done.scrapes:
                    measured, status.clock = measured.followed_by(done), _clock()
    except KeyboardInterrupt:
        return
    finally:
        watcher.stop()


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _trouble(done: Round) -> str:
    """Which nodes did not answer, and the reason of the first."""
    if not done.failures:
        return ""
    reason = str(next(iter(done.failures.values())))
    return f"No metrics of {', '.join(done.failures)}, trying again: {reason}"


def _print(screen: Screen, measured: Measured, form: OutputForm, *, only: str | None) -> None:
    """Print the figures of all views, or of one: written for people, as numbers for programs."""
    overview = overview_of(measured)
    tables = {view.name: screen.rows_of(view, measured) for view in VIEWS}
    if form is not OutputForm.TABLE:
        tree: Row = {"cluster_id": measured.last.cluster_id, OVERVIEW_NAME: overview, **tables}
        print_item(tree if only is None else {only: tree[only]}, form)
        return
    if only in (None, OVERVIEW_NAME):
        print_item({one.title: written(overview[one.name], one.unit) for one in OVERVIEW}, form)
    for view in VIEWS:
        if only in (None, view.name) and tables[view.name]:
            if only is None:
                print()
            for line in table(view, tables[view.name], screen.sortings[view.name], _width()):
                print(line.text)


def _width() -> int:
    """The width of the terminal; another program receives the whole text."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPE
