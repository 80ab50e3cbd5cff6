"""`goqueue txn`: inspect transactions, and abort one that blocks consumers."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.connecting import confirm, connect
from goqueue.cli.context import current_call
from goqueue.cli.lookups import partitions_of
from goqueue.cli.moments import now_ms, read_duration_ms, show_time
from goqueue.cli.output import OutputForm, Row, print_item, print_rows
from goqueue.client import LogClient, OpenTransaction, TransactionDescription
from goqueue.model.errors import InvalidRequest, InvalidTransactionState

app = typer.Typer(
    no_args_is_help=True, help="Inspect transactions, and abort one that blocks consumers."
)

# The default timeout of transactions; the coordinator may still end a younger one by itself.
HANGING_AGE_MS = 15 * 60 * 1000

Age = Annotated[
    str | None,
    typer.Option(metavar="5m", help="Only transactions that have been open for longer."),
]


@app.command("list")
def list_transactions(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only those in this state, such as Ongoing; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(help="Only those of this producer; may be repeated.")
    ] = None,
    older_than: Age = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match this expression as a whole."),
    ] = None,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging",
            help="List hanging transactions: open in a partition, but without a coordinator.",
        ),
    ] = False,
) -> None:
    """List transactional ids and the states of their transactions."""
    older_than_ms = None if older_than is None else read_duration_ms(older_than)
    if hanging:
        if state or producer_id or pattern:
            raise InvalidRequest("--hanging can be combined with --older-than only.")
        _list_hanging(ctx, HANGING_AGE_MS if older_than_ms is None else older_than_ms)
        return
    with connect(ctx) as client:
        found = client.transactions.list_all(
            states=state or (),
            producer_ids=producer_id or (),
            older_than_ms=older_than_ms,
            pattern=pattern,
        )
    call = current_call(ctx)
    if not found and call.output is OutputForm.TABLE:
        print("No transaction matches.")
    rows = [
        {
            "transaction": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.node_id,
        }
        for each in found
    ]
    print_rows(rows, call.output)


@app.command()
def describe(
    ctx: typer.Context,
    transactional_id: Annotated[str, typer.Argument(help="The producer's transactional id.")],
) -> None:
    """Show a transactional id: state, producer, age, and the partitions it has written to."""
    with connect(ctx) as client:
        found = client.transactions.describe(transactional_id)
    form = current_call(ctx).output
    item = _as_item(found)
    if form is OutputForm.TABLE:
        item["partitions"] = ", ".join(map(str, found.partitions)) or None
    print_item(item, form)


@app.command()
def abort(
    ctx: typer.Context,
    transactional_id: Annotated[
        str | None, typer.Argument(help="The producer's transactional id.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Topic of a hanging transaction.")] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Partition of a hanging transaction."),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="First offset of a hanging transaction.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Abort an open transaction and fence its producer, which must initialize again.

    A hanging transaction (see `list --hanging`) has no coordinator and is aborted in its partition:
    give --topic, --partition and --start-offset instead of an id.
    """
    with connect(ctx) as client:
        if transactional_id is not None:
            if topic is not None or partition is not None or start_offset is not None:
                raise InvalidRequest(
                    "Give a transactional id, or --topic, --partition and --start-offset; not both."
                )
            _abort_by_id(ctx, client, transactional_id, yes)
            return
        if topic is None or partition is None or start_offset is None:
            raise InvalidRequest(
                "Give a transactional id, or --topic, --partition and --start-offset of a hanging "
                "transaction."
            )
        _abort_hanging(ctx, client, topic, partition, start_offset, yes)


def _list_hanging(ctx: typer.Context, idle_ms_min: int) -> None:
    with connect(ctx) as client:
        found = client.transactions.hanging(idle_ms_min=idle_ms_min, now_ms=now_ms())
    call = current_call(ctx)
    if not found and call.output is OutputForm.TABLE:
        print("There are no hanging transactions.")
    print_rows([_hanging_row(each) for each in found], call.output)


def _abort_by_id(
    ctx: typer.Context, client: LogClient, transactional_id: str, is_sure: bool
) -> None:
    found = client.transactions.describe(transactional_id)
    noun = "partition" if len(found.partitions) == 1 else "partitions"
    question = (
        f"Abort the transaction of {transactional_id} ({found.state.lower()}, "
        f"{len(found.partitions)} {noun}) and fence its producer"
    )
    confirm(ctx, client, question, yes=is_sure)
    client.transactions.abort(transactional_id)
    print(f"The transaction of {transactional_id} is aborted.")


def _abort_hanging(
    ctx: typer.Context,
    client: LogClient,
    topic: str,
    partition: int,
    start_offset: int,
    is_sure: bool,
) -> None:
    partitions = partitions_of(client, topic, only=partition)
    found = [
        each
        for each in client.transactions.open_in(partitions)
        if each.start_offset == start_offset
    ]
    if not found:
        raise InvalidTransactionState(
            f"No open transaction begins at offset {start_offset} of {partitions[0]}; "
            "`goqueue txn list --hanging` shows their first offsets."
        )
    question = f"Abort the transaction of producer {found[0].producer_id} in {partitions[0]}"
    confirm(ctx, client, question, yes=is_sure)
    client.transactions.abort_in(found[0])
    print(f"The transaction of producer {found[0].producer_id} in {partitions[0]} is aborted.")


def _as_item(found: TransactionDescription) -> dict[str, object]:
    return {
        "transaction": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": None if found.started_ms is None else show_time(found.started_ms),
        "partitions": [str(each) for each in found.partitions],
    }


def _hanging_row(each: OpenTransaction) -> Row:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": each.start_offset,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "last_write": show_time(each.last_write_ms),
    }
