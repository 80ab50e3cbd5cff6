"""Settings and modes: who has them, and which apply to a subject.

A value that a subject does not set is taken from its context, or from the registry as a whole for
subjects of the default context; then from the global context, and then from the defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from goqueue.model.errors import SchemaRefusal, SchemaRefused
from goqueue.model.tenants import SubjectReference, Text, tenant_of
from goqueue.schemas.facts import ConfigFact, GoneConfig, GoneMode, ModeFact
from goqueue.schemas.names import (
    CONTEXT_DEFAULT,
    Subject,
    of_whole_registry,
    read_subject,
)

T = TypeVar("T")
Tree = dict[Text, Any]


class Level(StrEnum):
    """How far a new version must read data of older ones, or they its data."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_backward(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")


class Mode(StrEnum):
    """What operations a subject allows."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"  # of the whole registry, whatever its subjects have
    IMPORT = "IMPORT"  # versions keep the ids of their original registry

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)


LEVEL_DEFAULT = Level.BACKWARD
MODE_DEFAULT = Mode.READWRITE
SETTINGS_MAX = 100_000  # subjects with settings or a mode, with or without versions


@dataclass(frozen=True, slots=True)
class Additions:
    """Metadata and rules that every new version of a scope gets."""

    default_metadata: Tree | None = None
    override_metadata: Tree | None = None
    default_rule_set: Tree | None = None
    override_rule_set: Tree | None = None

    def over(self, wider: Additions) -> Additions:
        return Additions(
            wider.default_metadata if self.default_metadata is None else self.default_metadata,
            wider.override_metadata if self.override_metadata is None else self.override_metadata,
            wider.default_rule_set if self.default_rule_set is None else self.default_rule_set,
            wider.override_rule_set if self.override_rule_set is None else self.override_rule_set,
        )

    def to_metadata(self, given: Tree | None) -> Tree | None:
        """Apply the defaults below a version's own metadata, and the overrides above it."""
        return merged(merged(self.default_metadata, given), self.override_metadata)

    def to_rule_set(self, given: Tree | None) -> Tree | None:
        return merged(merged(self.default_rule_set, given), self.override_rule_set)


@dataclass(frozen=True, slots=True)
class Config:
    """Settings; None means that a wider scope decides."""

    level: Level | None = None
    normalize: bool | None = None
    group: Text | None = None  # the metadata property that divides versions into groups
    alias: SubjectReference | None = None  # the subject that this name stands for
    additions: Additions = Additions()

    def over(self, wider: Config) -> Config:
        """These settings, completed by those of a wider scope."""
        return Config(
            wider.level if self.level is None else self.level,
            wider.normalize if self.normalize is None else self.normalize,
            wider.group if self.group is None else self.group,
            self.alias,  # an alias applies to one subject only
            self.additions.over(wider.additions),
        )


