"""docs/grpc.md names every method, and errors with the status that they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goqueue.config.settings import Settings
from goqueue.wire.grpc.statuses import Code, code_of
from goqueue.wire.grpc.table import CALLS

from .known_errors import BY_CODE, instance_of

PAGE = (Path(__file__).parents[4] / "docs" / "grpc.md").read_text(encoding="utf-8")
OF_LIBRARY = {Code.CANCELLED, Code.UNKNOWN}


def rows(title: str) -> dict[str, str]:
    """The table of a part of the page: the first cell of each row, and the rest."""
    part = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (`[^|]*`) \|(.*)\|$", part, re.MULTILINE)
    return {name: rest for name, rest in found if "`" in name}


def test_the_table_of_services_has_every_method() -> None:
    listed: dict[str, set[str]] = {}
    for names, methods in rows("Services").items():
        service = re.findall(r"`([^`]*)`", names)[0]
        listed[service] = {one for one in re.findall(r"`([^`]*)`", methods) if one[0].isupper()}
    listed["grpc.health.v1.Health"].discard("NOT_SERVING")
    known: dict[str, set[str]] = {}
    for call in CALLS:
        service = call.service.removeprefix("goqueue.v1.").removesuffix(".ServerReflection")
        known.setdefault(service, set()).add(call.name)
    assert known.pop("grpc.reflection.v1alpha") == known["grpc.reflection.v1"]
    assert listed == known


@pytest.mark.parametrize(("status", "rest"), rows("Errors").items())
def test_errors_of_the_table_have_that_status(status: str, rest: str) -> None:
    such_as = rest.partition("|")[0]
    for reason in re.findall(r"`([^`]*)`", such_as):
        code = code_of(instance_of(BY_CODE[reason]))
        assert code.name == status.strip("`"), reason


def test_the_table_of_errors_has_every_status() -> None:
    listed = {name.strip("`") for name in rows("Errors")}
    assert listed == {one.name for one in Code if one not in OF_LIBRARY}


def test_the_table_of_settings_has_settings_that_exist() -> None:
    for name in rows("Start a listener"):
        room, _, setting = name.strip("`").partition(".")
        if room == "listeners":
            assert hasattr(Settings().listeners, setting), name
