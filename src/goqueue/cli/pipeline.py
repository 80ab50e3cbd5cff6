"""`goqueue pipeline`: jobs on whole topics, with Spark: archive, replay, compact and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goqueue.cli.broker import connect
from goqueue.cli.context import current_call
from goqueue.cli.http import connect_http
from goqueue.cli.moments import (
    now_ms,
    read_duration_ms,
    read_position,
    show_time,
)
from goqueue.cli.output import OutputForm, print_item, print_rows
from goqueue.cli.progress import progress
from goqueue.cli.redrive import read_header_filter, read_moment_ms
from goqueue.client import Place
from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from goqueue.spark.options import Start
    from goqueue.spark.pipelines import Selection

app = typer.Typer(no_args_is_help=True, help="Run jobs on whole topics, with Spark.")
run = typer.Typer(no_args_is_help=True, help="Run a pipeline; each can run twice without harm.")
app.add_typer(run, name="run")

PIPELINES = {
    "archive": "topics into Parquet files; goes on where it ended",
    "verify": "an archive against its manifests: every file, count and checksum",
    "replay": "an archive, or a range of a topic, back into a topic",
    "compact": "the latest record of each key, as an archive of its own",
    "redistribute": "a topic into one with more partitions, in the order of each key",
    "deadletters": "dead letters by reason, key, time and source; bring some back",
    "lag": "how far groups are behind, kept over time, and where it leads",
}
_STEPS = 1000  # of a bar

Master = Annotated[
    str,
    typer.Option(
        envvar="GOQUEUE_SPARK_MASTER", help="Where Spark runs: local[*], spark://HOST:7077, yarn."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Folder = Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder to write to.")]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Go on if records are gone that were not read yet."),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="2h|TIME", help="Only records since then.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="2h|TIME", help="Only records before then.")
]
Where = Annotated[
    str | None,
    typer.Option(metavar="SQL", help="Only records for which this holds, as offset % 10 = 0."),
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not read the target again.")]
Mark = Annotated[
    bool,
    typer.Option("--mark", help="Mark records with a header: none is there twice after a crash."),
]
Tick = Callable[[int, int], object]


@app.command("list")
def list_pipelines(ctx: typer.Context) -> None:
    """List the pipelines."""
    rows = [{"pipeline": name, "what": what} for name, what in PIPELINES.items()]
    print_rows(rows, current_call(ctx).output)


@run.command()
def archive(
    ctx: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Topics to archive.")],
    to: Folder,
    layout: Annotated[
        Literal["time", "partition"], typer.Option(help="Folders by date and hour, or partition.")
    ] = "time",
    task_records: Annotated[
        int | None, typer.Option(min=1, help="Records of one task at most; else by size.")
    ] = None,
    accept_loss: AcceptLoss = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read the archive again.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Append what is new in topics to an archive of Parquet files."""
    with _spark(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.archive(
            spark,
            current_call(ctx).bootstrap,
            topics,
            to,
            layout=layout,
            records_per_task_max=task_records,
            fails_on_data_loss=not accept_loss,
            on_progress=tick,
        )
        if verify:
            pipelines.verify_archive(spark, to, on_progress=tick)
    found = done.manifest
    _print(
        ctx,
        {
            "archive": to,
            "manifest": None if found is None else found.number,
            "records": 0 if found is None else found.digest.records,
            "files": 0 if found is None else len(found.files),
            "bytes": 0 if found is None else sum(file.bytes for file in found.files),
            "checksum": None if found is None else f"{found.digest.content:016x}",
            "losses": [] if found is None else list(found.losses),
            "strays_removed": done.strays_removed,
            "verified": verify,
            "seconds": round(done.seconds, 3),
        },
    )


@run.command()
def verify(
    ctx: typer.Context,
    folder: Annotated[str, typer.Argument(help="Folder of the archive.")],
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Read an archive again and compare it with its manifests."""
    with _spark(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        found = pipelines.verify_archive(spark, folder, on_progress=tick)
    digest = found.digest
    _print(
        ctx,
        {
            "archive": folder,
            "files": found.files,
            "records": digest.records,
            "checksum": f"{digest.content:016x}",
        },
    )


@run.command()
def replay(
    ctx: typer.Context,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Topic to write to.")],
    run_id: Annotated[
        str, typer.Option("--run", metavar="NAME", help="Name of the run; the same goes on.")
    ],
    archive: Annotated[str | None, typer.Option(metavar="FOLDER", help="What to replay.")] = None,
    topic: Annotated[str | None, typer.Option(help="Or a topic, as it is now.")] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where to note how far it is; else in the archive."),
    ] = None,
    from_: From = None,
    until: Until = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Only this key; may be repeated.")
    ] = None,
    header: Annotated[
        str | None, typer.Option(metavar="NAME[=VALUE]", help="Only with this header.")
    ] = None,
    where: Where = None,
    keep_timestamps: Annotated[bool, typer.Option(help="Or write them with the time now.")] = True,
    partitioning: Annotated[
        Literal["key", "same"], typer.Option(help="By key, or as in the source.")
    ] = "key",
    mark: Mark = False,
    no_verify: NoVerify = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Replay an archive, or a topic, into a topic, and verify counts and checksums there."""
    selection = _selection(from_, until, key, header, where)
    with _spark(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.replay(
            spark,
            current_call(ctx).bootstrap,
            to,
            run_id=run_id,
            archive=archive,
            topic=topic,
            state=state,
            selection=selection,
            start=_start(from_) if topic is not None else None,
            keeps_timestamps=keep_timestamps,
            partitioning=partitioning,
            is_marked=mark,
            is_verified=not no_verify,
            on_progress=tick,
        )
    _print(
        ctx,
        {
            "run": done.run_id,
            "copied": done.copied,
            "present": done.present,
            "records": done.digest.records,
            "checksum": f"{done.digest.content:016x}",
            "verified": done.verified,
            "unplaced": done.unplaced,
            "seconds": round(done.seconds, 3),
        },
    )


@run.command()
def compact(
    ctx: typer.Context,
    to: Folder,
    topic: Annotated[str | None, typer.Option(help="What to compact.")] = None,
    archive: Annotated[str | None, typer.Option(metavar="FOLDER", help="Or an archive.")] = None,
    drop_tombstones: Annotated[
        bool, typer.Option("--drop-tombstones", help="Leave out keys that were deleted.")
    ] = False,
    keep_keyless: Annotated[
        bool, typer.Option("--keep-keyless", help="Keep all records without a key.")
    ] = False,
    accept_loss: AcceptLoss = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Keep the latest record of each key, as a snapshot in a folder of its own."""
    with _spark(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.compact(
            spark,
            to,
            bootstrap=current_call(ctx).bootstrap,
            topic=topic,
            archive=archive,
            keeps_tombstones=not drop_tombstones,
            keeps_keyless=keep_keyless,
            fails_on_data_loss=not accept_loss,
            on_progress=tick,
        )
    found = done.manifest
    _print(
        ctx,
        {
            "archive": to,
            "manifest": None if found is None else found.number,
            "records": None if found is None else found.digest.records,
            "files": None if found is None else len(found.files),
            "losses": [] if found is None else list(found.losses),
            "seconds": round(done.seconds, 3),
        },
    )


@run.command()
def redistribute(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="Topic to read.")],
    target: Annotated[str, typer.Argument(help="Topic to write; made if it is not there.")],
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where to note how far it is; its own.")
    ],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Of a target that is made.")
    ] = None,
    mark: Mark = False,
    no_verify: NoVerify = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Copy what is new in a topic into another, keys where its clients look for them."""
    with _spark(master, conf) as (spark, tick):
        from goqueue.spark import pipelines

        done = pipelines.redistribute(
            spark,
            current_call(ctx).bootstrap,
            source,
            target,
            state,
            partitions=partitions,
            is_marked=mark,
            is_verified=not no_verify,
            on_progress=tick,
        )
    _print(
        ctx,
        {
            "target": target,
            "partitions": done.partitions,
            "copied": done.copied,
            "records": done.digest.records,
            "checksum": f"{done.digest.content:016x}",
            "verified": done.verified,
            "seconds": round(done.seconds, 3),
        },
    )


@run.command()
def deadletters(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic whose dead letters are meant.")],
    dead_letter_topic: Annotated[
        str | None, typer.Option(help="Where they lie; else TOPIC.dlq.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Count by reason, group, key, hour or source; may be repeated."),
    ] = None,
    where: Where = None,
    save: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Keep the tables for the report.")
    ] = None,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Bring the selected letters back.")
    ] = False,
    keep_copy: Annotated[
        bool, typer.Option("--keep-copy", help="Leave them among the dead letters too.")
    ] = False,
    rate: Annotated[int | None, typer.Option(min=1, help="Letters per second at most.")] = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Count dead letters, and bring a selection of them back."""
    lying_in = dead_letter_topic or f"{topic}.dlq"
    with _spark(master, conf) as (spark, tick):
        from goqueue.spark.pipelines import Selection, letters, select

        groupings = by or list(letters.GROUPINGS)
        for one in groupings:
            letters.check_grouping(one)
        found = letters.read_letters(spark, current_call(ctx).bootstrap, lying_in)
        chosen = select(found, Selection(where=where))
        counted = letters.collect_triage(chosen, lying_in, groupings, time_ms=now_ms())
        if save is not None:
            letters.save_triage(save, counted)
        moved = None
        if redrive:
            with connect_http(ctx) as client:
                moved = letters.redrive(
                    chosen,
                    client,
                    topic,
                    dead_letter_topic=dead_letter_topic,
                    keep_copy=keep_copy,
                    rate_per_s=rate,
                    on_progress=tick,
                )
    _print_triage(ctx, counted, moved)


@run.command()
def lag(
    ctx: typer.Context,
    to: Folder,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only this; may be repeated.")
    ] = None,
    window: Annotated[str, typer.Option(help="Rates are taken over so long.")] = "1h",
    bound: Annotated[
        int | None, typer.Option(min=1, help="Tell when the lag reaches so many records.")
    ] = None,
) -> None:
    """Add the lag of now to its history, and tell where it leads. Needs no Spark session."""
    _need_spark()
    from goqueue.spark import pipelines

    now, window_ms = now_ms(), read_duration_ms(window)
    with connect(ctx) as client:
        samples = pipelines.sample_lag(client, time_ms=now, groups=group)
    pipelines.append_lag(to, samples)
    history = pipelines.read_lag(to, from_ms=now - window_ms)
    seen = {(one.group, one.topic, one.partition) for one in samples}
    forecasts = [
        one
        for one in pipelines.forecast(history, bound=bound)
        if (one.group, one.topic, one.partition) in seen
    ]
    form = current_call(ctx).output
    if not forecasts and form is OutputForm.TABLE:
        print("No group has committed anything yet.")
    print_rows(
        [
            {
                "group": one.group,
                "topic": one.topic,
                "partition": one.partition,
                "lag": one.lag,
                "samples": one.samples,
                "produced_per_s": _rounded(one.produced_per_s),
                "consumed_per_s": _rounded(one.consumed_per_s),
                "gone_at": None if one.gone_at_ms is None else show_time(one.gone_at_ms),
                "bound_at": None if one.bound_at_ms is None else show_time(one.bound_at_ms),
            }
            for one in forecasts
        ],
        form,
    )


@app.command()
def report(
    ctx: typer.Context,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Page to write.")],
    archive: Annotated[
        list[str] | None, typer.Option(metavar="FOLDER", help="An archive; may be repeated.")
    ] = None,
    lag: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="What `run lag` has written.")
    ] = None,
    dead_letters: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="What `run deadletters --save` has.")
    ] = None,
    bound: Annotated[int | None, typer.Option(min=1, help="Lag to warn of.")] = None,
) -> None:
    """Write one HTML page of what was archived, how late, dead letters and lag."""
    _need_spark()
    from goqueue.spark import pipelines

    file = pipelines.write_report(
        to,
        now_ms=now_ms(),
        archives=archive or [],
        lag=lag,
        dead_letters=dead_letters,
        lag_bound=bound,
    )
    _print(ctx, {"report": str(file), "bytes": file.stat().st_size})


# What the commands share


@contextmanager
def _spark(master: str, conf: list[str] | None) -> Iterator[tuple[SparkSession, Tick]]:
    """A session and a bar; both end with the command, unless the session was there before."""
    settings = _settings(conf or [])
    _need_spark()
    from pyspark.sql import SparkSession

    import goqueue.spark
    from goqueue.spark.pipelines.jobs import plain_errors

    is_ours = SparkSession.getActiveSession() is None
    with plain_errors():
        session = goqueue.spark.session(master, name="goqueue pipeline", settings=settings)
    try:
        with progress(_STEPS) as tick, plain_errors():
            yield session, lambda done, total: tick(_STEPS * done // max(total, 1))
    finally:
        if is_ours:
            session.stop()


def _settings(conf: list[str]) -> dict[str, str]:
    settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    for text in conf:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidRequest(f"--conf {text!r} is no setting of Spark; write spark.NAME=VALUE.")
        settings[name] = value
    return settings


def _need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise InvalidRequest(
            "Pipelines need Spark; install it with `pip install goqueue[spark]` (or `make "
            "setup-spark`)."
        )


def _selection(
    from_: str | None,
    until: str | None,
    keys: list[str] | None,
    header: str | None,
    where: str | None,
) -> Selection:
    _need_spark()
    from goqueue.spark.pipelines import Selection

    name, value = read_header_filter(header) or (None, None)
    return Selection(
        from_ms=read_moment_ms(from_, now_ms=now_ms()),
        until_ms=read_moment_ms(until, now_ms=now_ms()),
        keys=tuple(key.encode() for key in keys or ()),
        header_name=name,
        header_value=None if value is None else value.encode(),
        where=where,
    )


def _start(from_: str | None) -> Start | None:
    """Where the broker begins to read; the exact moment is looked at later."""
    from goqueue.spark.options import EARLIEST, Start

    if from_ is None:
        return None
    position = read_position(from_, now_ms=now_ms())
    return Start(EARLIEST, timestamp_ms=position.value) if position.place is Place.TIME else None


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)


def _print(ctx: typer.Context, item: dict[str, object]) -> None:
    print_item(item, current_call(ctx).output)


def _print_triage(ctx: typer.Context, counted: object, moved: object) -> None:
    from goqueue.spark.pipelines.letters import RedriveResult, Triage

    assert isinstance(counted, Triage)
    form = current_call(ctx).output
    tables = {
        by: [
            {
                by: row.what,
                "letters": row.letters,
                "first": None if row.first_ms is None else show_time(row.first_ms),
                "last": None if row.last_ms is None else show_time(row.last_ms),
            }
            for row in rows
        ]
        for by, rows in counted.tables.items()
    }
    item: dict[str, object] = {"topic": counted.topic, **tables}
    if isinstance(moved, RedriveResult):
        item["redrive"] = {
            "selected": moved.selected,
            "moved": moved.moved,
            "passed_over": moved.passed_over,
        }
    if form is not OutputForm.TABLE:
        print_item(item, form)
        return
    for rows in tables.values():
        print_rows(rows, form)
        print()
    if isinstance(moved, RedriveResult):
        print(f"{moved.moved:,} of {moved.selected:,} letters are brought back.")
