"""Where `goqueue group reset-offsets` is told to go."""

from __future__ import annotations

import pytest

from goqueue.cli.commands.group import Target, read_target
from goqueue.client import Position
from goqueue.model.errors import InvalidRequest


def test_one_target_is_taken() -> None:
    positions = {"--to-earliest": None, "--to-latest": Position.latest()}
    assert read_target(positions, None) == Target(Position.latest())
    assert read_target({"--to-latest": None}, -5) == Target(None, -5)
    assert read_target({"--to-latest": None}, 0) == Target(None, 0)


def test_no_target_and_two_targets_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="exactly one of --to-latest, --shift-by"):
        read_target({"--to-latest": None}, None)
    with pytest.raises(InvalidRequest, match="--to-latest and --shift-by were given"):
        read_target({"--to-latest": Position.latest()}, 3)
