"""What the commands about a cluster show alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.cli.output import OutputForm
from goqueue.client.http import Change, MoveResult
from goqueue.model.errors import GoQueueError


class Refused(GoQueueError):
    """Some of what was asked for was not done; the rows above say why."""

    code = "refused"


def change_row(one: Change, word: str) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "outcome": one.problem.detail if one.problem else word,
    }


def fail_if_refused(results: Sequence[Change | MoveResult]) -> None:
    failed = sum(bool(one.problem) for one in results)
    if failed:
        raise Refused(f"{failed} of {len(results)} were refused.")


def shower(form: OutputForm) -> Callable[[Sequence[int]], object]:
    """People get a short text, programs a list."""
    return listed if form is OutputForm.TABLE else list


def listed(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"
