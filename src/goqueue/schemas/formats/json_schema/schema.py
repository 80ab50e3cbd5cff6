"""JSON Schema of the drafts 4, 6, 7, 2019-09 and 2020-12, compiled by jsonschema-rs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import msgspec

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats import json_text
from goqueue.schemas.formats.interface import (
    Decode,
    Encode,
    ResolvedReference,
    SchemaKind,
    SchemaViolation,
    Validate,
)
from goqueue.schemas.formats.json_schema import compatibility, costs
from goqueue.schemas.formats.json_schema.drafts import Draft, draft_of
from goqueue.schemas.formats.json_schema.references import (
    BASE,
    Node,
    SchemaIndex,
    joined,
    references_in,
)
from goqueue.schemas.formats.references import in_order

# A pattern that needs more steps than this on one string counts as not matched. Linear patterns
# need a few steps per character; catastrophic ones double with each.
PATTERN_STEPS_MAX = 100_000
PATTERN_BYTES_MAX = 1024 * 1024  # of a compiled pattern
PAYLOAD_DEPTH_MAX = 200
TEXT_SHOWN_MAX = 300

_VALIDATORS: dict[Draft, Callable[..., jsonschema_rs.Validator]] = {
    Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
    Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
    Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}


@dataclass(frozen=True, slots=True, eq=False)
class JsonSchema:
    text: str
    canonical: str
    normalized: str
    document: Node
    schema_index: SchemaIndex
    compiled: jsonschema_rs.Validator
    payload_depth_max: int
    draft: Draft
    kind: SchemaKind = SchemaKind.JSON

    def incompatibilities(self, writer: JsonSchema) -> list[str]:
        if self.normalized == writer.normalized and not _has_foreign_references(self.document):
            return []
        return compatibility.incompatibilities(reader=self, writer=writer)

    def validator(self) -> Validate:
        return _validator(self)

    def encoder(self, message_indexes: Sequence[int]) -> Encode:
        check = self.validator()

        def encode(text: bytes) -> bytes:
            check(text)
            return bytes(msgspec.json.format(text, indent=-1))

        return encode

    def decoder(self, message_indexes: Sequence[int]) -> Decode:
        return _compact

    def record_name(self, message_indexes: Sequence[int]) -> str:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else ""


def parse(text: str, references: Sequence[ResolvedReference]) -> JsonSchema:
    """Parse and compile a schema; `$ref` may use the `references`, or an `$id` inside them."""
    document = _node(json_text.read(text))
    schema_index = SchemaIndex()
    schema_index.add(document)
    for reference in in_order(references):
        try:
            schema_index.add(_node(json_text.read(reference.text)), reference.name)
        except InvalidSchema as error:
            raise InvalidSchema(f"In the reference {reference.name!r}: {error}") from None
    for target, source in references_in(document):
        if not target.startswith(("http://json-schema.org/", "https://json-schema.org/")):
            schema_index.resolve(target, source)
    depth_max = costs.payload_depth(document, schema_index, limit=PAYLOAD_DEPTH_MAX)
    return JsonSchema(
        text,
        canonical=json_text.write(document),
        normalized=json_text.write(document, is_sorted=True),
        document=document,
        schema_index=schema_index,
        compiled=_compiled(document, schema_index),
        payload_depth_max=depth_max,
        draft=draft_of(document),
    )


def _compact(payload: bytes | memoryview) -> bytes:
    """A payload on one line. What was written with another schema is shown as it is."""
    text = bytes(payload)
    try:
        text.decode()
        return bytes(msgspec.json.format(text, indent=-1))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaViolation("$", f"the payload is not JSON: {error}") from None


def _node(document: object) -> Node:
    if isinstance(document, dict | bool):
        return document
    raise InvalidSchema("A JSON Schema is an object, or true or false.")


def _compiled(document: Node, schema_index: SchemaIndex) -> jsonschema_rs.Validator:
    def retrieve(address: str) -> Any:
        # The library would read files and the network; it gets only the documents passed in.
        found = schema_index.find(address)
        if found is None:
            raise LookupError(f"no schema is known as {address[:200]}")
        return found

    own = document.get("$id") if isinstance(document, dict) else None
    compile_draft = _VALIDATORS[draft_of(document)]
    try:
        return compile_draft(
            document,
            retriever=retrieve,
            base_uri=None if isinstance(own, str) and "://" in own else joined(BASE, ""),
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=PATTERN_STEPS_MAX,
                size_limit=PATTERN_BYTES_MAX,
                dfa_size_limit=PATTERN_BYTES_MAX,
            ),
        )
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchema(f"Invalid JSON Schema: {_reason(error)}.") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidSchema(f"Invalid JSON Schema: {str(error)[:TEXT_SHOWN_MAX]}.") from None


def _validator(schema: JsonSchema) -> Validate:
    decode = msgspec.json.Decoder().decode
    check = schema.compiled.validate
    depth_max = schema.payload_depth_max

    def validate(payload: bytes | memoryview) -> None:
        # Every level needs a bracket, so most payloads are quickly found to be flat.
        data = bytes(payload)
        if data.count(b"[") + data.count(b"{") > depth_max:
            _check_depth(data, depth_max)
        try:
            value = decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SchemaViolation("$", f"the payload is not JSON: {error}") from None
        try:
            check(value)
        except jsonschema_rs.ValidationError as error:
            raise SchemaViolation(_path(error.instance_path), _reason(error)) from None
        except ValueError as error:
            raise SchemaViolation("$", str(error)[:TEXT_SHOWN_MAX]) from None

    return validate


def _check_depth(data: bytes, depth_max: int) -> None:
    depth = json_text.depth_of(data.decode("utf-8", "replace"))
    if depth > depth_max:
        raise SchemaViolation(
            "$", f"the payload is nested {depth} levels deep; {depth_max} can be checked"
        )


def _path(steps: Sequence[str | int]) -> str:
    shown = [f"[{step}]" if isinstance(step, int) else f".{str(step)[:100]}" for step in steps]
    return "$" + "".join(shown)


def _reason(error: jsonschema_rs.ValidationError) -> str:
    """The reason, without the whole value if it is long."""
    message = error.message
    if len(message) > TEXT_SHOWN_MAX:
        half = TEXT_SHOWN_MAX // 2
        message = f"{message[:half]} … {message[-half:]}"
    return message


def _has_foreign_references(document: Node) -> bool:
    return any(not target.startswith("#") for target, _ in references_in(document))
