"""Reads the metrics of a node: the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.client.errors import BrokerRefused

Labels = tuple[tuple[str, str], ...]

_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*(,|(?=\}))')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


class Sample(NamedTuple):
    """One value: of a counter, a gauge, or a part of a histogram."""

    name: str
    labels: Labels
    value: float

    def label(self, name: str) -> str:
        """The value of a label; empty if the sample does not have it."""
        return next((value for key, value in self.labels if key == name), "")


def read_samples(data: bytes) -> list[Sample]:
    """Return all samples of a text."""
    try:
        return list(_samples(data.decode()))
    except ValueError as error:
        raise BrokerRefused(
            f"The response is not a text of metrics ({error}); is this the address of a GoQueue "
            "broker of this version?"
        ) from error


def _samples(text: str) -> Iterator[Sample]:
    known: dict[str, Labels] = {}  # many series have the same labels, the buckets of all but one
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, value = line.partition(" ")
            yield Sample(name, (), _number(value))
            continue
        inside, end, value = rest.rpartition("} ")
        if not end:
            raise ValueError(f"{line[:80]!r} has no value")
        labels = known.get(inside)
        if labels is None:
            labels = known[inside] = _labels(inside + "}")
        yield Sample(name, labels, _number(value))


def _number(text: str) -> float:
    # A time may follow.
    return float(text.lstrip().partition(" ")[0])


def _labels(text: str) -> Labels:
    found: list[tuple[str, str]] = []
    place = 0
    while text[place] != "}":
        match = _LABEL.match(text, place)
        if match is None:
            raise ValueError(f"{text[place : place + 80]!r} is not a label")
        found.append((match[1], _ESCAPE.sub(_unescaped, match[2])))
        place = match.end()
    return tuple(found)


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[0])
