"""Schema resolution of the Avro specification: which data of a writer a reader can read.

The results are those of Java's `SchemaCompatibility`. The tests compare them with the checker of
the Python library, which returns no paths and recurses without a bound.
"""

from __future__ import annotations

from goqueue.schemas.formats.avro.types import NO_DEFAULT, AvroField, AvroType
from goqueue.schemas.formats.budget import Budget, compared

# What a value of the writer's type may be widened to.
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def incompatibilities(reader: AvroType, writer: AvroType) -> list[str]:
    """One text for each broken rule, with the path in the reader's schema."""
    return compared(lambda budget: _Comparison(budget).types(reader, writer, "$", 0))


class _Comparison:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        # A pair that is being compared is assumed compatible: a recursive type adds nothing new on
        # the second visit.
        self._verdicts: dict[tuple[int, int], list[str]] = {}
        self._branches: dict[int, dict[str, AvroType]] = {}

    def types(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> list[str]:
        pair = id(reader), id(writer)
        if pair not in self._verdicts:
            self._budget.spend(depth)
            self._verdicts[pair] = []
            self._verdicts[pair] = self._compare(reader, writer, path, depth + 1)
        return self._verdicts[pair]

    def _compare(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> list[str]:
        if writer.kind == "union":
            return self._all_branches(reader, writer, path, depth)
        if reader.kind == "union":
            return self._some_branch(reader, writer, path, depth)
        if reader.kind != writer.kind:
            if reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return []
            return [_mismatch(path, reader, writer)]
        if reader.kind in ("array", "map"):
            member = "items" if reader.kind == "array" else "values"
            return self.types(reader.item, writer.item, f"{path}.{member}", depth)
        if reader.name:
            return self._named(reader, writer, path, depth)
        return []

    def _all_branches(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> list[str]:
        found = []
        for branch in writer.branches:
            if reader.kind != "union":
                found += self.types(reader, branch, path, depth)
            elif self.types(reader, branch, path, depth):
                found.append(_missing_branch(path, branch))
        return found

    def _some_branch(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> list[str]:
        # In a large union nearly every branch has one of the same name; only the others need a
        # search.
        namesake = self._branches_of(reader).get(writer.title)
        if namesake is not None and not self.types(namesake, writer, path, depth):
            return []
        for branch in reader.branches:
            if not self.types(branch, writer, path, depth):
                return []
        # A branch of the same name is the intended one; report what is wrong inside it.
        for branch in reader.branches:
            if writer.name and branch.kind == writer.kind and not _name_fault(branch, writer, ""):
                return self.types(branch, writer, path, depth)
        return [_missing_branch(path, writer)]

    def _branches_of(self, union: AvroType) -> dict[str, AvroType]:
        if id(union) not in self._branches:
            self._branches[id(union)] = {branch.title: branch for branch in union.branches}
        return self._branches[id(union)]

    def _named(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> list[str]:
        found = _name_fault(reader, writer, path)
        if reader.kind == "fixed" and reader.size != writer.size:
            found.append(
                f"FIXED_SIZE_MISMATCH at {path}.size: the reader's {reader.name} has {reader.size} "
                f"bytes, the writer's {writer.size}"
            )
        elif reader.kind == "enum":
            found += _symbol_faults(reader, writer, path)
        elif reader.kind == "record":
            by_name = {each.name: each for each in writer.fields}
            for each in reader.fields:
                found += self._field(each, by_name, f"{path}.{each.name}", depth)
        return found

    def _field(
        self, reader: AvroField, writers: dict[str, AvroField], path: str, depth: int
    ) -> list[str]:
        for name in (reader.name, *reader.aliases):
            if name in writers:
                return self.types(reader.type, writers[name].type, path, depth)
        if reader.default is NO_DEFAULT:
            return [
                f"READER_FIELD_MISSING_DEFAULT_VALUE at {path}: the writer has no field "
                f"{reader.name!r}, and the reader has no default for it"
            ]
        return []


def _name_fault(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    # Namespaces may differ, as in Java: only the last part of a name has to match.
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    return [
        f"NAME_MISMATCH at {path}.name: the reader expects {reader.name!r}, the writer has "
        f"{writer.name!r}"
    ]


def _symbol_faults(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    missing = [symbol for symbol in writer.symbols if symbol not in set(reader.symbols)]
    if not missing or reader.symbol_default is not None:
        return []
    return [
        f"MISSING_ENUM_SYMBOLS at {path}.symbols: the reader's {reader.name} lacks "
        f"{', '.join(missing[:20])}"
    ]


def _mismatch(path: str, reader: AvroType, writer: AvroType) -> str:
    return (
        f"TYPE_MISMATCH at {path}: the reader's type {reader.title} cannot read the writer's type "
        f"{writer.title}"
    )


def _missing_branch(path: str, branch: AvroType) -> str:
    return f"MISSING_UNION_BRANCH at {path}: the reader's union lacks the writer's {branch.title}"
