"""Bounds the work that a JSON Schema can cause per payload, before the first payload.

Validators of JSON Schema try every branch of `anyOf` and follow every `$ref`. A few lines can
double the work with each branch, or with each level of the payload, and no validator can be
interrupted. Schemas that grow by branches are refused; for those that grow by levels the depth of
payloads is bounded, so that neither can block a broker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.formats.budget import DEPTH_MAX
from goqueue.schemas.formats.json_schema.references import Node, SchemaIndex

EVALUATIONS_MAX = 200_000  # of schemas, for one value without what is inside it
PATHS_MAX = 100_000_000  # through a recursive schema, from the root of a payload to a leaf

# Keywords whose schemas are applied to the same value, and those applied to what is inside it.
_SAME_ONE = ("not", "if", "then", "else")
_SAME_MANY = ("allOf", "anyOf", "oneOf")
_SAME_NAMED = ("dependentSchemas", "dependencies")
_INSIDE_ONE = (
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
)
_INSIDE_MANY = ("prefixItems", "items")
_INSIDE_NAMED = ("properties", "patternProperties")


def payload_depth(document: Node, schema_index: SchemaIndex, *, limit: int) -> int:
    """The allowed depth of a payload; raise `InvalidSchema` if any depth costs too much."""
    nodes = list(_reachable(document, schema_index))
    edges = {id(node): [id(other) for other in _next(node, schema_index)] for node in nodes}
    cyclic = _inner_part(edges)
    costs = _Costs(schema_index, cyclic)
    for node in nodes:
        costs.of(node)
    branching = max((costs.ways_inside(node) for node in nodes if id(node) in cyclic), default=1)
    if branching <= 1:
        return limit
    return min(limit, max(2, int(math.log(PATHS_MAX) / math.log(branching))))


class _Costs:
    def __init__(self, schema_index: SchemaIndex, cyclic: set[int]) -> None:
        self._schema_index = schema_index
        self._cyclic = cyclic
        self._known: dict[int, int] = {}
        self._ways: dict[int, dict[str, int]] = {}
        self._active: set[int] = set()

    def of(self, node: Node, depth: int = 0) -> int:
        """Schemas evaluated for one value, counting each path to each of them."""
        if not isinstance(node, dict):
            return 1
        if id(node) in self._known:
            return self._known[id(node)]
        if id(node) in self._active:
            raise InvalidSchema("The schema refers to itself without going into the value.")
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"References are nested more than {DEPTH_MAX} levels deep.")
        self._active.add(id(node))
        cost = 1 + sum(self.of(inner, depth + 1) for inner in _applied(node, self._schema_index))
        self._active.discard(id(node))
        if cost > EVALUATIONS_MAX:
            raise InvalidSchema(
                f"Checking one value takes more than {EVALUATIONS_MAX} steps; the schema has too "
                "many branches inside branches."
            )
        self._known[id(node)] = cost
        return cost

    def ways_inside(self, node: Node) -> int:
        """How often an inner value is checked when the outer one is checked once."""
        return max(self._inner(node).values(), default=1)

    def _inner(self, node: Node) -> dict[str, int]:
        """For each member of a value, how many recursive schemas apply to it."""
        if not isinstance(node, dict):
            return {}
        if id(node) not in self._ways:
            ways: dict[str, int] = {}
            for name, inner in _inside(node):
                if id(inner) in self._cyclic:
                    ways[name] = ways.get(name, 0) + 1
            for inner in _applied(node, self._schema_index):
                for name, count in self._inner(inner).items():
                    ways[name] = ways.get(name, 0) + count
            self._ways[id(node)] = ways
        return self._ways[id(node)]


def _inner_part(edges: dict[int, list[int]]) -> set[int]:
    """The schemas on cycles and between them: what is left when nodes without incoming or without
    outgoing edges are removed repeatedly."""
    backward: dict[int, list[int]] = {node: [] for node in edges}
    for source, targets in edges.items():
        for target in targets:
            backward[target].append(source)
    return _without_ends(backward, edges, _without_ends(edges, backward, set(edges)))


def _without_ends(
    edges: dict[int, list[int]], backward: dict[int, list[int]], alive: set[int]
) -> set[int]:
    degrees = {node: sum(target in alive for target in edges[node]) for node in alive}
    ends = [node for node, degree in degrees.items() if degree == 0]
    while ends:
        end = ends.pop()
        alive.discard(end)
        for source in backward[end]:
            if source in alive:
                degrees[source] -= 1
                if degrees[source] == 0:
                    ends.append(source)
    return alive


def _reachable(document: Node, schema_index: SchemaIndex) -> Iterator[Node]:
    seen: set[int] = set()
    stack: list[Node] = [document]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack += _next(node, schema_index)


def _next(node: Node, schema_index: SchemaIndex) -> list[Node]:
    if not isinstance(node, dict):
        return []
    return [*_applied(node, schema_index), *(inner for _, inner in _inside(node))]


def _applied(node: dict[str, object], schema_index: SchemaIndex) -> Iterator[Node]:
    """The schemas that are applied to the same value."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        target = node.get(keyword)
        if isinstance(target, str) and not target.startswith(
            ("http://json-schema.org/", "https://json-schema.org/")
        ):
            yield schema_index.resolve(target, node)
    for keyword in _SAME_ONE:
        yield from _schemas(node.get(keyword))
    for keyword in _SAME_MANY:
        for value in _list(node.get(keyword)):
            yield from _schemas(value)
    for keyword in _SAME_NAMED:
        for value in _dict(node.get(keyword)).values():
            yield from _schemas(value)


def _inside(node: dict[str, object]) -> Iterator[tuple[str, Node]]:
    """The schemas that are applied to the members of a value, by the name of the member."""
    for keyword in _INSIDE_ONE:
        for inner in _schemas(node.get(keyword)):
            yield "*", inner
    for keyword in _INSIDE_MANY:
        for index, value in enumerate(_list(node.get(keyword))):
            for inner in _schemas(value):
                yield f"#{index}", inner
    for keyword in _INSIDE_NAMED:
        for name, value in _dict(node.get(keyword)).items():
            for inner in _schemas(value):
                yield name if keyword == "properties" else "*", inner


def _schemas(value: object) -> Iterator[Node]:
    if isinstance(value, dict):
        yield value


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
