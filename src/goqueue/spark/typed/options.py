"""Options for typed keys and values: `schema.registry` and related ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from goqueue.spark.access import OPEN, Access, registry_access

NAMES = (
    "schema.errors",
    "schema.key",
    "schema.key.message",
    "schema.key.subject",
    "schema.key.version",
    "schema.message",
    "schema.password",
    "schema.registry",
    "schema.subject",
    "schema.username",
    "schema.value",
    "schema.version",
)
ERRORS = ("fail", "null")


@dataclass(frozen=True, slots=True)
class ColumnTyping:
    """Which schema a column is read with; `version` None is the latest when it is loaded."""

    subject: str
    version: int | None = None
    message: str | None = None  # of a Protobuf file; None: the first
    option_prefix: str = "schema"


@dataclass(frozen=True, slots=True)
class TypingOptions:
    """Where schemas come from, and how undecodable records are handled."""

    registry: str
    columns: Mapping[str, ColumnTyping]
    keeps_errors: bool = False
    access: Access = OPEN  # for the registry


class Options(Protocol):
    """The part of the option reader that is needed here."""

    problems: list[str]

    def text(self, *names: str) -> str | None: ...

    def secret(self, name: str) -> str | None: ...

    def number(self, name: str, *, least: int = 1) -> int | None: ...

    def flag(self, name: str, default: bool) -> bool: ...

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str: ...


def read_typing(
    options: Options, topics: tuple[str, ...], access: Access, bootstrap: str
) -> TypingOptions | None:
    """Parse the options for types; `topics` are those named explicitly."""
    registry = options.text("schema.registry")
    if registry is None:
        given = [name for name in NAMES if options.text(name) is not None]
        if given:
            options.problems.append(
                f"{given[0]} is of use only with schema.registry, the address of a registry."
            )
        return None
    if not registry.startswith(("http://", "https://")):
        options.problems.append(
            f"schema.registry is {registry!r}; give an address such as http://127.0.0.1:8081."
        )
    columns = {}
    if options.flag("schema.key", default=False):
        columns["key"] = _column(options, topics, "key", "schema.key")
    if options.flag("schema.value", default=True):
        columns["value"] = _column(options, topics, "value", "schema")
    if not columns:
        options.problems.append(
            "schema.registry types nothing if schema.value is false; ask for "
            "schema.key, or leave it out."
        )
    errors = options.choice("schema.errors", ERRORS, ERRORS[0])
    return TypingOptions(
        registry.rstrip("/"),
        columns,
        keeps_errors=errors == "null",
        access=registry_access(options, access, registry, bootstrap),
    )


def _column(options: Options, topics: tuple[str, ...], column: str, prefix: str) -> ColumnTyping:
    subject = options.text(f"{prefix}.subject")
    if subject is None and len(topics) != 1:
        options.problems.append(
            f"The schema of the {column} is that of one topic; name a subject with "
            f"{prefix}.subject, or subscribe to one topic."
        )
    version = options.text(f"{prefix}.version")
    number = None
    if version is not None and version.lower() != "latest":
        number = options.number(f"{prefix}.version")
    return ColumnTyping(
        subject or f"{''.join(topics[:1])}-{column}",
        number,
        options.text(f"{prefix}.message"),
        prefix,
    )
