"""Nodes of this release and of the one before understand each other, and each other's data.

`level_2.json` is the schema of the last release of level 2. A change that it does not allow needs a
level: see ADR 84. When a release is made, its schema takes the place of the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from goqueue.broker.gate.levels import ARGUMENTS_SINCE, OPERATIONS_SINCE
from goqueue.broker.gate.operation import OPERATIONS
from tests.unit.upgrade.comparing import Comparison

ROOT = Path(__file__).parents[3]
BEFORE = Path(__file__).with_name("level_2.json")

# Changes that an older node never meets, with the reason.
_COMMANDS = "goqueue.cluster.commands: CreateTopic and others"
ALLOWED: dict[str, str] = {
    f"{_COMMANDS}: has the new finalize_level": "an older controller cannot finalize, and says so",
    "settings.QueueSettings.start": "`at_level` refuses starts by duration below level 3",
}


def unexpected(found: set[str]) -> set[str]:
    return {one for one in found if not any(one.startswith(allowed) for allowed in ALLOWED)}


@pytest.fixture(scope="module")
def before() -> Any:
    return json.loads(BEFORE.read_text())


@pytest.fixture(scope="module")
def now() -> Any:
    command = [sys.executable, "-m", "tools.wire_schema"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=100)
    return json.loads(done.stdout)


def test_types_of_the_release_before_are_still_understood(before: Any, now: Any) -> None:
    found = set(Comparison(before, now).problems())
    assert unexpected(found) == set(), "these need a level, see ADR 84"


def test_operations_of_the_release_before_are_still_understood(before: Any, now: Any) -> None:
    comparison = Comparison(before, now)
    found = set()
    for name in before["operations"]:
        assert name in now["operations"], f"{name} is gone, and an older node may call it"
        arguments = {one["name"] for one in now["operations"][name]["arguments"]}
        known = {one for one in arguments if (name, one) not in ARGUMENTS_SINCE}
        found |= set(comparison.operation(name, known))
    assert unexpected(found) == set(), "these need a level, see ADR 84"


def test_new_operations_say_since_which_level(before: Any, now: Any) -> None:
    assert now["operations"].keys() - before["operations"].keys() == OPERATIONS_SINCE.keys()
    for name, argument in ARGUMENTS_SINCE:
        known = {one["name"] for one in now["operations"][name]["arguments"]}
        assert argument in known
    assert OPERATIONS.keys() >= OPERATIONS_SINCE.keys()


def test_what_is_allowed_is_still_so(before: Any, now: Any) -> None:
    comparison = Comparison(before, now)
    found = set(comparison.problems())
    for name in before["operations"]:
        arguments = {one["name"] for one in now["operations"][name]["arguments"]}
        found |= set(comparison.operation(name, arguments))
    for allowed in ALLOWED:
        assert any(one.startswith(allowed) for one in found), f"{allowed} has not changed"


# The comparison itself


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("field is gone", "is gone"),
        ("field without a default", "has no default"),
        ("array in the middle", "at the end only"),
        ("new field of a strict type", "define `at_level`"),
        ("new tag", "has the new"),
        ("other type", "was"),
        ("other limits", "allowed"),
        ("argument", "expects other arguments"),
    ],
)
def test_a_breaking_change_is_found(now: Any, change: str, problem: str) -> None:
    changed = deepcopy(now)
    types = changed["types"]
    node, field = types["facts.NodeFact"], {"name": "mood", "required": False, "type": "str"}
    if change == "field is gone":
        node["fields"].pop()
    elif change == "field without a default":
        node["fields"].append({**field, "required": True})
    elif change == "array in the middle":
        types["frames.Hello"]["fields"].insert(1, field)
    elif change == "new field of a strict type":
        types["cluster.EndpointView"] = deepcopy(types["progress.FetchedOffsets"])
        types["progress.FetchedOffsets"]["fields"].append(field)
    elif change == "new tag":
        types["facts.MoodFact"] = {**node, "tag": "mood"}
        decoder = next(one for one in changed["decoders"] if "cluster.metadata: TopicFact" in one)
        changed["decoders"][decoder]["any"].append({"object": "facts.MoodFact"})
    elif change == "other type":
        node["fields"][0]["type"] = "float"
    elif change == "other limits":
        types["support.Support"]["fields"][0]["type"]["limits"] = {"ge": 7}
    else:
        changed["operations"]["queues.ack"]["arguments"].insert(0, field)
    comparison = Comparison(now, changed)
    found = list(comparison.problems())
    for name in now["operations"]:
        arguments = {one["name"] for one in changed["operations"][name]["arguments"]}
        found += comparison.operation(name, arguments)
    assert any(problem in one for one in found), found


def test_a_compatible_change_is_none(now: Any) -> None:
    changed = deepcopy(now)
    field = {"name": "mood", "required": False, "type": "str"}
    changed["types"]["facts.NodeFact"]["fields"].insert(2, field)
    changed["types"]["frames.Hello"]["fields"].append(field)
    assert list(Comparison(now, changed).problems()) == []
