"""`goqueue queue`: receive and settle messages, and manage queue groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer

from goqueue.cli.commands.queue.dead_letters import add_redrive_commands
from goqueue.cli.commands.queue.groups import add_group_commands, counts
from goqueue.cli.connecting import announce, confirm, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.formats import message_row, message_tree
from goqueue.cli.lookups import connect_queue
from goqueue.cli.moments import read_duration_ms, read_offsets, show_time
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.client.http import PeekedMessage, ReceivedMessage
from goqueue.client.http.areas import Queue
from goqueue.model.errors import GoQueueError, InvalidRequest

app = typer.Typer(
    no_args_is_help=True, help="Receive and settle messages, manage queue groups and dead letters."
)
add_group_commands(app)
add_redrive_commands(app)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Group = Annotated[str, typer.Option("--group", "-g", help="Name of the queue group.")]
Receipts = Annotated[list[str], typer.Argument(help="Receipts printed by `receive`.")]
Settle = Callable[[Queue], list[GoQueueError | None]]


@app.command()
def receive(
    ctx: typer.Context,
    topic: Topic,
    group: Group,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="Most messages to receive.")
    ] = 10,
    wait: Annotated[
        str, typer.Option(metavar="5s", help="How long to wait for the first message.")
    ] = "0s",
    visibility: Annotated[
        str | None,
        typer.Option(metavar="30s", help="Visibility timeout; default that of the group."),
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(help="Name of this consumer, shown by `peek`.")
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge the messages after printing them.")
    ] = False,
) -> None:
    """Receive messages; those not settled before the visibility timeout are delivered again."""
    form = current_call(ctx).output
    instead = f"read it with `goqueue consume {topic} --group {group}`, or choose another name"
    with connect_queue(ctx, group, instead=instead) as client:
        queue = client.queue(topic, group=group, consumer=consumer)
        messages = queue.receive(
            count,
            wait=_seconds(wait),
            visibility=None if visibility is None else _seconds(visibility),
        )
        _print_received(messages, form)
        if ack and messages:
            _settle_all(queue.ack_many(messages), [one.receipt for one in messages], "ack", form)


@app.command()
def ack(ctx: typer.Context, receipts: Receipts, group: Group) -> None:
    """Acknowledge messages: they are done and not delivered again."""
    _settle(ctx, group, receipts, "ack", lambda queue: queue.ack_many(receipts))


@app.command()
def nack(
    ctx: typer.Context,
    receipts: Receipts,
    group: Group,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="30s", help="Delay before the next delivery; default the backoff of the group."
        ),
    ] = None,
) -> None:
    """Return messages to the queue, to be delivered again."""
    seconds = None if delay is None else _seconds(delay)
    _settle(ctx, group, receipts, "nack", lambda queue: queue.nack_many(receipts, delay=seconds))


@app.command()
def reject(
    ctx: typer.Context,
    receipts: Receipts,
    group: Group,
    reason: Annotated[str, typer.Option(help="Reason, stored with the dead letter.")] = "rejected",
) -> None:
    """Move messages to the dead letters, without further attempts."""
    _settle(ctx, group, receipts, "reject", lambda one: one.reject_many(receipts, reason=reason))


@app.command()
def extend(
    ctx: typer.Context,
    receipts: Receipts,
    group: Group,
    visibility: Annotated[
        str | None,
        typer.Option(
            metavar="30s", help="New visibility timeout from now; default that of the group."
        ),
    ] = None,
) -> None:
    """Extend the visibility timeout of messages."""
    seconds = None if visibility is None else _seconds(visibility)
    _settle(
        ctx, group, receipts, "extend", lambda one: one.extend_many(receipts, visibility=seconds)
    )


@app.command()
def peek(
    ctx: typer.Context,
    topic: Topic,
    group: Group,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Start at this offset, and show settled messages too.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100)] = 10,
) -> None:
    """Show messages and their state in the group, without receiving them."""
    with connect_queue(ctx, group, instead=f"use `goqueue consume {topic}`") as client:
        found = client.queue(topic, group=group).peek(
            partition=partition, offset=offset, limit=count
        )
    form = current_call(ctx).output
    if not found and form is OutputForm.TABLE:
        print(f"No messages of {topic} match for group {group}.")
    print_rows([_peek_row(one, form) for one in found], form)


@app.command()
def stats(ctx: typer.Context, topic: Topic, group: Group) -> None:
    """Count messages that are ready, in flight or waiting for a retry, by lane and partition."""
    with connect_queue(ctx, group, instead=f"use `goqueue group lag {group}`") as client:
        found = client.queue(topic, group=group).stats()
    form = current_call(ctx).output
    lanes = [_row(one, "longest_wait_ms") for one in found.lanes]
    partitions = [_row(one, "lanes") for one in found.partitions]
    if form is not OutputForm.TABLE:
        tree = {**counts(found), "totals": _row(found.totals)}
        print_item(
            {"group": group, "topic": topic, **tree, "lanes": lanes, "partitions": partitions}, form
        )
        return
    print(
        f"{group} in {topic}: "
        + ", ".join(f"{n:,} {_words(name)}" for name, n in counts(found).items())
    )
    print(
        "since the node started: "
        + ", ".join(f"{n:,} {_words(name)}" for name, n in _row(found.totals).items() if n),
        end="\n\n",
    )
    print_rows(lanes, form)
    print()
    print_rows(partitions, form)


@app.command()
def rewind(
    ctx: typer.Context,
    topic: Topic,
    group: Group,
    to: Annotated[
        str | None, typer.Option(metavar="earliest|latest|2h|TIME", help="Time to go back to.")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION:OFFSET", help="Offset to go back to; may be repeated."),
    ] = None,
) -> None:
    """Deliver messages again from a time or from offsets, including acknowledged ones."""
    if (to is None) == (offset is None):
        raise InvalidRequest("Give the target: --to TIME, or --offset PARTITION:OFFSET.")
    offsets = None if offset is None else dict(read_offsets(offset, "--offset"))
    instead = f"use `goqueue group reset {group} --topic {topic}`"
    with connect_queue(ctx, group, instead=instead) as client:
        announce(ctx, client)
        moved = client.queue(topic, group=group).rewind(to, offsets=offsets)
    _print_positions(moved, current_call(ctx).output)


@app.command()
def purge(
    ctx: typer.Context,
    topic: Topic,
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Settle all present messages for the group without delivering them; they stay in the topic."""
    instead = f"use `goqueue group reset {group} --topic {topic} --to-latest`"
    with connect_queue(ctx, group, instead=instead) as client:
        queue = client.queue(topic, group=group)
        left = sum(counts(queue.stats()).values())
        noun = "message" if left == 1 else "messages"
        confirm(ctx, client, f"Purge {left:,} {noun} of {topic} for group {group}", yes=yes)
        moved = queue.purge()
    _print_positions(moved, current_call(ctx).output)


