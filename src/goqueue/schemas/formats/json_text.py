"""The JSON of schemas: bounded before parsing, and written in one canonical way.

The depth is counted on the text, so that no parser, ours or a library's, ever gets a document that
could exhaust its stack.
"""

from __future__ import annotations

import json
import re

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.interface import (
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    SchemaViolation,
)

# An unterminated string is matched as a whole, or each quote in it would begin another search.
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_INTEGER_DIGITS_MAX = 400  # what a double can hold; longer ones cost quadratic time to convert


def check_size(text: str) -> None:
    """Refuse a text beyond the size limit."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchema(f"The schema has {size} bytes; at most {SCHEMA_BYTES_MAX} are allowed.")


def depth_of(text: str) -> int:
    """The nesting depth of objects and arrays, whether or not the rest of the text is JSON."""
    depth = deepest = 0
    for mark in _MARKS.finditer(text):
        first = text[mark.start()]
        if first in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first != '"':
            depth -= 1
    return deepest


def read(text: str) -> object:
    """Parse the document, or raise `InvalidSchema`."""
    check_size(text)
    if depth_of(text) > SCHEMA_DEPTH_MAX:
        raise InvalidSchema(
            f"The schema is nested more than {SCHEMA_DEPTH_MAX} levels deep; flatten it, or move "
            "parts of it to schemas of their own and refer to them."
        )
    try:
        document: object = json.loads(
            text, parse_int=_integer, parse_constant=_refuse_constant, object_pairs_hook=_object
        )
        # Strings with half a surrogate pair can be parsed but not encoded again.
        json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise InvalidSchema(
            f"The schema is not JSON: {error.msg} at line {error.lineno} column {error.colno}."
        ) from None
    except UnicodeError:
        raise InvalidSchema("The schema has characters that are not valid Unicode.") from None
    except RecursionError:
        raise InvalidSchema("The schema is nested too deeply.") from None
    return document


def read_value(text: bytes) -> object:
    """Parse a payload that a person has written, or raise `SchemaViolation`."""
    try:
        decoded = text.decode()
        if depth_of(decoded) > SCHEMA_DEPTH_MAX:
            raise SchemaViolation("$", f"it is nested more than {SCHEMA_DEPTH_MAX} levels deep")
        value: object = json.loads(decoded, parse_constant=_refuse_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise SchemaViolation("$", f"it is not JSON: {error.msg} at {where}") from None
    except ValueError as error:  # bytes that are not UTF-8, or a number of thousands of digits
        raise SchemaViolation("$", f"it is not JSON: {error}") from None
    return value


def write(document: object, *, is_sorted: bool = False) -> str:
    """The canonical compact form of a document."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=is_sorted)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidSchema(f"The schema has an object with two members called {twice[:100]!r}.")
    return members


def _integer(digits: str) -> int:
    if len(digits) > _INTEGER_DIGITS_MAX:
        raise InvalidSchema(f"The schema has an integer of {len(digits)} digits.")
    return int(digits)


def _refuse_number(name: str) -> object:
    raise SchemaViolation("$", f"it is not JSON: {name} is no JSON number")


def _refuse_constant(name: str) -> object:
    raise InvalidSchema(f"The schema is not JSON: {name} is no JSON number.")
