"""The schemas that a schema refers to, bounded and in dependency order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.budget import DEPTH_MAX
from goqueue.schemas.formats.interface import (
    SCHEMA_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    ResolvedReference,
)


def in_order(references: Sequence[ResolvedReference]) -> list[ResolvedReference]:
    """Every referenced schema, once, each after those that it needs itself."""
    found: dict[tuple[str, str], ResolvedReference] = {}
    size = 0
    for reference in _walk(references):
        key = reference.name, reference.text
        if key in found:
            continue
        found[key] = reference
        size += len(reference.text)
        if len(found) > SCHEMA_REFERENCES_MAX:
            raise InvalidSchema(
                f"The schema refers to more than {SCHEMA_REFERENCES_MAX} others, directly or not."
            )
        if size > SCHEMA_BYTES_MAX:
            raise InvalidSchema(
                f"The schemas referred to have more than {SCHEMA_BYTES_MAX} bytes together."
            )
    return list(found.values())


def _walk(references: Sequence[ResolvedReference]) -> Iterator[ResolvedReference]:
    """Traverse depth first without recursion; a schema with many references to it is visited
    once.
    """
    entered: set[int] = set()
    stack: list[tuple[ResolvedReference | None, Iterator[ResolvedReference]]] = [
        (None, iter(references))
    ]
    while stack:
        owner, rest = stack[-1]
        reference = next(rest, None)
        if reference is None:
            stack.pop()
            if owner is not None:
                yield owner
        elif id(reference) not in entered:
            entered.add(id(reference))
            stack.append((reference, iter(reference.references)))
            if len(stack) > DEPTH_MAX:
                raise InvalidSchema(f"References are nested more than {DEPTH_MAX} levels deep.")
