"""Which changes of a JSON Schema keep older data readable: Confluent's rules.

The reader's schema must accept whatever the writer's accepts. Objects are open, closed or partially
open for properties that are not listed, and most rules follow from that. If a rule would need the
intersection of two schemas (patterns, conditions), a change counts as incompatible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from goqueue.schemas.formats import json_text
from goqueue.schemas.formats.budget import Budget, compared
from goqueue.schemas.formats.json_schema.drafts import Draft, known_keywords
from goqueue.schemas.formats.json_schema.keywords import (
    array_faults,
    limit_faults,
    property_schema,
    type_faults,
    value_faults,
)
from goqueue.schemas.formats.json_schema.merging import flattened
from goqueue.schemas.formats.json_schema.references import Node, SchemaIndex

if TYPE_CHECKING:
    from goqueue.schemas.formats.json_schema.schema import JsonSchema

SUBSCHEMAS_MAX = 100  # branches on each side that are matched with each other

_SUMS = ("anyOf", "oneOf")


def incompatibilities(*, reader: JsonSchema, writer: JsonSchema) -> list[str]:
    """One text for each broken rule, with the path in the schema."""

    def compare(budget: Budget) -> list[str]:
        comparison = Comparison(
            budget,
            _Side(reader.schema_index, reader.draft),
            _Side(writer.schema_index, writer.draft),
        )
        return comparison.schemas(reader.document, writer.document, "#", 0)

    return compared(compare)


class _Side(NamedTuple):
    """What is needed to resolve the schemas of one of the two documents."""

    schema_index: SchemaIndex
    draft: Draft

    def flattened(self, node: Node) -> Node:
        """Expand `$ref` and `allOf`, as far as they do not conflict."""
        return flattened(node, self.schema_index)

    def keywords(self, schema: dict[str, object]) -> dict[str, object]:
        return known_keywords(schema, self.draft)


class Comparison:
    """Compares a reader's schema with a writer's; recursive schemas are visited once."""

    def __init__(self, budget: Budget, reader: _Side, writer: _Side) -> None:
        self._budget = budget
        self._reader = reader
        self._writer = writer
        self._verdicts: dict[tuple[int, int], list[str]] = {}
        self._alive: list[object] = []  # merged schemas, which are identified by `id()` too

    def schemas(self, reader: Node, writer: Node, path: str, depth: int) -> list[str]:
        """What of `writer` the reader does not accept."""
        self._budget.spend(depth)
        reader = self._reader.flattened(reader)
        writer = self._writer.flattened(writer)
        if reader is True or reader == {} or writer is False:
            return []
        if reader is False:
            return [f"SCHEMA_ADDED at {path}: nothing is allowed there any more"]
        if isinstance(writer, bool):
            writer = {}
        assert isinstance(reader, dict)
        pair = id(reader), id(writer)
        if pair not in self._verdicts:
            self._alive += (reader, writer)
            self._verdicts[pair] = []
            self._verdicts[pair] = self._objects(reader, writer, path, depth + 1)
        return self._verdicts[pair]

    def is_readable(self, reader: Node, writer: Node, depth: int) -> bool:
        return not self.schemas(reader, writer, "#", depth)

    def _objects(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        reader = self._single_branch(self._reader.keywords(reader), self._reader)
        writer = self._single_branch(self._writer.keywords(writer), self._writer)
        found = self._keywords(reader, writer, path, depth)
        if found and self._is_promised(reader, writer, depth):
            return []
        return found

    def _single_branch(self, schema: dict[str, object], side: _Side) -> dict[str, object]:
        """Replace an `anyOf` or `oneOf` of one branch by that branch."""
        for word in _SUMS:
            branches = _branches(schema, word)
            if len(branches) == 1:
                whole = _with_branch(schema, word, side.flattened(branches[0]))
                schema = whole if isinstance(whole, dict) else schema
        return schema

    def _is_promised(
        self, reader: dict[str, object], writer: dict[str, object], depth: int
    ) -> bool:
        """Whether the reader accepts everything that one part of the writer's `allOf` allows."""
        return any(self.is_readable(reader, branch, depth) for branch in _branches(writer, "allOf"))

    def _keywords(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        reader_sum = next((word for word in _SUMS if _branches(reader, word)), "")
        writer_sum = next((word for word in _SUMS if _branches(writer, word)), "")
        if writer_sum and not reader_sum:
            return self._every_branch(reader, writer, writer_sum, path, depth)
        if reader_sum and not writer_sum:
            return self._some_branch(reader, writer, reader_sum, path, depth)
        found = []
        if reader_sum:
            found += self._sums(reader, writer, (reader_sum, writer_sum), path, depth)
        return found + self._plain(reader, writer, path, depth)

    def _plain(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        """All keywords but `anyOf` and `oneOf`."""
        found = type_faults(reader, writer, path)
        if found:
            return found
        found += value_faults(reader, writer, path)
        found += limit_faults(reader, writer, path)
        found += array_faults(self, reader, writer, path, depth)
        found += self._properties(reader, writer, path, depth)
        found += self._products(reader, writer, path, depth)
        found += self._negations(reader, writer, path, depth)
        return found + _condition_faults(reader, writer, path)

    def _every_branch(
        self, reader: dict[str, object], writer: dict[str, object], word: str, path: str, depth: int
    ) -> list[str]:
        """The reader has no branches: it must accept every branch of the writer."""
        found = []
        for branch in _branches(writer, word):
            whole = _with_branch(writer, word, self._writer.flattened(branch))
            found += self.schemas(reader, whole, path, depth)
        return found

    def _some_branch(
        self, reader: dict[str, object], writer: dict[str, object], word: str, path: str, depth: int
    ) -> list[str]:
        """The writer has no branches: one of the reader's must accept all of it."""
        for branch in _branches(reader, word):
            whole = _with_branch(reader, word, self._reader.flattened(branch))
            if self.is_readable(whole, writer, depth):
                return []
        return [f"COMBINED_TYPE_CHANGED at {path}/{word}: no branch takes what was written before"]

    def _sums(
        self,
        reader: dict[str, object],
        writer: dict[str, object],
        words: tuple[str, str],
        path: str,
        depth: int,
    ) -> list[str]:
        reader_word, writer_word = words
        if reader_word == "oneOf" and writer_word == "anyOf":
            return [f"COMBINED_TYPE_CHANGED at {path}: anyOf became oneOf"]
        readers, writers = _branches(reader, reader_word), _branches(writer, writer_word)
        if len(readers) < len(writers):
            return [
                f"SUM_TYPE_NARROWED at {path}/{reader_word}: {len(writers)} branches became "
                f"{len(readers)}"
            ]
        if not self._is_matched(readers, writers, depth):
            return [
                f"COMBINED_TYPE_SUBSCHEMAS_CHANGED at {path}/{reader_word}: not every branch of "
                "before has one that takes it"
            ]
        return []

    def _is_matched(self, readers: list[Node], writers: list[Node], depth: int) -> bool:
        """Whether each branch of the writer can be matched with a different branch of the
        reader.
        """
        if max(len(readers), len(writers)) > SUBSCHEMAS_MAX:
            return [json_text.write(each) for each in readers[: len(writers)]] == [
                json_text.write(each) for each in writers
            ]
        takers = [
            [
                index
                for index, reader in enumerate(readers)
                if self.is_readable(reader, writer, depth)
            ]
            for writer in writers
        ]
        owner: dict[int, int] = {}

        def match(writer: int, tried: set[int]) -> bool:
            for index in takers[writer]:
                if index not in tried:
                    tried.add(index)
                    if index not in owner or match(owner[index], tried):
                        owner[index] = writer
                        return True
            return False

        return all(match(writer, set()) for writer in range(len(writers)))

    def _products(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        """`allOf` that could not be expanded: the writer must guarantee all the reader requires."""
        base = {key: value for key, value in writer.items() if key != "allOf"}
        promised: list[Node] = [base, *_branches(writer, "allOf")]
        return [
            f"PRODUCT_TYPE_EXTENDED at {path}/allOf/{index}: older data may not obey it"
            for index, branch in enumerate(_branches(reader, "allOf"))
            if not any(self.is_readable(branch, promise, depth) for promise in promised)
        ]

    def _negations(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        forbidden, forbidden_before = reader.get("not"), writer.get("not")
        if not isinstance(forbidden, dict | bool):
            return []
        if not isinstance(forbidden_before, dict | bool):
            return [f"NOT_TYPE_ADDED at {path}/not: more is forbidden than before"]
        # Here the roles are swapped: all that is forbidden now must have been forbidden before.
        turned = Comparison(self._budget, self._writer, self._reader)
        if turned.is_readable(forbidden_before, forbidden, depth):
            return []
        return [f"NOT_TYPE_EXTENDED at {path}/not: more is forbidden than before"]

    def _properties(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        readers, writers = _members(reader, "properties"), _members(writer, "properties")
        found = []
        for name in {**writers, **readers}:
            inner = f"{path}/properties/{name[:200]}"
            if name not in readers:
                found += self._removed(reader, writers[name], name, inner, depth)
            elif name not in writers:
                found += self._added(reader, writer, name, inner, depth)
            else:
                found += self.schemas(readers[name], writers[name], inner, depth)
        found += _required_faults(reader, writer, path)
        found += self._additional(reader, writer, path, depth)
        found += self._patterned(reader, writer, path, depth)
        return found + self._dependencies(reader, writer, path, depth)

    def _removed(
        self, reader: dict[str, object], writer: Node, name: str, path: str, depth: int
    ) -> list[str]:
        instead = property_schema(reader, name)
        if instead is True or writer is False:
            return []
        if instead is False:
            return [
                f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {path}: data with it is refused now"
            ]
        if self.is_readable(instead, writer, depth):
            return []
        return [
            f"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {path}: the schema "
            "for other properties does not take what it was"
        ]

    def _added(
        self,
        reader: dict[str, object],
        writer: dict[str, object],
        name: str,
        path: str,
        depth: int,
    ) -> list[str]:
        added = _members(reader, "properties")[name]
        before = property_schema(writer, name)
        if before is True:
            if self._reader.flattened(added) in (True, {}):
                return []
            return [
                f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {path}: data may have it already, as "
                "anything; close the schema with additionalProperties: false to add properties"
            ]
        found = []
        if before is not False and not self.is_readable(added, before, depth):
            found.append(
                f"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {path}: it does "
                "not take what other properties could be"
            )
        if name in _words(reader, "required") and not _has_default(added):
            found.append(
                f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at {path}: data written before "
                "may lack it, and it has no default"
            )
        return found

    def _additional(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        now, before = _additional_of(reader), _additional_of(writer)
        inner = f"{path}/additionalProperties"
        if now is True or now == {} or before is False:
            return []
        if now is False:
            return [f"ADDITIONAL_PROPERTIES_REMOVED at {inner}: other properties are refused now"]
        if before is True:
            return [f"ADDITIONAL_PROPERTIES_NARROWED at {inner}: other properties were anything"]
        return self.schemas(now, before, inner, depth)

    def _patterned(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        found = []
        before = _members(writer, "patternProperties")
        for pattern, now in _members(reader, "patternProperties").items():
            inner = f"{path}/patternProperties/{pattern[:200]}"
            if pattern in before:
                found += self.schemas(now, before[pattern], inner, depth)
            elif _additional_of(writer) is not False and now not in (True, {}):
                found.append(f"PATTERN_PROPERTY_ADDED at {inner}: data may not obey it")
        for pattern in before.keys() - _members(reader, "patternProperties").keys():
            if _additional_of(reader) is False:
                inner = f"{path}/patternProperties/{pattern[:200]}"
                found.append(
                    f"PATTERN_PROPERTY_REMOVED at {inner}: such properties are refused now"
                )
        return found

    def _dependencies(
        self, reader: dict[str, object], writer: dict[str, object], path: str, depth: int
    ) -> list[str]:
        found = []
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            before = writer.get(keyword)
            before = before if isinstance(before, dict) else {}
            now = reader.get(keyword)
            for name, needed in (now if isinstance(now, dict) else {}).items():
                inner = f"{path}/{keyword}/{name[:200]}"
                if isinstance(needed, list):
                    was = before.get(name)
                    if not isinstance(was, list):
                        found.append(f"DEPENDENCY_ARRAY_ADDED at {inner}: data may not obey it")
                    elif not set(map(str, needed)) <= set(map(str, was)):
                        found.append(f"DEPENDENCY_ARRAY_EXTENDED at {inner}: more is needed now")
                elif name not in before or isinstance(before[name], list):
                    found.append(f"DEPENDENCY_SCHEMA_ADDED at {inner}: data may not obey it")
                else:
                    found += self.schemas(needed, before[name], inner, depth)
        return found


def _required_faults(reader: dict[str, object], writer: dict[str, object], path: str) -> list[str]:
    before, now = _members(writer, "properties"), _members(reader, "properties")
    was_required = set(_words(writer, "required"))
    found = []
    for name in _words(reader, "required"):
        is_new = name in now and name not in before and property_schema(writer, name) is not True
        if name in was_required or is_new or _has_default(now.get(name, True)):
            continue
        found.append(
            f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name[:200]}: data written before may "
            "lack it, and it has no default"
        )
    return found


def _condition_faults(reader: dict[str, object], writer: dict[str, object], path: str) -> list[str]:
    """Conditions may be dropped, not added or changed."""
    words = ("if", "then", "else")
    now = [reader.get(word) for word in words]
    if "if" not in reader or now[1:] == [None, None] or now == [writer.get(word) for word in words]:
        return []
    return [f"CONDITION_CHANGED at {path}/if: what was written before may not obey it"]


def _with_branch(schema: dict[str, object], word: str, branch: Node) -> Node:
    """The schema with that branch applied."""
    if not isinstance(branch, dict):
        return {key: value for key, value in schema.items() if key != word} if branch else False
    rest = {key: value for key, value in schema.items() if key != word}
    merged = {**rest, **branch}
    for key in ("properties", "patternProperties"):
        if key in rest and key in branch:
            merged[key] = {**_members(rest, key), **_members(branch, key)}
    if "required" in rest and "required" in branch:
        merged["required"] = [*_words(rest, "required"), *_words(branch, "required")]
    return merged


def _additional_of(schema: dict[str, object]) -> Node:
    value = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
    return value if isinstance(value, dict | bool) else True


def _branches(schema: dict[str, object], word: str) -> list[Node]:
    value = schema.get(word)
    return (
        [each for each in value if isinstance(each, dict | bool)] if isinstance(value, list) else []
    )


def _members(schema: dict[str, object], word: str) -> dict[str, Node]:
    value = schema.get(word)
    if not isinstance(value, dict):
        return {}
    return {name: each for name, each in value.items() if isinstance(each, dict | bool)}


def _words(schema: dict[str, object], word: str) -> list[str]:
    value = schema.get(word)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _has_default(schema: Node) -> bool:
    return isinstance(schema, dict) and "default" in schema
