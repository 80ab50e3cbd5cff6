"""`goqueue queue dead-letters` and `redrive`: inspect and redrive dead letters."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from goqueue.cli.connecting import announce, connect_http
from goqueue.cli.context import current_call
from goqueue.cli.formats import message_row, message_tree
from goqueue.cli.moments import now_ms, read_offsets, read_position, show_time
from goqueue.cli.output import OutputForm, print_item, print_rows, progress
from goqueue.client import PositionKind
from goqueue.client.http import Client, DeadLetter, LetterFilter, Redrive
from goqueue.model.errors import InvalidRequest

POLL_SECONDS = 0.2

Topic = Annotated[str, typer.Argument(help="Topic that the dead letters come from.")]
JobId = Annotated[str, typer.Argument(help="Id of the redrive.")]


def add_redrive_commands(app: typer.Typer) -> None:
    """Add the commands about dead letters to those of `goqueue queue`."""
    app.command("dead-letters")(dead_letters)
    app.command()(redrive)
    app.command()(redrives)
    app.command("pause-redrive")(pause)
    app.command("resume-redrive")(resume)
    app.command("cancel-redrive")(cancel)


def dead_letters(
    ctx: typer.Context,
    topic: Topic,
    reason: Annotated[str | None, typer.Option(help="Only this reason.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only of this group.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only with this key.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="2h|TIME", help="Only dead-lettered since then.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="2h|TIME", help="Only dead-lettered before then.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="Most to show.")
    ] = 20,
) -> None:
    """Show dead letters with the reason and the number of attempts."""
    wanted = LetterFilter(
        reason=reason,
        group=group,
        key=key,
        from_=read_moment_ms(from_, now_ms=now_ms()),
        until=read_moment_ms(until, now_ms=now_ms()),
    )
    with connect_http(ctx) as client:
        page = client.dead_letters(topic).list_page(wanted, limit=count)
    form = current_call(ctx).output
    letters = page.letters
    if not letters and form is OutputForm.TABLE:
        print(f"Topic {topic} has no dead letters" + (" that match." if page.total else "."))
    print_rows([_letter_row(one, form) for one in letters], form)
    matching = page.total if page.matching is None else page.matching
    if form is OutputForm.TABLE and matching > len(letters) > 0:
        print(f"\n{len(letters):,} of {matching:,}; -n shows more.")


def redrive(
    ctx: typer.Context,
    topic: Topic,
    reason: Annotated[str | None, typer.Option(help="Only this reason.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only of this group.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only with this key.")] = None,
    header: Annotated[
        str | None, typer.Option(metavar="NAME[=VALUE]", help="Only with this header.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="2h|TIME", help="Only dead-lettered since then.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="2h|TIME", help="Only dead-lettered before then.")
    ] = None,
    letter: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION:OFFSET", help="Only this dead letter; may be repeated."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Most to redrive.")
    ] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Messages per second at most.")] = None,
    keep_copy: Annotated[
        bool, typer.Option("--keep-copy", help="Keep the dead letters too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once, without waiting for completion.")
    ] = False,
) -> None:
    """Move dead letters back to their source, with the number of attempts reset."""
    wanted = LetterFilter(
        reason=reason,
        group=group,
        key=key,
        header=read_header_filter(header),
        from_=read_moment_ms(from_, now_ms=now_ms()),
        until=read_moment_ms(until, now_ms=now_ms()),
    )
    letters = None if letter is None else read_offsets(letter, "--letter")
    form = current_call(ctx).output
    with connect_http(ctx) as client:
        box = client.dead_letters(topic)
        if not box.list_page(limit=1).total:
            _print_nothing(topic, form)
            return
        found = box.preview(wanted, letters=letters, max_messages=count)
        if dry_run:
            print_item({"matching": found.matching, "passed_over": found.passed_over}, form)
            return
        announce(ctx, client)
        job = box.redrive(
            wanted, letters=letters, max_messages=count, rate_per_s=rate, keep_copy=keep_copy
        )
        if not detach:
            job = _wait(client, job, found.matching)
    _print_job(job, form)
    if job.state == "failed":
        raise InvalidRequest(f"Redrive {job.id} failed: {job.problem}")


def _print_nothing(topic: str, form: OutputForm) -> None:
    """Treat a missing dead-letter topic as a topic without dead letters, not as an error."""
    if form is OutputForm.TABLE:
        print(f"Topic {topic} has no dead letters.")
    else:
        print_item({"matching": 0, "passed_over": 0}, form)


def redrives(ctx: typer.Context, topic: Topic) -> None:
    """List the redrives of a topic, newest first."""
    with connect_http(ctx) as client:
        jobs = client.dead_letters(topic).redrives()
    form = current_call(ctx).output
    if not jobs and form is OutputForm.TABLE:
        print(f"There are no redrives of {topic} yet.")
    print_rows([_job_row(one) for one in jobs], form)


def pause(ctx: typer.Context, topic: Topic, redrive_id: JobId) -> None:
    """Pause a redrive."""
    with connect_http(ctx) as client:
        _print_job(client.dead_letters(topic).pause(redrive_id), current_call(ctx).output)


def resume(ctx: typer.Context, topic: Topic, redrive_id: JobId) -> None:
    """Resume a paused redrive."""
    with connect_http(ctx) as client:
        _print_job(client.dead_letters(topic).resume(redrive_id), current_call(ctx).output)


def cancel(ctx: typer.Context, topic: Topic, redrive_id: JobId) -> None:
    """Cancel a redrive; messages not moved yet remain dead letters."""
    with connect_http(ctx) as client:
        _print_job(client.dead_letters(topic).cancel(redrive_id), current_call(ctx).output)


def _wait(client: Client, job: Redrive, total: int) -> Redrive:
    """Show the progress until the redrive ends; after Ctrl-C the broker continues by itself."""
    box = client.dead_letters(job.topic)
    try:
        with progress(max(total, 1)) as tick:
            while job.state == "running":
                time.sleep(POLL_SECONDS)
                job = box.show_redrive(job.id)
                tick(job.moved + job.failed)
    except KeyboardInterrupt:
        job = box.show_redrive(job.id)
    return job


def _print_job(job: Redrive, form: OutputForm) -> None:
    if form is not OutputForm.TABLE:
        print_item(_job_row(job), form)
        return
    noun = "message" if job.moved == 1 else "messages"
    print(f"Redrive {job.id} is {job.state}: {job.moved:,} {noun} moved back.")


def _job_row(job: Redrive) -> dict[str, object]:
    return {
        "id": job.id,
        "state": job.state,
        "moved": job.moved,
        "passed_over": job.passed_over,
        "failed": job.failed,
        "remaining": job.remaining,
        "started": show_time(job.created_at),
        "ended": None if job.ended_at is None else show_time(job.ended_at),
        "problem": job.problem or None,
    }


def _letter_row(letter: DeadLetter, form: OutputForm) -> dict[str, object]:
    shown = message_row(letter) if form is OutputForm.TABLE else message_tree(letter)
    source = letter.source
    return {
        **shown,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "group": None if source is None else source.group,
        "source": None if source is None else f"{source.topic}:{source.partition}:{source.offset}",
        "died_at": None if letter.died_at_ms is None else show_time(letter.died_at_ms),
    }


def read_header_filter(text: str | None) -> tuple[str, str | None] | None:
    """The name of a header, and its value if given."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    return name, value if equals else None


def read_moment_ms(text: str | None, *, now_ms: int) -> int | None:
    """A time, or a duration before now, in milliseconds since 1970."""
    if text is None:
        return None
    position = read_position(text, now_ms=now_ms)
    if position.kind is not PositionKind.TIME:
        raise InvalidRequest(f"{text!r} is not a time; write one, or a duration before now.")
    return position.value
