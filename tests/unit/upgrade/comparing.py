"""Which changes of the types between nodes an older node, and older data, can bear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


class Comparison:
    """Compares the schema of an earlier release with that of a later one."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str]] = set()

    def problems(self) -> Iterator[str]:
        """Yield every change that an older node may not understand, with its place."""
        for name, kind in self._old["decoders"].items():
            if name not in self._new["decoders"]:
                yield f"{name}: is gone"
            else:
                yield from self._type(kind, self._new["decoders"][name], name)

    def operation(self, name: str, known_arguments: set[str]) -> Iterator[str]:
        """Yield problems of an operation, of which an older node knows these arguments."""
        old, new = self._old["operations"][name], self._new["operations"][name]
        later = {one["name"]: one for one in new["arguments"]}
        # An older node expects every argument, in its order.
        sent = [one["name"] for one in new["arguments"] if one["name"] in known_arguments]
        if sent != [one["name"] for one in old["arguments"]]:
            yield f"{name}: an older node expects other arguments than {sent}"
            return
        for one in old["arguments"]:
            place = f"{name}({one['name']})"
            yield from self._type(one["type"], later[one["name"]]["type"], place)
        yield from self._type(old["answer"], new["answer"], f"the answer of {name}")

    def _type(self, old: Any, new: Any, place: str) -> Iterator[str]:
        if old == new and not _names_objects(old):
            return
        if _kind(old) != _kind(new):
            yield f"{place}: was {old}, is {new}"
        elif "object" in old:
            yield from self._object(old["object"], new["object"], place)
        elif "any" in old:
            yield from self._any(old["any"], new["any"], place)
        elif "of" in old:
            if len(old["of"]) != len(new["of"]):
                yield f"{place}: was {old}, is {new}"
                return
            for before, after in zip(old["of"], new["of"], strict=True):
                yield from self._type(before, after, place)
        elif "limits" in old:
            if old["limits"] != new["limits"]:
                yield f"{place}: allowed {old['limits']}, allows {new['limits']}"
            yield from self._type(old["type"], new["type"], place)
        elif "packed" in old:
            yield from self._type(old["packed"], new["packed"], place)
        elif "values" in old:
            added = sorted(set(new["values"]) - set(old["values"]))
            gone = sorted(set(old["values"]) - set(new["values"]))
            if added:
                yield f"{place}: has the new values {added}"
            if gone:
                yield f"{place}: has no values {gone} any more"
        else:
            yield f"{place}: was {old}, is {new}"

    def _any(self, old: list[Any], new: list[Any], place: str) -> Iterator[str]:
        """Compare unions: by the tags of their kinds, or one by one."""
        before, after = self._by_tag(self._old, old), self._by_tag(self._new, new)
        for tag, kind in before.items():
            if tag not in after:
                yield f"{place}: has no {tag} any more"
            else:
                yield from self._type(kind, after[tag], place)
        for tag in after.keys() - before.keys():
            yield f"{place}: has the new {tag}"

    def _by_tag(self, schema: Schema, kinds: list[Any]) -> dict[str, Any]:
        tagged = {}
        for one in kinds:
            name = one.get("object") if isinstance(one, dict) else None
            tag = name if name is None else schema["types"][name]["tag"]
            tagged[str(tag or name or _kind(one))] = one
        return tagged

    def _object(self, old_name: str, new_name: str, place: str) -> Iterator[str]:
        if (old_name, new_name) in self._seen:
            return
        self._seen.add((old_name, new_name))
        old, new = self._old["types"][old_name], self._new["types"][new_name]
        if (old["array"], old["tag"]) != (new["array"], new["tag"]):
            yield f"{new_name} ({place}): is encoded in another way"
            return
        before = {one["name"]: one for one in old["fields"]}
        after = {one["name"]: one for one in new["fields"]}
        yield from self._order(old, new, new_name)
        for name, field in before.items():
            where = f"{new_name}.{name}"
            if name not in after:
                yield f"{where}: is gone, and an older node may need it"
                continue
            if after[name]["required"] and not field["required"]:
                yield f"{where}: is required now, and an older node may leave it out"
            yield from self._type(field["type"], after[name]["type"], where)
        for name in after.keys() - before.keys():
            if after[name]["required"]:
                yield f"{new_name}.{name}: is new, and has no default for what older nodes send"
            if old["strict"] and not new["levelled"]:
                yield f"{new_name}.{name}: is new, and older nodes refuse it; define `at_level`"

    def _order(self, old: Schema, new: Schema, name: str) -> Iterator[str]:
        names = [one["name"] for one in old["fields"]]
        if old["array"] and [one["name"] for one in new["fields"]][: len(names)] != names:
            yield f"{name}: fields of an array may be added at the end only"


def _kind(described: Any) -> str:
    if not isinstance(described, dict):
        return str(described)
    return next(iter(sorted(described)))


def _names_objects(described: Any) -> bool:
    return "object" in str(described)
