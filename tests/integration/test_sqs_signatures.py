"""A node with access keys answers only whoever signed with one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .conftest import NODE
from .process import Broker
from .sqs import PROTOCOLS, Queue, bodies, connect, error_of

KEYS = {"AKIASHOP": "a/long+secret", "AKIAOTHER": "another-secret"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node that knows two keys."""
    pairs = ",".join(f"{key}:{secret}" for key, secret in KEYS.items())
    node = NODE(tmp_path_factory.mktemp("guarded"), {"sqs.access_keys": pairs})
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens_every_queue(guarded: Broker, protocol: str, key: str) -> None:
    client = connect(guarded.sqs, protocol=protocol, key=key, secret=KEYS[key])
    queue = Queue(client, client.create_queue(QueueName="orders")["QueueUrl"])
    body = "é & + % / ~ 漢字"
    queue.send(body)
    message = queue.receive_one()
    assert bodies([message]) == [body]
    queue.delete(message)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_secret_is_refused(guarded: Broker, protocol: str) -> None:
    client = connect(guarded.sqs, protocol=protocol, key="AKIASHOP", secret="wrong")
    assert error_of(client.list_queues)[:2] == ("SignatureDoesNotMatch", 403)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unknown_key_is_refused(guarded: Broker, protocol: str) -> None:
    client = connect(guarded.sqs, protocol=protocol, key="AKIANOBODY", secret="x")
    assert error_of(client.list_queues)[:2] == ("InvalidClientTokenId", 403)


def test_a_request_without_a_signature_is_refused(guarded: Broker) -> None:
    answer = httpx.post(guarded.sqs, data={"Action": "ListQueues", "Version": "2012-11-05"})
    assert answer.status_code == 403
    assert "<Code>MissingAuthenticationToken</Code>" in answer.text


def test_what_was_signed_cannot_be_changed(guarded: Broker) -> None:
    seen: list[Any] = []
    client = connect(guarded.sqs, key="AKIASHOP", secret=KEYS["AKIASHOP"])
    client.meta.events.register("before-send.sqs", lambda request, **_: seen.append(request))
    url = client.create_queue(QueueName="changed")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="pay 1")
    signed = seen[-1]
    headers = {name: _text(value) for name, value in signed.headers.items()}
    changed = signed.body.replace(b"pay 1", b"pay 9")
    assert changed != signed.body
    answer = httpx.post(signed.url, content=changed, headers=headers)
    assert answer.status_code == 403
    assert httpx.post(signed.url, content=signed.body, headers=headers).status_code == 200


def test_an_address_can_be_signed_and_handed_on(guarded: Broker) -> None:
    client = connect(guarded.sqs, protocol="query", key="AKIASHOP", secret=KEYS["AKIASHOP"])
    url = client.create_queue(QueueName="handed-on")["QueueUrl"]
    address = client.generate_presigned_url(
        "send_message", Params={"QueueUrl": url, "MessageBody": "by address"}, HttpMethod="GET"
    )
    assert httpx.get(address).status_code == 200
    assert httpx.get(address.replace("by%20address", "by%20nobody")).status_code == 403
    assert bodies(Queue(client, url).receive_all(1)) == ["by address"]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
