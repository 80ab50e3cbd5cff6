"""Output that the cluster commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.cli.output import OutputForm
from goqueue.client.http import Change, MoveResult
from goqueue.model.errors import GoQueueError


class Refused(GoQueueError):
    """Part of a request was refused; the rows printed before give the reasons."""

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
    """How lists of nodes are shown: as a short text for people, as a list for programs."""
    return listed if form is OutputForm.TABLE else list


def listed(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"
