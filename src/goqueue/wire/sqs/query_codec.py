"""The Query protocol: forms in, XML out.

A form is flat, so lists and maps are flattened to parameters such as `Attribute.1.Name`. The codec
of each shape is derived from its fields once.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from goqueue.wire.sqs.errors import MalformedInput, SqsError
from goqueue.wire.sqs.shapes import Shape
from goqueue.wire.sqs.text import FORBIDDEN

FIELDS_MAX = 5000  # more than a full batch with all attributes has
DEPTH_MAX = 8  # more than any parameter of any action has
_SPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
# A parser would read a raw carriage return as a line feed. `xml.sax.saxutils` would do this too,
# but loads an HTTP client: a megabyte.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})

Form = dict[str, str]
_Tree = dict[str, Any]
_Reader = Callable[[Any], Any]
_Writer = Callable[[list[str], str, Any], None]


def read_form(*sources: bytes) -> Form:
    """Read the parameters of a request: those of its URL and those of its body."""
    form: Form = {}
    for data in sources:
        if not data:
            continue
        try:
            pairs = parse_qsl(
                data.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=FIELDS_MAX,
            )
        except ValueError as error:
            raise MalformedInput(f"The parameters cannot be read: {error}.") from None
        form.update(pairs)
    return form


def decode(form: Form, shape: type[Shape]) -> Any:
    """Decode the input of an action."""
    tree: _Tree = {}
    for name, text in form.items():
        _plant(tree, name.split(".", DEPTH_MAX), text)
    try:
        return msgspec.convert(_reader(shape)(tree), shape, strict=False)
    except msgspec.ValidationError as error:
        raise MalformedInput(f"The parameters do not fit the action: {error}.") from None


def encode_answer(action: str, answer: Shape, request_id: str) -> bytes:
    parts = [_HEAD, f'<{action}Response xmlns="{_SPACE}">']
    if msgspec.structs.fields(answer):
        parts.append(f"<{action}Result>")
        _write_fields(parts, answer)
        parts.append(f"</{action}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>")
    parts.append(f"</{action}Response>")
    return "".join(parts).encode()


def encode_error(error: SqsError, request_id: str) -> bytes:
    whose = "Sender" if error.is_of_sender else "Receiver"
    return (
        f'{_HEAD}<ErrorResponse xmlns="{_SPACE}"><Error><Type>{whose}</Type>'
        f"<Code>{error.query_name}</Code><Message>{_xml(error.query_text)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


# Reading


def _plant(tree: _Tree, path: list[str], text: str) -> None:
    for word in path[:-1]:
        below = tree.setdefault(word, {})
        if not isinstance(below, dict):
            return  # `A=x` and `A.1=y` exclude each other; the first one counts.
        tree = below
    tree.setdefault(path[-1], text)


@cache
def _reader(shape: type[Shape]) -> _Reader:
    """A function that converts a tree of parameters to the structure of the JSON protocol."""
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    readers = {one.encode_name: (_place(one), _reader_of(_real(one.type))) for one in info.fields}

    def read(tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        return {
            name: reader(tree[place]) for name, (place, reader) in readers.items() if place in tree
        }

    return read


def _reader_of(kind: inspect.Type) -> _Reader:
    extra: dict[str, str] = {}
    if isinstance(kind, inspect.Metadata):
        extra, kind = dict(kind.extra or {}), kind.type
    if isinstance(kind, inspect.StructType):
        return lambda tree: _reader(kind.cls)(tree)
    if isinstance(kind, inspect.ListType):
        item = _reader_of(kind.item_type)
        return lambda tree: [item(one) for one in _numbered(tree)]
    if isinstance(kind, inspect.DictType):
        value = _reader_of(kind.value_type)
        return lambda tree: _entries(tree, extra, value)
    return lambda text: text


def _numbered(tree: Any) -> list[Any]:
    """The items of a list in order; a parameter without a number is a list of one item."""
    if not isinstance(tree, dict):
        return [tree]
    numbers = sorted(int(one) for one in tree if one.isascii() and one.isdigit() and len(one) < 9)
    return [tree[str(one)] for one in numbers if str(one) in tree]


def _entries(tree: Any, extra: dict[str, str], value: _Reader) -> dict[str, Any]:
    entries = {}
    for one in _numbered(tree):
        if isinstance(one, dict) and isinstance(one.get(extra["key"]), str):
            entries[one[extra["key"]]] = value(one.get(extra["value"], ""))
    return entries


# Writing


def _write_fields(parts: list[str], shape: Shape) -> None:
    for name, attribute, write in _writers(type(shape)):
        value = getattr(shape, attribute)
        if value is not None:
            write(parts, name, value)


@cache
def _writers(shape: type[Shape]) -> list[tuple[str, str, _Writer]]:
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    return [(_place(one), one.name, _writer_of(_real(one.type))) for one in info.fields]


def _writer_of(kind: inspect.Type) -> _Writer:
    extra: dict[str, str] = {}
    if isinstance(kind, inspect.Metadata):
        extra, kind = dict(kind.extra or {}), kind.type
    if isinstance(kind, inspect.StructType):
        return _write_struct
    if isinstance(kind, inspect.ListType):
        return _repeated(_writer_of(kind.item_type))
    if isinstance(kind, inspect.DictType):
        return _keyed(extra, _writer_of(kind.value_type))
    if isinstance(kind, inspect.BytesType):
        return lambda parts, name, value: parts.append(
            f"<{name}>{b64encode(value).decode('ascii')}</{name}>"
        )
    if isinstance(kind, inspect.BoolType):
        return lambda parts, name, value: parts.append(f"<{name}>{str(value).lower()}</{name}>")
    return lambda parts, name, value: parts.append(f"<{name}>{_xml(str(value))}</{name}>")


def _write_struct(parts: list[str], name: str, value: Any) -> None:
    parts.append(f"<{name}>")
    _write_fields(parts, value)
    parts.append(f"</{name}>")


def _repeated(item: _Writer) -> _Writer:
    def write(parts: list[str], name: str, value: Any) -> None:
        for one in value:
            item(parts, name, one)

    return write


def _keyed(extra: dict[str, str], value_writer: _Writer) -> _Writer:
    key_name, value_name = extra["key"], extra["value"]

    def write(parts: list[str], name: str, value: Any) -> None:
        for key, one in value.items():
            parts.append(f"<{name}><{key_name}>{_xml(key)}</{key_name}>")
            value_writer(parts, value_name, one)
            parts.append(f"</{name}>")

    return write


# Fields


def _real(kind: inspect.Type) -> inspect.Type:
    """The type of an optional field."""
    if isinstance(kind, inspect.UnionType):
        return next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    return kind


def _place(one: inspect.Field) -> str:
    """The name of a field in the Query protocol; for lists and maps, the name of an item."""
    kind = _real(one.type)
    if isinstance(kind, inspect.Metadata) and kind.extra:
        return str(kind.extra["element"])
    return one.encode_name


def _xml(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text).translate(_ESCAPES)
