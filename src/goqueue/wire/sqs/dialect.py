"""SQS over HTTP: two protocols on one listener, distinguished by the request.

A JSON request has its action in a header, a Query request in its form. Each gets a response in its
own protocol, errors included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from goqueue.model.errors import GoQueueError
from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.calls import Request, Response
from goqueue.wire.carrier.credentials import AUTHORIZATION, Authenticator
from goqueue.wire.carrier.routing import Operation
from goqueue.wire.sqs import json_codec, query_codec, signatures
from goqueue.wire.sqs.authenticating import SignatureAuthenticator
from goqueue.wire.sqs.errors import InvalidAction, MissingAction, UnknownOperation, told
from goqueue.wire.sqs.front_end import SqsFrontEnd
from goqueue.wire.sqs.ids import Ids
from goqueue.wire.sqs.message_attributes import read_trace
from goqueue.wire.sqs.names import Site
from goqueue.wire.sqs.shapes import SHAPES

ACTION = "Action"  # the parameter with the action of a request
_TARGET = b"x-amz-target"
_PREFIX = "AmazonSQS."
_XML = b"text/xml"
_TRACE = b"x-amzn-trace-id"
_NOT_OF_A_QUEUE = ("CreateQueue", "ListQueues")  # these are not sent to the URL of a queue


@dataclass(frozen=True, slots=True)
class Asked:
    """A decoded request: the input of its action, and the address that the client used."""

    body: Any
    base_url: str  # the start of queue URLs
    site: Site
    trace: str | None = None

    @property
    def trace_header(self) -> bytes:
        """What names the trace of the request, or of its first message; empty if nothing does."""
        text = self.trace or getattr(self.body, "trace_header", "")
        return str(text).encode(errors="replace")

    @property
    def wait_ms(self) -> int | None:
        """How long the client lets the request wait; None if the queue decides."""
        seconds: int | None = getattr(self.body, "wait_time_seconds", None)
        return None if seconds is None else seconds * 1_000

    def url_of(self, name: str) -> str:
        """The URL of a queue as this client reaches it."""
        return f"{self.base_url}/{self.site.account}/{name}"


class SqsDialect:
    """Decodes requests and encodes responses."""

    def __init__(
        self,
        operations: Mapping[str, Operation],
        *,
        site: Site,
        random: Random,
    ) -> None:
        self._operations = operations
        self._site = site
        self._request_ids = Ids(random)

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """No path is a route: the path alone never identifies an action."""
        raise MissingAction

    def find_action(self, request: Request) -> Operation:
        """Find the action of a request; the fields of a form become its parameters."""
        target = request.header(_TARGET).decode("latin-1")
        if target:
            action = target.removeprefix(_PREFIX)
            request.parameters = {ACTION: action}
        else:
            request.parameters = query_codec.read_form(request.query, request.body)
            action = request.parameters.get(ACTION, "")
            if not action and request.method == "GET":
                raise UnknownOperation
            if action in _NOT_OF_A_QUEUE and _is_of_queue(request):
                raise InvalidAction(action)
        operation = self._operations.get(action)
        if operation is None:
            raise InvalidAction(action) if action else MissingAction
        return operation

    def arguments(self, operation: Operation, request: Request) -> Asked:
        shape, _ = SHAPES[operation.name]
        if _is_json(request):
            body = json_codec.decode(request.body, shape)
        else:
            body = query_codec.decode(request.parameters, shape)
            # Query requests may be sent to the URL of the queue itself.
            if getattr(body, "queue_url", "") is None and _is_of_queue(request):
                body.queue_url = request.path
        self._site.check_region(signatures.region_of(request) or "")
        return Asked(body, _base_url(request), self._site, read_trace(request.header(_TRACE)))

    def answer(self, request: Request, value: Any) -> Response:
        request_id = self._request_ids.next()
        head = b"x-amzn-requestid: %s\r\n" % request_id.encode("ascii")
        if _is_json(request):
            return Response(200, json_codec.MEDIA_TYPE, json_codec.encode_answer(value), head)
        action = request.parameters[ACTION]
        return Response(200, _XML, query_codec.encode_answer(action, value, request_id), head)

    def refuse(self, request: Request, error: GoQueueError) -> Response:
        refusal = told(error)
        request_id = self._request_ids.next()
        head = b"x-amzn-requestid: %s\r\n" % request_id.encode("ascii")
        if isinstance(refusal, UnknownOperation) and _TARGET not in request.headers:
            return Response(refusal.status, _XML, b"<UnknownOperationException/>", head)
        if _is_json(request):
            whose = "Sender" if refusal.is_of_sender else "Receiver"
            head += f"x-amzn-query-error: {refusal.query_name};{whose}\r\n".encode("ascii")
            body = json_codec.encode_error(refusal)
            return Response(refusal.status, json_codec.MEDIA_TYPE, body, head)
        return Response(refusal.status, _XML, query_codec.encode_error(refusal, request_id), head)


class SqsApplication(Application):
    """The application behind the SQS listener."""

    has_pages = False  # A GET can change something here.
    checks_all = True  # A signature may be in the query, and may be needed on every listener.

    def __init__(self, front: SqsFrontEnd) -> None:
        operations = {one.name: one for one in front.operations}
        rules = front.rules
        self._sqs = SqsDialect(operations, site=rules.site, random=front.random)
        self._keys = dict(rules.access_keys)
        super().__init__(front, self._sqs)

    def authenticator(self, client: ConnectedClient, session: Session) -> Authenticator:
        authentication = self.front.gate.authentication
        return SignatureAuthenticator(authentication, client, session, self._keys, self.clock)

    def code_of(self, error: GoQueueError) -> str:
        return told(error).name

    def has_credentials(self, headers: Mapping[bytes, bytes], url: bytes) -> bool:
        return AUTHORIZATION in headers or signatures.IN_QUERY in url

    def find(self, request: Request) -> Operation:
        request.dialect = self._sqs
        return self._sqs.find_action(request)


def _is_of_queue(request: Request) -> bool:
    """Whether the request was sent to the URL of a queue: an account and a name."""
    return request.path.count("/") > 1


def _is_json(request: Request) -> bool:
    """Whether to respond in JSON; this is also the default for malformed requests."""
    is_target = _TARGET in request.headers
    return is_target or not request.headers or b"json" in request.header(b"content-type")


def _base_url(request: Request) -> str:
    is_https = request.is_encrypted or request.header(b"x-forwarded-proto") == b"https"
    scheme = "https" if is_https else "http"
    host = request.header(b"host").decode("latin-1") or "localhost"
    return f"{scheme}://{host}"
