"""The conventions of the schema registry API: media types, query flags, numeric error codes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from goqueue.broker.gate.areas.schemas import CONTEXT_DEFAULT, Subject, read_subject
from goqueue.model import errors
from goqueue.model.errors import GoQueueError, SchemaRefused
from goqueue.wire.carrier.calls import QUERY_FIELDS_MAX, Call, Request, Response, encode
from goqueue.wire.carrier.problems import (
    HttpError,
    InvalidField,
    MethodNotAllowed,
    UnknownRoute,
    UnsupportedMediaType,
    shown,
    status_of,
)
from goqueue.wire.carrier.routing import Operation, Routes
from goqueue.wire.http.bodies.registry import (
    DENIED,
    INVALID_SCHEMA,
    NUMBERS,
    STORE_FAILED,
    TIMED_OUT,
)
from goqueue.wire.http.fields import INT32_MAX

V1_JSON = b"application/vnd.schemaregistry.v1+json"
_ANSWER_TYPES = (V1_JSON, b"application/vnd.schemaregistry+json", b"application/json")
_BODY_TYPES = frozenset({*_ANSWER_TYPES, b"application/octet-stream"})
_CURL_DEFAULT = b"application/x-www-form-urlencoded"
_WILDCARDS = frozenset({b"*/*", b"application/*"})
_TAKES_NEW_FIELDS = b"confluent-accept-unknown-properties"


class MissingBody(HttpError):
    code = "missing_body"
    status = 422

    def __init__(self) -> None:
        super().__init__("The body is missing; send a JSON object.")


class NotAcceptable(HttpError):
    code = "not_acceptable"
    status = 406

    def __init__(self) -> None:
        super().__init__("HTTP 406 Not Acceptable")


class NothingHere(HttpError):
    """The path contains something that cannot exist, such as an id that is not a number."""

    code = "not_found"
    status = 404

    def __init__(self) -> None:
        super().__init__("HTTP 404 Not Found")


class Given:
    """A request without its path: its body, its flags, and its context."""

    __slots__ = ("_query", "body", "context", "takes_new_fields")

    def __init__(
        self,
        query: dict[str, list[str]],
        body: Any,
        context: str,
        *,
        takes_new_fields: bool = False,
    ) -> None:
        self._query = query
        self.body = body
        self.context = context
        # Sent by clients that ignore unknown fields; older ones may fail on them.
        self.takes_new_fields = takes_new_fields

    def flag(self, *names: str) -> bool:
        """Whether one of these flags is true; clients write that in several ways."""
        return any(self.text(name).lower() == "true" for name in names)

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            number = INT32_MAX + 1
        if not -1 <= number <= INT32_MAX:
            raise InvalidField(f"{name}={text[:100]} is not a whole number.", field=name)
        return number

    def text(self, name: str) -> str:
        return self._query.get(name, [""])[-1]

    def texts(self, name: str) -> list[str]:
        return self._query.get(name, [])

    def stretch(self, *, most: int) -> tuple[int, int]:
        """The offset and the length of the requested part of a list."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return offset, most if limit < 0 else min(limit, most)

    def page(self, found: Sequence[Any], *, most: int) -> list[Any]:
        """The requested part of a list."""
        offset, limit = self.stretch(most=most)
        return list(found[offset : offset + limit])

    @property
    def form(self) -> str:
        """The requested format of the schema text; empty for the default."""
        return self.text("format").strip()

    def subject(self, call: Call) -> Subject:
        return read_subject(call.text("subject"), within=self.context)


class RegistryDialect:
    """Serves the registry below a prefix of the path, which may be empty."""

    def __init__(self, operations: Sequence[Operation], prefix: str = "") -> None:
        self._routes = Routes(operations)
        self._prefix = prefix

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        rest = path.removeprefix(self._prefix)
        context = ""
        if rest.startswith("/contexts/"):
            # A client may be configured with the address of one context only.
            context, _, rest = rest.removeprefix("/contexts/").partition("/")
            rest = f"/{rest}"
        if len(rest) > 1:
            rest = rest.rstrip("/")
        operation, parameters = self._routes.find(method, rest or "/")
        return operation, {**parameters, "context": context} if context else parameters

    def arguments(self, operation: Operation, request: Request) -> Given:
        body = None
        _check_accept(request)
        if operation.has_body:
            _check_media_type(request)
            if not request.body:
                raise MissingBody
            body = operation.decoder(request.body)
        return Given(
            _read_query(request.query),
            body,
            _context(request.parameters.get("context", "")),
            takes_new_fields=request.header(_TAKES_NEW_FIELDS).strip().lower() == b"true",
        )

    def answer(self, request: Request, value: Any) -> Response:
        body = value if isinstance(value, bytes) else encode(value)
        return Response(200, _answer_type(request), body)

    def refuse(self, request: Request, error: GoQueueError) -> Response:
        error = shown(error)
        number = number_of(error)
        status = number if number < 1000 else number // 100
        message = str(error)
        if isinstance(error, UnknownRoute | MethodNotAllowed):
            message = f"HTTP {status} {HTTPStatus(status).phrase}"
        body = encode({"error_code": number, "message": message})
        return Response(status, _answer_type(request), body)


def number_of(error: GoQueueError) -> int:
    if isinstance(error, SchemaRefused):
        return NUMBERS[error.reason]
    if isinstance(error, errors.InvalidSchema):
        return INVALID_SCHEMA
    if isinstance(error, errors.RequestTimedOut):
        return TIMED_OUT
    if isinstance(error, errors.StorageFull | errors.StorageFailed):
        return STORE_FAILED
    if isinstance(error, errors.AccessDenied):
        return DENIED
    return status_of(error)


def _read_query(data: bytes) -> dict[str, list[str]]:
    """Decode the query, ignoring unknown parameters, which clients of other versions send."""
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError as error:
        raise InvalidField(f"The query cannot be read: {error}.") from None
    query: dict[str, list[str]] = {}
    for name, text in pairs:
        query.setdefault(name, []).append(text)
    return query


def _context(text: str) -> str:
    name = unquote(text).strip(":")
    if not name or name == CONTEXT_DEFAULT:
        return CONTEXT_DEFAULT
    return name if name.startswith(".") else f".{name}"


def _answer_type(request: Request) -> bytes:
    """The first of our media types that the client accepts, or the default."""
    for wanted in request.header(b"accept").split(b","):
        name = wanted.partition(b";")[0].strip().lower()
        if name in _ANSWER_TYPES:
            return name
    return V1_JSON


def _check_accept(request: Request) -> None:
    """Refuse clients that accept none of our media types."""
    accepted = request.header(b"accept")
    names = {one.partition(b";")[0].strip().lower() for one in accepted.split(b",")}
    if accepted.strip() and not names & _WILDCARDS and names.isdisjoint(_ANSWER_TYPES):
        raise NotAcceptable


def _check_media_type(request: Request) -> None:
    name = request.header(b"content-type").partition(b";")[0].strip().lower()
    if name in _BODY_TYPES:
        return
    # `curl -d` sends JSON with another content type; a browser always sends its origin.
    if name not in (b"", _CURL_DEFAULT) or request.header(b"origin"):
        raise UnsupportedMediaType(name.decode("latin-1"))
