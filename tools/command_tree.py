"""Reads the parser of the command line: every command with its arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import typer

from goqueue.cli.context import add_shared_options
from goqueue.cli.main import WITHOUT_SHARED_OPTIONS, app


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or an option, as a user types it."""

    names: tuple[str, ...]
    value: str  # empty for a flag
    help: str
    is_argument: bool
    is_required: bool
    is_shared: bool  # by all commands that talk to a cluster
    default: str

    @property
    def typed(self) -> str:
        return " ".join([", ".join(self.names), self.value]).strip()


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands."""

    path: tuple[str, ...]
    help: str
    parameters: tuple[Parameter, ...]
    is_group: bool

    @property
    def name(self) -> str:
        return " ".join(("goqueue", *self.path))

    @property
    def summary(self) -> str:
        return self.help.partition("\n\n")[0]

    @property
    def own(self) -> list[Parameter]:
        return [one for one in self.parameters if not one.is_shared]

    @property
    def usage(self) -> str:
        words = [self.name]
        words += [
            one.names[0] if one.is_required else f"[{one.names[0]}]"
            for one in self.parameters
            if one.is_argument
        ]
        return " ".join([*words, "COMMAND" if self.is_group else "[OPTIONS]"])


def commands() -> Iterator[Command]:
    """All commands in the order of the help, each group before its commands."""
    yield from _below(typer.main.get_command(app), (), {one.name for one in _shared()})


def shared_parameters() -> list[Parameter]:
    """The options of all commands that talk to a cluster."""
    return [_parameter(one, is_shared=True) for one in _shared()]


def _shared() -> list[Any]:
    taker = SimpleNamespace(params=[])
    add_shared_options(taker)
    return taker.params


def _below(command: Any, path: tuple[str, ...], shared: set[str]) -> Iterator[Command]:
    is_group = hasattr(command, "list_commands")
    here = shared if path and path[0] not in WITHOUT_SHARED_OPTIONS else set()
    parameters = tuple(
        _parameter(one, is_shared=one.name in here)
        for one in command.params
        if not getattr(one, "hidden", False) and "completion" not in one.name
    )
    yield Command(path, _plain(command.help or ""), parameters, is_group)
    if is_group:
        for name in command.list_commands(None):
            inner = command.get_command(None, name)
            if not inner.hidden:
                yield from _below(inner, (*path, name), shared)


def _parameter(one: Any, *, is_shared: bool) -> Parameter:
    is_argument = one.param_type_name == "argument"
    names = (one.name.upper(),) if is_argument else (*one.opts, *one.secondary_opts)
    shown = one.default if one.default not in (None, False, True, "", ()) else ""
    return Parameter(
        names=names,
        value="" if is_argument or getattr(one, "is_flag", False) else _value(one),
        help=_plain(getattr(one, "help", None) or ""),
        is_argument=is_argument,
        is_required=bool(one.required),
        is_shared=is_shared,
        default="" if callable(shown) else str(getattr(shown, "value", shown)),
    )


def _value(one: Any) -> str:
    choices = getattr(one.type, "choices", None)
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    if one.metavar:
        return str(one.metavar)
    kind = str(getattr(one.type, "name", "")).lower()
    return {"integer": "NUMBER", "integer range": "NUMBER", "float": "NUMBER"}.get(kind, "TEXT")


def _plain(text: str) -> str:
    """Paragraphs with one line each."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
