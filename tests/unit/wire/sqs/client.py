"""boto3 without sockets: what it would send goes into a connection, and what comes out back."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from goqueue.model.session import ListenerRules
from goqueue.wire.carrier.front_end import Limits
from goqueue.wire.sqs.dialect import SqsApplication
from goqueue.wire.sqs.front_end import SqsFrontEnd, SqsRules
from goqueue.wire.sqs.operations import OPERATIONS
from tests.integration.sqs import REGION, Queue, connect
from tests.simulation.world import World
from tests.unit.wire.http.client import Answer, Wire

ENDPOINT = "http://goqueue.test:9324"


class Node:
    """The SQS listener of a node in a simulated world."""

    def __init__(self, world: World, rules: SqsRules | None = None) -> None:
        self.world = world
        self.front = SqsFrontEnd(world.broker.gate, Limits(), OPERATIONS, rules or SqsRules())
        self.application = SqsApplication(self.front)
        self.listener: ListenerRules | None = None

    def boto3(
        self,
        protocol: str = "json",
        *,
        key: str = "id",
        secret: str = "secret",
        region: str = REGION,
    ) -> Any:
        """A client that speaks one of the protocols to this node."""
        client = connect(ENDPOINT, protocol=protocol, key=key, secret=secret, region=region)
        client._endpoint.http_session = _Session(self)
        return client

    def ask(
        self,
        body: bytes,
        *,
        headers: Mapping[str, str],
        method: str = "POST",
        target: str = "/",
    ) -> Answer:
        """One request on a connection of its own, and its answer."""
        wire = Wire(self.application, self.listener)
        wire.feed(request_bytes(method, target, headers, body))
        self.world.run_until(lambda: bool(wire.answers) and wire.answers[-1].is_whole)
        return wire.answers[-1]


def queue(sqs: Any, name: str = "orders", **attributes: str) -> Queue:
    """A new queue, of the kind that its name says."""
    if name.endswith(".fifo"):
        attributes = {"FifoQueue": "true", **attributes}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return Queue(sqs, url)


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    named = {"host": "goqueue.test:9324", **headers, "content-length": str(len(body))}
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Session:
    """What botocore takes for a pool of connections."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        parts = urlsplit(request.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else bytes(body)
        answer = self._node.ask(body, headers=headers, method=request.method, target=target or "/")
        return AWSResponse(request.url, answer.status, answer.headers, _Body(answer.body))

    def close(self) -> None: ...


class _Body(BytesIO):
    def stream(self, **_: object) -> Any:
        yield self.read()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
