"""Protobuf messages as columns, by their descriptors."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    timestamp_pb2,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from goqueue.model.errors import InvalidRequest
from goqueue.spark.typed.protobuf import ProtobufReader, read_indexes
from goqueue.spark.typed.registry import ReferenceText, SchemaText
from tests.unit.spark.typed.framed import decoded, head

SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.decimal128(20, 0), st.integers(0, 2**64 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "fixed64": (pa.decimal128(20, 0), st.integers(0, 2**64 - 1)),
    "fixed32": (pa.int64(), st.integers(0, 2**32 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "uint32": (pa.int64(), st.integers(0, 2**32 - 1)),
    "sfixed32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "sfixed64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "sint32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "sint64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
}


def field(name: str, number: int, kind: str, *, label: str = "OPTIONAL", more: str = "") -> str:
    return (
        f'field {{ name: "{name}" number: {number} type: TYPE_{kind.upper()} '
        f"label: LABEL_{label} {more} }}"
    )


def file_of(body: str, *, name: str = "t.proto") -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name=name, package="t", syntax="proto3")
    text_format.Merge(body, made)
    return made


def text_of(file: descriptor_pb2.FileDescriptorProto, schema_id: int = 1) -> SchemaText:
    text = base64.b64encode(file.SerializeToString()).decode()
    return SchemaText("PROTOBUF", schema_id, text)


def class_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2,):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def framed(message: Any, schema_id: int = 1, indexes: bytes = b"\0") -> bytes:
    return head(schema_id) + indexes + bytes(message.SerializeToString())


PLAIN = file_of(
    "message_type { name: 'M' "
    + " ".join(
        field(f"{kind}_one", 3 * number + 1, kind)
        + field(f"{kind}_many", 3 * number + 2, kind, label="REPEATED")
        + field(
            f"{kind}_maybe",
            3 * number + 3,
            kind,
            more=f"proto3_optional: true oneof_index: {number}",
        )
        for number, kind in enumerate(SCALARS)
    )
    + " ".join(f"oneof_decl {{ name: '_{kind}_maybe' }}" for kind in SCALARS)
    + " }"
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_scalar_comes_back_as_it_was_written(data: st.DataObject) -> None:
    made = class_of(PLAIN, "t.M")
    message, wanted = made(), {}
    for kind, (arrow, values) in SCALARS.items():
        one, many = data.draw(values), data.draw(st.lists(values, max_size=3))
        maybe = data.draw(st.none() | values)
        setattr(message, f"{kind}_one", one)
        getattr(message, f"{kind}_many").extend(many)
        if maybe is not None:
            setattr(message, f"{kind}_maybe", maybe)
        wanted |= {f"{kind}_one": one, f"{kind}_many": many, f"{kind}_maybe": maybe}
        assert ProtobufReader(text_of(PLAIN)).shape.arrow.field(f"{kind}_one").type == arrow
    found, reasons = decoded(text_of(PLAIN), [framed(message), None])
    assert (found, reasons) == ([wanted, None], {})
    arrow = ProtobufReader(text_of(PLAIN)).shape.arrow
    assert to_arrow_type(from_arrow_type(arrow), timezone="UTC") == arrow


def test_fields_without_presence_have_their_zero_values() -> None:
    found, _ = decoded(text_of(PLAIN), [framed(class_of(PLAIN, "t.M")())])
    assert (found[0]["int32_one"], found[0]["int32_many"], found[0]["int32_maybe"]) == (0, [], None)
    assert (found[0]["uint64_one"], found[0]["string_one"]) == (Decimal(0), "")


NESTED = file_of(
    """
    dependency: "google/protobuf/timestamp.proto"
    dependency: "google/protobuf/wrappers.proto"
    dependency: "google/protobuf/struct.proto"
    dependency: "google/type/date.proto"
    dependency: "confluent/meta.proto"
    dependency: "confluent/types/decimal.proto"
    message_type { name: "First"
      field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    }
    message_type { name: "M"
      nested_type { name: "In"
        field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
      }
      field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"
              label: LABEL_OPTIONAL }
      field { name: "note" number: 2 type: TYPE_MESSAGE
              type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL }
      field { name: "free" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct"
              label: LABEL_OPTIONAL }
      field { name: "day" number: 4 type: TYPE_MESSAGE type_name: ".google.type.Date"
              label: LABEL_OPTIONAL }
      field { name: "money" number: 5 type: TYPE_MESSAGE type_name: ".confluent.type.Decimal"
              label: LABEL_OPTIONAL }
      field { name: "inner" number: 6 type: TYPE_MESSAGE type_name: "In" label: LABEL_REPEATED }
    }
    """
)


def nested_message() -> tuple[Any, dict[str, Any]]:
    reader = ProtobufReader(text_of(NESTED), "M")
    made = message_factory.GetMessageClass(reader._message)
    message = made()
    message.at.FromDatetime(datetime(2026, 1, 31, 12, 0, 0, 123456, UTC))
    message.note.value = ""
    message.free.update({"a": [1, None]})
    message.day.year = 2026
    message.money.scale = 2
    message.inner.add(x=1)
    return message, {
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        "note": "",
        "free": '{"a": [1.0, null]}',
        "day": {"year": 2026, "month": 0, "day": 0},
        "money": {"value": b"", "precision": 0, "scale": 2},
        "inner": [{"x": 1}],
    }


def test_known_messages_have_types_of_their_own() -> None:
    message, wanted = nested_message()
    found, reasons = decoded(text_of(NESTED), [framed(message, indexes=b"\x02\x02")], message="t.M")
    assert (found, reasons) == ([wanted], {})
    empty = framed(type(message)(), indexes=b"\x02\x02")
    assert decoded(text_of(NESTED), [empty], message="M")[0][0]["at"] is None


@pytest.mark.parametrize(
    ("indexes", "reason"),
    [
        (b"\0", "it holds t.First, and t.M is read"),
        (b"\x02\0", "it holds t.First"),
        (b"\x04\x02\0", "it holds t.M.In"),
        (b"\x02\x0e", "it holds no message"),
        (b"\x02\x01", "it holds no message"),
        (b"\xff", "end before the message"),
        (b"", "end before the message"),
        (b"\xff\xff\xff\xff\xff\xff\0", "not a number"),
        (b"\xfe\x03", "levels"),
    ],
)
def test_another_message_is_not_read(indexes: bytes, reason: str) -> None:
    found, reasons = decoded(text_of(NESTED), [head(1) + indexes], message="t.M")
    assert found == [None]
    assert reason in reasons[0]


def test_the_place_of_a_message_is_a_list_of_numbers() -> None:
    assert read_indexes(b"\0rest", 0) == ((0,), 1)
    assert read_indexes(b"x\x06\x02\x80\x02\0", 1) == ((1, 128, 0), 6)


def test_recursive_and_missing_messages_are_refused() -> None:
    node = file_of(
        "message_type { name: 'Node' "
        + field("next", 1, "message", more='type_name: ".t.Node"')
        + " }"
    )
    with pytest.raises(InvalidRequest, match=r"recursive: at \$\.next it holds t\.Node again"):
        ProtobufReader(text_of(node))
    with pytest.raises(InvalidRequest, match=r"no message Nope; it has t\.First, t\.M, t\.M\.In"):
        ProtobufReader(text_of(NESTED), "Nope")
    absent = file_of('dependency: "absent.proto" message_type { name: "M" }')
    with pytest.raises(InvalidRequest, match=r"imports absent\.proto"):
        ProtobufReader(text_of(absent))
    with pytest.raises(InvalidRequest, match="no Protobuf schema that can be read"):
        ProtobufReader(SchemaText("PROTOBUF", 1, "not base64!"))


def test_imports_come_from_references() -> None:
    box = file_of(f"message_type {{ name: 'Box' {field('size', 1, 'int32')} }}", name="box.proto")
    order = file_of(
        'dependency: "box.proto" message_type { name: "Order" '
        + field("box", 1, "message", more='type_name: ".t.Box"')
        + " }"
    )
    text = base64.b64encode(box.SerializeToString()).decode()
    schema = SchemaText("PROTOBUF", 1, text_of(order).text, (ReferenceText("box.proto", text),))
    found, reasons = decoded(schema, [head(1) + b"\0" + b"\x0a\x02\x08\x07"])
    assert (found, reasons) == ([{"box": {"size": 7}}], {})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=5))
def test_random_bytes_are_values_or_reasons(pieces: list[bytes]) -> None:
    found, reasons = decoded(text_of(PLAIN), [head(1) + piece for piece in pieces])
    assert [value is None for value in found] == [row in reasons for row in range(len(pieces))]
