"""Reads the metrics that a client sends: numbers by name. Histograms and attributes are skipped."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, nan
from typing import NamedTuple

from goqueue.metrics.otlp.fields import BYTES, FIXED64, VARINT, Fields, read_double, read_signed
from goqueue.model.errors import MalformedRequest

FIELDS_MAX = 20_000  # of one message, those in it included: some 10 ms of work
POINTS_MAX = 2_000  # of one message
NAME_BYTES_MAX = 200

_GAUGE, _SUM = 5, 7
_DELTA = 1  # a sum since the last message, not since the start

Buffer = bytes | bytearray | memoryview


class Point(NamedTuple):
    """One number that a client reports."""

    name: str
    value: float
    is_increase: bool  # of a counter since the last message; otherwise the value itself


def read_points(data: Buffer, wants: Callable[[str], bool]) -> list[Point]:
    """Return the numbers of metrics whose names are wanted, in the order of the message."""
    fields = Fields(data, FIELDS_MAX)
    points: list[Point] = []
    for resource in _messages(fields, 0, len(data), 1):
        for scope in _messages(fields, *resource, 2):
            for metric in _messages(fields, *scope, 2):
                _read_metric(fields, *metric, wants, points)
    return points


def _messages(fields: Fields, start: int, stop: int, number: int) -> list[tuple[int, int]]:
    """Where the messages in a field with this number begin and end."""
    return [
        (begin, end)
        for one, kind, begin, end in fields.of(start, stop)
        if one == number and kind == BYTES
    ]


def _read_metric(
    fields: Fields, start: int, stop: int, wants: Callable[[str], bool], points: list[Point]
) -> None:
    name, is_sum, is_delta = "", False, False
    numbers: tuple[int, int] | None = None
    for number, kind, begin, end in fields.of(start, stop):
        if kind != BYTES:
            continue
        if number == 1:
            name = _name(fields.data, begin, end)
        elif number in (_GAUGE, _SUM):
            numbers, is_sum = (begin, end), number == _SUM
    if not name or numbers is None or not wants(name):
        return
    values = []
    for number, kind, begin, end in fields.of(*numbers):
        if number == 1 and kind == BYTES:
            values.append(_value(fields, begin, end))
        elif number == 2 and kind == VARINT:
            is_delta = is_sum and begin == _DELTA
    points += [Point(name, value, is_delta) for value in values if isfinite(value)]
    if len(points) > POINTS_MAX:
        raise MalformedRequest(f"A message has more than {POINTS_MAX} numbers.")


def _value(fields: Fields, start: int, stop: int) -> float:
    """The number of a data point; NaN if it has none."""
    value = nan
    for number, kind, begin, _ in fields.of(start, stop):
        if kind != FIXED64:
            continue
        if number == 4:
            value = read_double(fields.data, begin)
        elif number == 6:
            value = float(read_signed(fields.data, begin))
    return value


def _name(data: Buffer, start: int, stop: int) -> str:
    if stop - start > NAME_BYTES_MAX:
        return ""
    try:
        return bytes(data[start:stop]).decode()
    except UnicodeDecodeError:
        raise MalformedRequest("The name of a metric is not UTF-8.") from None
