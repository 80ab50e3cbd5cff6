"""The rows of the table of operations, and the router from paths to operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier import problems
from goqueue.wire.carrier.bodies import Body, Nothing
from goqueue.wire.carrier.calls import BodyDecoder, QueryDecoder
from goqueue.wire.carrier.problems import MethodNotAllowed, UnknownRoute

Handler = Callable[[Any, Any, Any], Any]
_PARAMETER = re.compile(r"{([a-z_]+)}")
_WITH_BODY = ("POST", "PUT", "PATCH")

# Any operation that uses the disk may find it full or broken.
READING = (errors.StorageFailed,)
STORING = (errors.StorageFull, errors.StorageFailed)
# In a cluster another node may have to answer.
ROUTED = (errors.NoOwner, errors.RequestTimedOut, errors.UpgradeInProgress)


@dataclass(frozen=True)
class Operation:
    """One row of the table: method, path, request, response and possible errors.

    `request` is the body of POST, PUT and PATCH and the query of the others.
    """

    name: str
    method: str
    path: str
    handler: Handler
    summary: str
    area: str
    request: type[Body] = Nothing
    answer: Any = None
    status: int = 200
    errors: tuple[type[GoQueueError], ...] = ()
    is_waiting: bool = False  # may respond late, so disconnects are detected meanwhile
    is_stream: bool = False
    is_early: bool = False  # served even before the node has joined its cluster
    is_open: bool = False  # about health: needs no credentials, unless the settings say so
    is_public: bool = False  # the same for everybody, so it needs no credentials
    has_public_page: bool = False  # the same for what a browser gets when its user opens a page
    are_metrics: bool = False  # needs no credentials if the settings say so
    media_types: tuple[str, ...] = ()  # of an answer that is text
    other_answers: dict[int, Any] = field(default_factory=dict)
    example: dict[str, Any] | None = None

    @cached_property
    def has_body(self) -> bool:
        return self.method in _WITH_BODY

    @cached_property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)

    @cached_property
    def decoder(self) -> BodyDecoder | QueryDecoder:
        return BodyDecoder(self.request) if self.has_body else QueryDecoder(self.request)

    @cached_property
    def all_errors(self) -> list[type[GoQueueError]]:
        """The errors in the table, and those that any request of this form can cause."""
        common: list[type[GoQueueError]] = [
            problems.InvalidField,
            problems.InternalError,
            problems.UnknownHost,
            problems.ForeignOrigin,
            errors.AuthenticationRequired,
            errors.AuthenticationFailed,
            errors.TooManyFailures,
            errors.AccessDenied,
            errors.QuotaExceeded,
        ]
        if self.has_body:
            common += [
                problems.MalformedJson,
                problems.BodyTooLarge,
                problems.UnsupportedMediaType,
                problems.ReceiveMemoryFull,
            ]
        if self.is_waiting:
            common.append(problems.NodeStopping)
        return list(dict.fromkeys([*self.errors, *common]))


class _Node:
    """One segment of a path: the next segments, and the operations if it is the last."""

    __slots__ = ("methods", "parameter", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.methods: dict[str, Operation] = {}


class Routes:
    """Finds operations by the segments of a path; an escaped slash stays inside its segment."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            self._add(operation)

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """The operation, and the parts of the path that are its parameters, still escaped."""
        node, values = self._root, []
        for segment in path.split("/"):
            known = node.words.get(segment)
            if known is None:
                known = node.parameter
                if known is None or not segment:
                    raise UnknownRoute(path)
                values.append(segment)
            node = known
        if not node.methods:
            raise UnknownRoute(path)
        operation = node.methods.get(method)
        if operation is None:
            raise MethodNotAllowed(method, sorted(node.methods))
        return operation, dict(zip(operation.parameters, values, strict=True))

    def _add(self, operation: Operation) -> None:
        node = self._root
        for segment in operation.path.split("/"):
            if _PARAMETER.fullmatch(segment):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.words.setdefault(segment, _Node())
        assert operation.method not in node.methods, f"{operation.name} is in the table twice"
        node.methods[operation.method] = operation
        if operation.method == "GET":
            node.methods.setdefault("HEAD", operation)
