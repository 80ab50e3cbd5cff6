"""Declares the settings of a section: each field with its kind, its purpose and its flag.

A section is an ordinary frozen dataclass; these functions put the rule of a setting beside its
default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from goqueue.config.kinds import (
    COUNT,
    DURATION,
    INT64_MAX,
    SIZE,
    UNLIMITED,
    Choice,
    Kind,
    Number,
    Unit,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """The kind of a setting, its purpose as shown in the manual, and its flag if it has one."""

    kind: Kind[object]
    why: str
    flag: str = ""


def setting(default: T, kind: Kind[object], why: str, flag: str = "") -> T:
    made: T = field(default=default, metadata={"about": About(kind, why, flag)})
    return made


def _number(
    unit: Unit, default: int, why: str, *, least: int = 1, most: int = INT64_MAX, flag: str = ""
) -> int:
    has_limit = least != UNLIMITED
    kind = Number(unit, at_least=least if has_limit else 1, at_most=most, has_limit=has_limit)
    return setting(default, kind, why, flag)


count, size, duration = (partial(_number, unit) for unit in (COUNT, SIZE, DURATION))


def choice(default: T, words: tuple[T, ...], why: str, flag: str = "") -> T:
    return setting(default, Choice(words), why, flag)
