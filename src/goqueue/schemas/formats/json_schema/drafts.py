"""The draft of JSON Schema that a document follows, and the keywords of that draft."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from goqueue.schemas.formats.json_schema.references import Node


class Draft(IntEnum):
    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 2019
    DRAFT_2020_12 = 2020


# The draft of a document that gives none, or an unknown one, as in Confluent's registry: its
# clients write schemas for it.
DRAFT_DEFAULT = Draft.DRAFT_7

_DRAFTS = {
    "json-schema.org/schema": Draft.DRAFT_4,
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}
# Keywords by the first draft that has them. In older drafts they constrain nothing.
_SINCE = {
    "contains": Draft.DRAFT_6,
    "const": Draft.DRAFT_6,
    "if": Draft.DRAFT_7,
    "then": Draft.DRAFT_7,
    "else": Draft.DRAFT_7,
    "dependentRequired": Draft.DRAFT_2019_09,
    "dependentSchemas": Draft.DRAFT_2019_09,
    "maxContains": Draft.DRAFT_2019_09,
    "minContains": Draft.DRAFT_2019_09,
    "unevaluatedItems": Draft.DRAFT_2019_09,
    "unevaluatedProperties": Draft.DRAFT_2019_09,
    "prefixItems": Draft.DRAFT_2020_12,
}
# `dependencies` was removed in 2019-09, but the validator still applies it, so it still counts.
_UNTIL = {"additionalItems": Draft.DRAFT_2019_09}


def draft_of(document: Node) -> Draft:
    """The draft that the `$schema` of a document gives."""
    named = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(named, str):
        return DRAFT_DEFAULT
    address = named.removesuffix("#").removeprefix("https://").removeprefix("http://")
    return _DRAFTS.get(address, DRAFT_DEFAULT)


def known_keywords(schema: dict[str, object], draft: Draft) -> dict[str, object]:
    """The schema without the keywords that have no meaning in its draft."""
    if not any(_is_unknown(word, draft) for word in schema):
        return schema
    return {word: value for word, value in schema.items() if not _is_unknown(word, draft)}


def _is_unknown(word: str, draft: Draft) -> bool:
    since: Mapping[str, Draft] = _SINCE
    return draft < since.get(word, draft) or draft > _UNTIL.get(word, draft)
