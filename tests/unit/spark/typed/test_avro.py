"""Avro values as columns: every type there and back, older and newer writers, and bad bytes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.avro import AvroReader
from goqueue.spark.typed.decoding import UNKNOWN_MAX, ColumnDecoder
from tests.unit.spark.typed.framed import FakeRegistry, avro_bytes, avro_text, decoded, head

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIGITS = Context(prec=50)


class Case(NamedTuple):
    """A type of Avro, what may be written with it, and what a column shows of that."""

    schema: Any
    values: st.SearchStrategy[Any]
    shown: Callable[[Any], Any] = lambda value: value


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


TEXTS = st.text(max_size=5)
LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES_US = st.integers(-(10**15), 10**16)
PLAIN = [
    Case("boolean", st.booleans()),
    Case("int", st.integers(-(2**31), 2**31 - 1)),
    Case("long", LONGS),
    Case("float", st.floats(width=32, allow_nan=False)),
    Case("double", st.floats(allow_nan=False)),
    Case("bytes", st.binary(max_size=5)),
    Case("string", TEXTS),
    Case(
        {"type": "long", "logicalType": "timestamp-micros"},
        TIMES_US,
        lambda value: EPOCH + timedelta(microseconds=value),
    ),
    Case(
        {"type": "long", "logicalType": "timestamp-millis"},
        TIMES_US.map(lambda value: value // 1000),
        lambda value: EPOCH + timedelta(milliseconds=value),
    ),
    Case(
        {"type": "long", "logicalType": "local-timestamp-millis"},
        TIMES_US.map(lambda value: value // 1000),
        lambda value: (EPOCH + timedelta(milliseconds=value)).replace(tzinfo=None),
    ),
    Case({"type": "long", "logicalType": "timestamp-nanos"}, LONGS),
    Case({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
    Case(
        {"type": "int", "logicalType": "date"},
        st.integers(-100_000, 100_000),
        lambda value: date(1970, 1, 1) + timedelta(days=value),
    ),
    Case(
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6},
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda value: Decimal(value).scaleb(-6, DIGITS)),
    ),
    Case({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
]


def named(number: int) -> st.SearchStrategy[Case]:
    symbols = [f"S{one}" for one in range(3)]
    enum = {"type": "enum", "name": f"Enum{number}", "symbols": symbols}
    fixed = {"type": "fixed", "name": f"Fixed{number}", "size": 3}
    uuid = {"type": "fixed", "name": f"Uuid{number}", "size": 16, "logicalType": "uuid"}
    return st.sampled_from(
        [
            Case(enum, st.sampled_from(symbols)),
            Case(fixed, st.binary(min_size=3, max_size=3)),
            Case(uuid, st.binary(min_size=16, max_size=16), lambda value: str(UUID(bytes=value))),
        ]
    )


def cases() -> st.SearchStrategy[Case]:
    numbers = count()
    leaves = st.one_of(st.sampled_from(PLAIN), st.builds(lambda: next(numbers)).flatmap(named))

    def deeper(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
        return st.one_of(
            inner.map(array_of),
            inner.map(map_of),
            inner.map(nullable),
            st.lists(inner, min_size=1, max_size=4).map(
                lambda many: struct_of(many, next(numbers))
            ),
        )

    return st.recursive(leaves, deeper, max_leaves=8)


def array_of(item: Case) -> Case:
    return Case(
        {"type": "array", "items": item.schema},
        st.lists(item.values, max_size=3),
        lambda values: [None if value is None else item.shown(value) for value in values],
    )


def map_of(item: Case) -> Case:
    return Case(
        {"type": "map", "values": item.schema},
        st.dictionaries(TEXTS, item.values, max_size=3),
        lambda values: {
            key: None if value is None else item.shown(value) for key, value in values.items()
        },
    )


def nullable(item: Case) -> Case:
    if isinstance(item.schema, list):
        return item
    return Case(["null", item.schema], st.none() | item.values, item.shown)


def struct_of(members: list[Case], number: int) -> Case:
    named = {f"f{each}": member for each, member in enumerate(members)}
    return Case(
        record(f"Record{number}", **{name: one.schema for name, one in named.items()}),
        st.fixed_dictionaries({name: one.values for name, one in named.items()}),
        lambda value: {
            name: None if value[name] is None else one.shown(value[name])
            for name, one in named.items()
        },
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data(), case=cases())
def test_every_type_comes_back_as_it_was_written(data: st.DataObject, case: Case) -> None:
    values = data.draw(st.lists(st.none() | case.values, max_size=5))
    nullable_values = isinstance(case.schema, list)
    written = [
        None if value is None and not nullable_values else avro_bytes(case.schema, value)
        for value in values
    ]
    schema = avro_text(case.schema)
    found, reasons = decoded(schema, written)
    assert reasons == {}
    assert found == [None if value is None else case.shown(value) for value in values]
    arrow = AvroReader(schema).shape.arrow
    spark = from_arrow_type(arrow, prefer_timestamp_ntz=True)
    assert to_arrow_type(spark, timezone="UTC") == arrow


@settings(max_examples=200, deadline=None)
@given(data=st.data(), members=st.lists(cases(), min_size=1, max_size=4))
def test_values_in_step_are_what_they_are_one_by_one(
    data: st.DataObject, members: list[Case]
) -> None:
    """Whatever became of the bytes, and whichever fields the reader has."""
    case = struct_of(members, 1_000_000)
    fields = data.draw(st.permutations(case.schema["fields"]))
    new = {"name": "new", "type": ["null", "string"], "default": None}
    kept = [*fields[data.draw(st.integers(0, len(fields))) :], new]
    other = {**case.schema, "fields": kept}
    reader = data.draw(st.sampled_from([avro_text(case.schema), avro_text(other, 2)]))
    values = data.draw(st.lists(case.values, min_size=1, max_size=5))
    written = [bytearray(avro_bytes(case.schema, value)) for value in values]
    if data.draw(st.booleans()):
        hurt = data.draw(st.sampled_from(written))
        place = data.draw(st.integers(5, max(5, len(hurt) - 1)))
        hurt[place : place + 1] = data.draw(st.binary(max_size=2))
    column = pa.array(list(map(bytes, written)), pa.binary())
    decode_column = AvroReader(reader).column_decoder(avro_text(case.schema))
    whole = None if decode_column is None else decode_column(column)
    if whole is not None:
        decoder = ColumnDecoder(reader, FakeRegistry(avro_text(case.schema)))
        each, reasons = decoder._decode_each(column, decoder._writer(head(1)).decode)
        assert reasons == {}
        assert repr(whole.to_pylist()) == repr(each.to_pylist())  # also where it is not a number


def test_plain_schemas_are_read_in_step() -> None:
    old = record("R", a="int", gone={"type": "array", "items": "string"}, b=["null", "float"])
    new = record("R", b=["null", "double"], a="long", c="string")
    new["fields"][2]["default"] = "c"
    column = pa.array([avro_bytes(old, {"a": 7, "gone": ["x"] * n, "b": None}) for n in range(5)])
    for reader in (avro_text(old), avro_text(new, 2)):
        decode_column = AvroReader(reader).column_decoder(avro_text(old))
        assert decode_column is not None
        whole = decode_column(column)
        assert whole is not None
        assert whole[3]["a"].as_py() == 7


def test_a_map_with_one_key_twice_is_read_alone() -> None:
    schema = record("R", m={"type": "map", "values": "int"})
    twice = head(1) + bytes([4, 2, ord("k"), 2, 2, ord("k"), 4, 0])  # k: 1, k: 2
    plain = avro_bytes(schema, {"m": {"k": 1, "l": 1}})
    decode_column = AvroReader(avro_text(schema)).column_decoder(avro_text(schema))
    assert decode_column is not None
    assert decode_column(pa.array([plain, plain])) is not None
    assert decode_column(pa.array([plain, twice])) is None
    assert decoded(avro_text(schema), [plain, twice]) == (
        [{"m": {"k": 1, "l": 1}}, {"m": {"k": 2}}],
        {},
    )


UNION = record("Order", what=["null", "string", "long", record("A", x="int"), record("B", x="int")])


def test_branches_of_a_union_are_members_of_a_struct() -> None:
    values = [None, "text", 7, ("A", {"x": 1}), ("B", {"x": 2})]
    found, _ = decoded(avro_text(UNION), [avro_bytes(UNION, {"what": one}) for one in values])
    shown = [each["what"] for each in found]
    assert shown[0] is None
    assert [list(one.values()) for one in shown[1:]] == [
        ["text", None, None, None],
        [None, 7, None, None],
        [None, None, {"x": 1}, None],
        [None, None, None, {"x": 2}],
    ]
    assert list(shown[1]) == ["member0", "member1", "member2", "member3"]


def test_a_union_of_numbers_is_the_wider_of_them() -> None:
    schema = record("Order", n=["int", "null", "long"], d=["float", "double"])
    assert AvroReader(avro_text(schema)).shape.arrow == pa.struct(
        [("n", pa.int64()), ("d", pa.float64())]
    )


def test_a_writer_without_a_union_is_read_into_one() -> None:
    old = record("Order", what=record("A", x="int"))
    found, reasons = decoded(
        avro_text(UNION, 2), [avro_bytes(old, {"what": {"x": 3}})], avro_text(old)
    )
    assert (reasons, found[0]["what"]["member2"]) == ({}, {"x": 3})


@pytest.mark.parametrize(
    ("old", "value", "new", "shown"),
    [
        ("int", 7, "long", 7),
        ("int", 7, "double", 7.0),
        ("long", 7, ["null", "float"], 7.0),
        ("string", "a", "bytes", b"a"),
        ("bytes", b"a", "string", "a"),
        (["null", "int"], None, ["string", "null"], None),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "B",
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            "A",
        ),
    ],
)
def test_values_are_promoted_to_the_type_of_the_reader(
    old: Any, value: Any, new: Any, shown: Any
) -> None:
    before, after = record("R", x=old), record("R", x=new)
    found, reasons = decoded(
        avro_text(after, 2), [avro_bytes(before, {"x": value})], avro_text(before)
    )
    assert (found, reasons) == ([{"x": shown}], {})


def test_defaults_fill_what_older_writers_did_not_know() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    inner = record("Inner", a="int", b="string")
    inner["fields"][1]["default"] = "b"
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "renamed", "aliases": ["id"], "type": "int"},
            {"name": "raw", "type": "bytes", "default": "\u0001\u00ff"},
            {"name": "price", "type": money, "default": "\u0001\u0000"},
            {"name": "at", "type": {"type": "int", "logicalType": "date"}, "default": 1},
            {"name": "inner", "type": inner, "default": {"a": 5}},
            {"name": "many", "type": {"type": "array", "items": "Inner"}, "default": [{"a": 6}]},
            {"name": "maybe", "type": ["null", "string"], "default": None},
            {"name": "either", "type": ["string", "null"], "default": "e"},
        ],
    }
    old = record("R", id="int")
    found, reasons = decoded(avro_text(new, 2), [avro_bytes(old, {"id": 3})], avro_text(old))
    assert reasons == {}
    assert found[0] == {
        "renamed": 3,
        "raw": b"\x01\xff",
        "price": Decimal("2.56"),
        "at": date(1970, 1, 2),
        "inner": {"a": 5, "b": "b"},
        "many": [{"a": 6, "b": "b"}],
        "maybe": None,
        "either": "e",
    }


def test_a_decimal_keeps_its_value_when_the_scale_grows() -> None:
    def money(scale: int) -> dict[str, Any]:
        return record(
            "R", m={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}
        )

    old = avro_bytes(money(2), {"m": Decimal("1.25")})
    found, reasons = decoded(avro_text(money(4), 2), [old], avro_text(money(2)))
    assert (found, reasons) == ([{"m": Decimal("1.2500")}], {})
    found, reasons = decoded(avro_text(money(1), 2), [old], avro_text(money(2)))
    assert found == [None]
    assert list(reasons) == [0]


def test_references_are_known_by_their_names() -> None:
    customer = {**record("Customer", name="string"), "namespace": "shop"}
    order = record("Order", first="shop.Customer", second="shop.Customer")
    text = avro_text(order, **{"shop.Customer": customer})
    whole = record("Order", first=customer, second="shop.Customer")
    value = {"first": {"name": "Ada"}, "second": {"name": "Bob"}}
    assert decoded(text, [avro_bytes(whole, value)]) == ([value], {})


def test_schemas_without_an_end_are_refused() -> None:
    node = record("Node", value="int", next=["null", "Node"])
    with pytest.raises(InvalidRequest, match=r"recursive: at \$\.next it holds Node again"):
        AvroReader(avro_text(node))
    # A reader that leaves the field out is no help: a writer's bytes could nest without end.
    flat = record("Node", value="int")
    written = avro_bytes(node, {"value": 1, "next": None})
    found, reasons = decoded(avro_text(flat, 2), [written], avro_text(node))
    assert found == [None]
    assert "recursive" in reasons[0]
    nothing = record("R", x={"type": "array", "items": "null"})
    _, reasons = decoded(avro_text(nothing), [head(1) + b"\xfe\xff\xff\xff\xff\x0f\x00"])
    assert "items without bytes" in reasons[0]


def test_fields_that_spark_takes_for_one_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="'id' and 'ID', which Spark takes for one"):
        AvroReader(avro_text(record("R", id="int", ID="int")))


ORDER = record("Order", id="long", name="string", tags={"type": "array", "items": "string"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "zero byte"),
        (b"\0\0\0", "zero byte"),
        (b"\1" + head(1), "zero byte"),
        (head(9) + b"x", "no schema 9"),
        (head(1), "end before the value"),
        (head(1) + b"\x02\x7fabc", ""),
        (avro_bytes(ORDER, {"id": 1, "name": "a", "tags": []}) + b"more", "4 bytes are left"),
        (avro_bytes(ORDER, {"id": 1, "name": "a", "tags": []}, 2), "JSON"),
        (head(1) + b"\x02\x02\xff\x00", "utf-8"),
    ],
)
def test_bad_bytes_are_null_and_say_why(data: bytes, reason: str) -> None:
    good = avro_bytes(ORDER, {"id": 5, "name": "x", "tags": ["t"]})
    other = avro_text({"type": "object"}, 2)
    other = type(other)("JSON", 2, other.text)
    found, reasons = decoded(avro_text(ORDER), [good, data, None, good], other)
    assert found[0] == found[3] == {"id": 5, "name": "x", "tags": ["t"]}
    assert found[1:3] == [None, None]
    assert list(reasons) == [1]
    assert reason in reasons[1]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=5))
def test_random_bytes_are_values_or_reasons(pieces: list[bytes]) -> None:
    found, reasons = decoded(avro_text(ORDER), [head(1) + piece for piece in pieces])
    assert [value is None for value in found] == [row in reasons for row in range(len(pieces))]


def test_times_that_no_column_can_hold_are_named_alone() -> None:
    schema = record("R", at={"type": "long", "logicalType": "timestamp-millis"})
    values = [avro_bytes(schema, {"at": at}) for at in (1000, 2**62, 2000)]
    found, reasons = decoded(avro_text(schema), values)
    assert [value and value["at"].second for value in found] == [1, None, 2]
    assert list(reasons) == [1]


def test_a_schema_is_asked_for_once() -> None:
    old, new = record("R", x="int"), record("R", x="long")
    registry = FakeRegistry(avro_text(old))
    decoder = ColumnDecoder(avro_text(new, 2), registry)
    values = [avro_bytes(old, {"x": 1}), avro_bytes(new, {"x": 2}, 2), head(7)] * 10
    for _ in range(3):
        decoder.decode(pa.array(values, pa.binary()))
    assert registry.asked == [1, 7]


def test_bytes_that_only_look_like_ids_are_not_all_asked_for() -> None:
    registry = FakeRegistry()
    decoder = ColumnDecoder(avro_text(ORDER), registry)
    good = avro_bytes(ORDER, {"id": 1, "name": "a", "tags": []})
    values = [good if number % 2 else head(number) for number in range(10, 1000)]
    found, reasons = decoder.decode(pa.array(values, pa.binary()))
    assert len(registry.asked) == UNKNOWN_MAX
    assert sorted(reasons) == list(range(0, 990, 2))
    assert "was not" in reasons[988]
    assert found[1].as_py() == {"id": 1, "name": "a", "tags": []}