CONFIG_DEFAULT = Config(LEVEL_DEFAULT)


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """New values of settings. Unset ones stay unchanged, None deletes one."""

    level: Level | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    group: Text | UnsetType | None = UNSET
    alias: SubjectReference | UnsetType | None = UNSET
    default_metadata: Tree | UnsetType | None = UNSET
    override_metadata: Tree | UnsetType | None = UNSET
    default_rule_set: Tree | UnsetType | None = UNSET
    override_rule_set: Tree | UnsetType | None = UNSET

    def apply(self, config: Config) -> Config:
        """The settings after the change."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        given = {name: value for name, value in values.items() if value is not UNSET}
        added = {one.name: given.pop(one.name) for one in fields(Additions) if one.name in given}
        return replace(config, **given, additions=replace(config.additions, **added))


class Scopes:
    """The subjects and contexts with settings or a mode of their own."""

    def __init__(self) -> None:
        self._configs: dict[str, Config] = {}
        self._modes: dict[str, Mode] = {}
        self._by_tenant: Counter[str] = Counter()

    # Look-up

    def own_config(self, subject: Subject) -> Config | None:
        """The settings of just this subject or context; the whole registry always has some."""
        config = self._configs.get(str(subject))
        if config is None:
            return CONFIG_DEFAULT if _is_widest(subject) else None
        return config if config.level is not None else config.over(CONFIG_DEFAULT)

    def config(self, subject: Subject) -> Config:
        """The settings in effect for the subject."""
        config = Config()
        for name in _scopes(subject):
            known = self._configs.get(name)
            config = config if known is None else config.over(known)
        return config.over(CONFIG_DEFAULT)

    def resolve(self, subject: Subject) -> Subject:
        """The subject that this name stands for: itself, or the one it is an alias of."""
        config = self._configs.get(str(subject))
        if config is None or not config.alias:
            return subject
        return read_subject(config.alias, within=subject.context)

    def own_mode(self, subject: Subject) -> Mode | None:
        return self._modes.get(str(subject), MODE_DEFAULT if _is_widest(subject) else None)

    def mode(self, subject: Subject) -> Mode:
        """The mode in effect for the subject."""
        whole, _ = of_whole_registry(subject.context)
        if self._modes.get(str(whole)) is Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        known = (self._modes[name] for name in _scopes(subject) if name in self._modes)
        return next(known, MODE_DEFAULT)

    def has_config(self, subject: Subject) -> bool:
        return str(subject) in self._configs

    def has_mode(self, subject: Subject) -> bool:
        return str(subject) in self._modes

    def modes_within(self, context: str) -> list[str]:
        """The subjects of a context that have a mode of their own."""
        prefix = f":{context}:"
        if context == CONTEXT_DEFAULT:
            return [name for name in self._modes if name and not name.startswith(":.")]
        return [name for name in self._modes if name.startswith(prefix) and name != prefix]

    def names_within(self, prefix: str) -> tuple[list[str], list[str]]:
        """The subjects and contexts with this prefix that have settings, and those with a mode."""
        return (
            [name for name in self._configs if name.startswith(prefix)],
            [name for name in self._modes if name.startswith(prefix)],
        )

    def count_of(self, tenant: str) -> int:
        """Return how many settings and modes a tenant has."""
        return self._by_tenant[tenant]

    def check_room(self) -> None:
        if len(self._configs) + len(self._modes) >= SETTINGS_MAX:
            raise SchemaRefused(
                SchemaRefusal.NOT_PERMITTED,
                f"{SETTINGS_MAX} subjects have settings of their own; delete some first.",
            )

    # Changes

    def apply(self, fact: ConfigFact | ModeFact) -> None:
        known: Mapping[str, object] = self._modes if isinstance(fact, ModeFact) else self._configs
        self._by_tenant[_tenant(fact.subject)] += fact.subject not in known
        if isinstance(fact, ModeFact):
            self._modes[fact.subject] = Mode(fact.mode)
        else:
            level = None if fact.level is None else Level(fact.level)
            additions = Additions(
                fact.default_metadata,
                fact.override_metadata,
                fact.default_rule_set,
                fact.override_rule_set,
            )
            self._configs[fact.subject] = Config(
                level, fact.normalize, fact.group, fact.alias, additions
            )

    def forget(self, gone: GoneConfig | GoneMode) -> None:
        known: dict[str, Any] = self._modes if isinstance(gone, GoneMode) else self._configs
        if known.pop(gone.subject, None) is not None:
            self._by_tenant[_tenant(gone.subject)] -= 1


def merged(under: Tree | None, over: Tree | None) -> Tree | None:
    """Overlay one metadata or rule set on another: maps by key, lists of rules by name."""
    if under is None or over is None:
        return over if under is None else under
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            result[key] = {**below, **value}
        elif isinstance(below, list) and isinstance(value, list):
            names = {_rule_name(rule) for rule in value}
            result[key] = [rule for rule in below if _rule_name(rule) not in names] + value
        elif value is not None:
            result[key] = value
    return result


def _rule_name(rule: object) -> object:
    return rule.get("name") if isinstance(rule, dict) else None


def read_level(text: str) -> Level:
    try:
        return Level(text.upper())
    except ValueError:
        raise SchemaRefused(
            SchemaRefusal.INVALID_LEVEL,
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive",
        ) from None


def read_mode(text: str) -> Mode:
    try:
        return Mode(text.upper())
    except ValueError:
        raise SchemaRefused(
            SchemaRefusal.INVALID_MODE,
            "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT.",
        ) from None


def _tenant(subject: str) -> str:
    return tenant_of(read_subject(subject).context[1:])


def _is_widest(subject: Subject) -> bool:
    return subject in of_whole_registry(subject.context)


def _scopes(subject: Subject) -> Iterator[str]:
    """The scopes to search, the narrowest first."""
    yield str(subject)
    if subject.name:
        yield str(Subject(subject.context, ""))
    yield str(of_whole_registry(subject.context)[1])