@app.command()
def lanes(ctx: typer.Context, topic: Topic) -> None:
    """Show the priority lanes of a topic: weights, message counts, and progress of each group."""
    with connect_http(ctx) as client:
        found = client.topics.lanes(topic)
    form = current_call(ctx).output
    rows = [{"lane": one.lane, "weight": one.weight, "stored": one.stored} for one in found.lanes]
    if form is not OutputForm.TABLE:
        rules = {"topic": topic, "strict": found.strict, "starvation_ms": found.starvation_ms}
        groups = [
            {"group": one.group, "lanes": [_row(lane) for lane in one.lanes]}
            for one in found.groups
        ]
        print_item({**rules, "lanes": rows, "groups": groups}, form)
        return
    order = "strict" if found.strict else "weighted"
    print(f"{topic}: {order}, no lane waits longer than about {found.starvation_ms / 1000:g} s\n")
    print_rows(rows, form)
    for one in found.groups:
        print(f"\n{one.group}:")
        print_rows(
            [_row(lane, "in_total", "out_total", "longest_wait_ms") for lane in one.lanes], form
        )


def _seconds(text: str) -> float:
    return read_duration_ms(text) / 1000


def _print_received(messages: Sequence[ReceivedMessage], form: OutputForm) -> None:
    if form is not OutputForm.TABLE:
        own = [
            {
                **message_tree(one),
                "priority": one.priority,
                "attempt": one.attempt,
                "lease_until": show_time(one.lease_until_ms),
                "receipt": one.receipt,
            }
            for one in messages
        ]
        print_rows(own, form)
        return
    if not messages:
        print("No message is available now.")
    rows = [
        {
            **message_row(one),
            "priority": one.priority,
            "attempt": one.attempt,
            "receipt": one.receipt,
        }
        for one in messages
    ]
    print_rows(rows, form)


def _settle(ctx: typer.Context, group: str, receipts: list[str], verb: str, settle: Settle) -> None:
    with connect_queue(ctx, group, instead="it commits offsets and has no receipts") as client:
        # A receipt contains its topic.
        errors = settle(client.queue("", group=group))
    _settle_all(errors, receipts, verb, current_call(ctx).output)


def _settle_all(
    errors: list[GoQueueError | None], receipts: list[str], verb: str, form: OutputForm
) -> None:
    """Print the result of each receipt; fail if one was refused."""
    refused = [(one, error) for one, error in zip(receipts, errors, strict=True) if error]
    if form is not OutputForm.TABLE:
        print_rows(
            [
                {
                    "receipt": one,
                    "ok": error is None,
                    "problem": None if error is None else str(error),
                }
                for one, error in zip(receipts, errors, strict=True)
            ],
            form,
        )
    elif len(receipts) > len(refused):
        done = len(receipts) - len(refused)
        print(f"{_PAST[verb]} {done} {'message' if done == 1 else 'messages'}.")
    if refused:
        raise _with_count(refused)


_PAST = {"ack": "Acknowledged", "nack": "Returned", "reject": "Rejected", "extend": "Extended"}


def _with_count(refused: list[tuple[str, GoQueueError]]) -> GoQueueError:
    receipt, error = refused[0]
    more = "" if len(refused) == 1 else f" ({len(refused) - 1} more were refused)"
    return InvalidRequest(f"Receipt {receipt}: {error}{more}")


def _peek_row(one: PeekedMessage, form: OutputForm) -> dict[str, object]:
    state: dict[str, object] = {
        "priority": one.priority,
        "state": one.state,
        "attempts": one.attempts,
        "consumer": one.consumer,
        "lease_until": None if one.lease_until_ms is None else show_time(one.lease_until_ms),
        "due_at": None if one.due_at_ms is None else show_time(one.due_at_ms),
    }
    shown = message_row(one) if form is OutputForm.TABLE else message_tree(one)
    return {**shown, **state}


def _row(struct: object, *without: str) -> dict[str, object]:
    import msgspec

    fields: Mapping[str, object] = msgspec.to_builtins(struct)
    return {name: one for name, one in fields.items() if name not in without}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _print_positions(positions: Mapping[int, int], form: OutputForm) -> None:
    print_rows(
        [{"partition": one, "goes_on_at": offset} for one, offset in positions.items()], form
    )
