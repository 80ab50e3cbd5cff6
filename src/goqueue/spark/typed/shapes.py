"""The shape of a typed column: its Arrow type, and how Python values are converted to it.

Columns are built one leaf at a time: the values of a field of all rows become one array, so Arrow
never processes a whole row. Every part of a column is nullable, because a topic outlives the rules
of its writers. Spark compares types exactly: the child of a list is named `element`, times are
microseconds of UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from goqueue.model.errors import InvalidRequest

DEPTH_MAX = 100  # nested records; Spark fails not far beyond

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
DECIMAL_DIGITS_MAX = 38  # limit of Spark, and of 128 bits

Get = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Plain:
    """One value. `steps` are intermediate types on the way to the final one."""

    arrow: pa.DataType
    steps: tuple[pa.DataType, ...] = ()

    def build(self, values: Sequence[Any]) -> pa.Array:
        if not self.steps:
            return pa.array(values, self.arrow)
        array = pa.array(values, self.steps[0])
        for kind in (*self.steps[1:], self.arrow):
            array = array.cast(kind)
        return array


@dataclass(frozen=True, slots=True)
class Whole:
    """Integers that may be written as 7.0; Arrow by itself would truncate 7.5 to 7."""

    arrow: pa.DataType

    def build(self, values: Sequence[Any]) -> pa.Array:
        if float in set(map(type, values)):
            values = _each(_whole, values)
        return pa.array(values, self.arrow)


def _whole(number: int | float) -> int:
    if int(number) != number:
        raise ValueError(f"{number} is no whole number")
    return int(number)


@dataclass(frozen=True, slots=True)
class Converted:
    """Values that are converted by a function first."""

    convert: Get
    inner: Shape

    @property
    def arrow(self) -> pa.DataType:
        return self.inner.arrow

    def build(self, values: Sequence[Any]) -> pa.Array:
        return self.inner.build(_each(self.convert, values))


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct, and how it is read from the Python value that contains it."""

    name: str
    shape: Shape
    get: Get


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct with fields by name."""

    members: tuple[Member, ...]

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(one.name, one.shape.arrow) for one in self.members])

    def build(self, values: Sequence[Any]) -> pa.Array:
        if not self.members:
            return pa.array([None if value is None else {} for value in values], pa.struct([]))
        mask = _mask(values)
        arrays = []
        for one in self.members:
            inner = list(map(one.get, values)) if mask is None else _each(one.get, values)
            arrays.append(one.shape.build(inner))
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=mask)


@dataclass(frozen=True, slots=True)
class Array:
    """A list of items."""

    item: Shape

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.item.arrow))

    def build(self, values: Sequence[Any]) -> pa.Array:
        items = [item for value in values if value is not None for item in value]
        return pa.ListArray.from_arrays(
            _offsets(values), self.item.build(items), type=self.arrow, mask=_mask(values)
        )


@dataclass(frozen=True, slots=True)
class Map:
    """A map of values by key."""

    key: Shape
    value: Shape

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(
            pa.field("key", self.key.arrow, nullable=False), pa.field("value", self.value.arrow)
        )

    def build(self, values: Sequence[Any]) -> pa.Array:
        present = [value for value in values if value is not None]
        keys = [key for value in present for key in value]
        items = [value[key] for value in present for key in value]
        return pa.MapArray.from_arrays(
            _offsets(values),
            self.key.build(keys),
            self.value.build(items),
            type=self.arrow,
            mask=_mask(values),
        )


Shape = Plain | Whole | Converted | Struct | Array | Map


def struct_of(members: Iterable[Member], path: str) -> Struct:
    """Return a struct type; refuse field names that differ only in case, as Spark ignores case."""
    made = tuple(members)
    seen: dict[str, str] = {}
    for one in made:
        other = seen.setdefault(one.name.lower(), one.name)
        if other != one.name:
            raise InvalidRequest(
                f"{path} has the fields {other!r} and {one.name!r}, which Spark takes for one; "
                "read without a schema, and decode the bytes in the query."
            )
    return Struct(made)


def refuse_recursion(path: str, name: str) -> InvalidRequest:
    """Return the error for a recursive type: a Spark type has a fixed depth."""
    return InvalidRequest(
        f"The schema is recursive: at {path} it holds {name} again, and a column of Spark has a "
        "fixed depth. Read without a schema, and decode the bytes in the query."
    )


def _each(get: Get, values: Sequence[Any]) -> list[Any]:
    return [None if value is None else get(value) for value in values]


def _mask(values: Sequence[Any]) -> pa.Array | None:
    absent = [value is None for value in values]
    return pa.array(absent, pa.bool_()) if any(absent) else None


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = (0 if value is None else len(value) for value in values)
    ends = np.fromiter(accumulate(lengths, initial=0), np.int64, len(values) + 1)
    return pa.array(ends).cast(pa.int32())
