"""The names that `goqueue` itself offers, and what they cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

import goqueue
from goqueue.client.http import areas, async_client, client


def test_a_name_is_loaded_when_it_is_first_used() -> None:
    code = (
        "import sys, goqueue\n"
        "early = {'httpx', 'goqueue.client'} & set(sys.modules)\n"
        "goqueue.Client\n"
        "sys.exit(f'loaded {early}' if early else 'httpx' not in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_name_is_there() -> None:
    for name in goqueue.__all__:
        assert getattr(goqueue, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        goqueue.Cleint  # noqa: B018


@pytest.mark.parametrize(
    ("threads", "coroutines"),
    [
        (client.Client, async_client.AsyncClient),
        (areas.Topics, areas.AsyncTopics),
        (areas.Groups, areas.AsyncGroups),
        (areas.Queue, areas.AsyncQueue),
        (areas.Schedules, areas.AsyncSchedules),
        (areas.DeadLetters, areas.AsyncDeadLetters),
        (areas.Node, areas.AsyncNode),
    ],
)
def test_both_clients_can_do_the_same(threads: type, coroutines: type) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(threads) == public(coroutines)
    for name in public(threads):
        assert getattr(threads, name).__doc__, f"{name} does not say what it does"
