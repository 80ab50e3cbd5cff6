"""Convert simple predicates to options that let the broker look up ranges.

    predicate = "partition in (0, 3) and offset >= 1000 and key is not null"
    goqueue.spark.read_where(spark.read.format("goqueue").option("subscribe", "orders"), predicate)

The options select a superset of what the predicate selects, so the predicate itself must be applied
as well, which `read_where` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def read_where(
    reader: DataFrameReader, predicate: str, *, is_time_ordered: bool = False
) -> DataFrame:
    """Load the part of a table that matches the predicate, reading little else."""
    from pyspark.sql import SparkSession

    zone = SparkSession.active().conf.get("spark.sql.session.timeZone")
    options = ranges(predicate, time_zone=zone, is_time_ordered=is_time_ordered)
    return reader.options(**options).load().where(predicate)


def ranges(
    predicate: str, *, time_zone: str | None = None, is_time_ordered: bool = False
) -> dict[str, str]:
    """Return options for an SQL predicate on `partition`, `offset` and `timestamp`.

    Comparisons with numbers and times that are joined by AND are converted; all other conjuncts are
    left to Spark. A time without a zone needs `time_zone`, which is the session's.

    An upper bound of `timestamp` is used only with `is_time_ordered`: producers set timestamps
    freely, and a record may follow one with a later timestamp.
    """
    found = _Bounds()
    for conjunct in _conjuncts(_tokens(predicate)):
        _narrow(found, conjunct, _zone(time_zone))
    return found.options(is_time_ordered)


@dataclass(slots=True)
class _Bounds:
    """The bounds found so far; `ends` and `until_ms` are exclusive."""

    partitions: set[int] | None = None
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    from_ms: list[int] = field(default_factory=list)
    until_ms: list[int] = field(default_factory=list)

    def keep_partitions(self, numbers: set[int]) -> None:
        self.partitions = numbers if self.partitions is None else self.partitions & numbers

    def options(self, is_time_ordered: bool) -> dict[str, str]:
        """Return the options. Offsets take precedence over times: the source takes one of them."""
        options = {}
        if self.partitions:
            options["partitions"] = ",".join(map(str, sorted(self.partitions)))
        elif self.partitions is not None:  # They are disjoint: nothing matches.
            options["endingOffsets"] = "0"
            return options
        if self.starts:
            options["startingOffsets"] = str(max(0, *self.starts))
        elif self.from_ms:
            options["startingTimestamp"] = str(max(0, *self.from_ms))
        if self.ends:
            options["endingOffsets"] = str(max(0, min(self.ends)))
        elif self.until_ms and is_time_ordered:
            options["endingTimestamp"] = str(max(0, min(self.until_ms)))
        return options


_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?![\w.]))|(?P<word>[A-Za-z_`][\w.`]*)"
    r"|(?P<sign><=>|<=|>=|<>|!=|==|[=<>])|(?P<other>\S))"
)


def _tokens(predicate: str) -> list[str]:
    """Split into words, numbers, quoted texts and operators; names and keywords in lower case."""
    found = []
    for match in _TOKEN.finditer(predicate):
        token = match[0].strip()
        found.append(token.lower().strip("`") if match["word"] else token)
    return found


def _conjuncts(tokens: list[str]) -> Iterator[list[str]]:
    """Yield the parts between ANDs outside parentheses; enclosing parentheses are removed."""
    tokens = _without_brackets(tokens)
    depth, is_between, part = 0, False, list[str]()
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if depth < 0:
            raise InvalidRequest("A bracket of the predicate is closed that was not opened.")
        if depth == 0 and token == "or":
            raise InvalidRequest(
                "A predicate with OR is no range; read without it, or make one table of each part "
                "and a union of them."
            )
        if depth == 0 and token == "and" and not is_between:
            yield from _again(part, tokens)
            part = []
            continue
        is_between = (is_between or token == "between") and token != "and"
        part.append(token)
    if depth:
        raise InvalidRequest("A bracket of the predicate is not closed.")
    yield from _again(part, tokens)


def _again(part: list[str], whole: list[str]) -> Iterator[list[str]]:
    """Yield the conjuncts within parentheses; a part with OR inside is left to Spark as a whole."""
    inner = _without_brackets(part)
    if len(inner) < len(part) and len(part) <= len(whole):
        try:
            yield from list(_conjuncts(inner))
        except InvalidRequest:
            yield part
    elif part:
        yield part


def _without_brackets(tokens: list[str]) -> list[str]:
    while len(tokens) > 2 and tokens[0] == "(" and _closes_at_end(tokens):
        tokens = tokens[1:-1]
    return tokens


def _closes_at_end(tokens: list[str]) -> bool:
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return number == len(tokens) - 1
    return False


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "==", "<=>": "<=>"}
_EQUAL = ("=", "==", "<=>")


def _narrow(found: _Bounds, tokens: list[str], zone: tzinfo | None) -> None:
    """Narrow the bounds by one conjunct, if it has a supported form."""
    match tokens:
        case [name, "in", "(", *items, ")"] if name == "partition":
            numbers = items[::2]
            if items[1::2] == [","] * (len(numbers) - 1) and all(map(_is_number, numbers)):
                found.keep_partitions({int(one) for one in numbers})
        case [name, "between", low, "and", high]:
            _compare(found, name, ">=", low, zone)
            _compare(found, name, "<=", high, zone)
        case [name, "between", "timestamp", low, "and", "timestamp", high]:
            _compare(found, name, ">=", low, zone)
            _compare(found, name, "<=", high, zone)
        case [name, sign, "timestamp", literal] | [name, sign, literal] if sign in _FLIPPED:
            if name in _COLUMNS:
                _compare(found, name, sign, literal, zone)
            elif literal in _COLUMNS:
                _compare(found, literal, _FLIPPED[sign], name, zone)


def _compare(found: _Bounds, name: str, sign: str, literal: str, zone: tzinfo | None) -> None:
    if name == "partition" and sign in _EQUAL and _is_number(literal):
        found.keep_partitions({int(literal)})
    elif name == "offset" and _is_number(literal):
        _bound(int(literal), sign, found.starts, found.ends)
    elif name == "timestamp" and literal.startswith("'"):
        moment = _moment(literal[1:-1], zone)
        if moment is not None:
            # Record timestamps are milliseconds. A bound between two is rounded outwards.
            floor = (moment - _EPOCH) // _MILLISECOND
            is_whole = _EPOCH + floor * _MILLISECOND == moment
            if is_whole:
                _bound(floor, sign, found.from_ms, found.until_ms)
            else:
                _bound(floor, {"<": "<=", ">": ">="}.get(sign, sign), found.from_ms, found.until_ms)


def _bound(value: int, sign: str, starts: list[int], ends: list[int]) -> None:
    if sign in (">=", *_EQUAL):
        starts.append(value)
    if sign == ">":
        starts.append(value + 1)
    if sign in ("<=", *_EQUAL):
        ends.append(value + 1)
    if sign == "<":
        ends.append(value)


def _moment(text: str, zone: tzinfo | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None if zone is None else moment.replace(tzinfo=zone)
    return moment


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # Spark also accepts zones such as +02:00.
        return None


def _is_number(token: str) -> bool:
    return re.fullmatch(r"-?\d+", token) is not None


_COLUMNS = ("partition", "offset", "timestamp")
