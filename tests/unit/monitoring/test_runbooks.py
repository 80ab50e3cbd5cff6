"""The page of each alert: there, whole, and with commands and queries that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.commands import check_command
from tests.unit.monitoring.queries import unknown_in
from tools.monitoring.__main__ import ROOT
from tools.monitoring.alerts import ALERTS

RUNBOOKS = ROOT / "docs" / "runbooks"
NAMES = sorted(alert.name for alerts in ALERTS.values() for alert in alerts)
EVERY = pytest.mark.parametrize("name", NAMES)
SECTIONS = ["What it means", "How to look", "What to do"]
SETTING = re.compile(r"`((?:security|cluster|storage|listeners|topics)\.[a-z_.]+)`")


def text_of(name: str) -> str:
    return (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> Iterator[str]:
    """The lines of all code blocks of a language."""
    for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL):
        yield from block.splitlines()


def commands(text: str) -> Iterator[str]:
    """Every `goqueue` command with arguments, in blocks and in sentences."""
    yield from (line for line in blocks(text, "sh") if line.startswith("goqueue "))
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\n", " ")
    yield from (found for found in re.findall(r"`(goqueue [^`]+)`", prose))


def test_there_is_a_page_for_each_alert_and_no_other() -> None:
    assert sorted(file.stem for file in RUNBOOKS.glob("*.md")) == sorted([*NAMES, "README"])


@EVERY
def test_pages_say_what_it_means_and_what_to_do(name: str) -> None:
    text = text_of(name)
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


@EVERY
def test_commands_exist_with_their_options(name: str) -> None:
    for line in commands(text_of(name)):
        check_command(line)


@EVERY
def test_queries_name_series_of_the_catalogue(name: str) -> None:
    assert not [line for line in blocks(text_of(name), "promql") if unknown_in(line)]


@EVERY
def test_pages_link_to_pages_that_exist(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)", text_of(name)):
        assert (RUNBOOKS / link).is_file(), link


@EVERY
def test_settings_exist(name: str) -> None:
    described = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for setting in SETTING.findall(text_of(name)):
        assert f"| `{setting.partition('.')[2]}`" in described, setting
