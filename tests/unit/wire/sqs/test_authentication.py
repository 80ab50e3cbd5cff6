"""Who signs a request to SQS: keys of users, keys of the settings, and clients without either."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from goqueue.model.credentials import KeyKind
from goqueue.model.session import NOBODY, ListenerRules, Session
from goqueue.tenancy.failures import Failures
from goqueue.wire.carrier.calls import Request
from goqueue.wire.sqs import signatures
from goqueue.wire.sqs.front_end import SqsRules
from tests.integration.sqs import error_of
from tests.simulation.world import World
from tests.unit.wire.http.client import Answer
from tests.unit.wire.sqs.client import ENDPOINT, Node

STRICT = ListenerRules("sqs", must_authenticate=True)
OPEN = ListenerRules("sqs")
BODY = b"{}"
JSON = {"x-amz-target": "AmazonSQS.ListQueues", "content-type": "application/x-amz-json-1.0"}


class Watching:
    """A policy that notes who asks."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def allows(self, session: Session, action: object, resource: object) -> bool:
        self.seen.append(session.principal)
        return True


class Desk:
    def __init__(self, rules: ListenerRules, keys: dict[str, str] | None = None) -> None:
        self.world = World()
        self.node = Node(self.world, SqsRules(access_keys=keys or {}))
        self.node.listener = rules
        self.users = self.world.broker.gate.users
        self.world.wait(self.users.create(NOBODY, user="alice", password=None))
        made = self.users.create_key(
            NOBODY, user="alice", kind=KeyKind.ACCESS, expires_ms=0, description=""
        )
        made_key = self.world.wait(made)
        self.key_id, self.secret = made_key.key.id, made_key.secret
        self.policy = self.world.broker.gate.policy = Watching()

    def boto3(self, key: str = "", secret: str = "") -> Any:
        return self.node.boto3(key=key or self.key_id, secret=secret or self.secret)

    def who(self, sqs: Any) -> str:
        """The principal that a call of a client reaches the gate with."""
        self.policy.seen.clear()
        sqs.create_queue(QueueName="orders")
        return self.policy.seen[0]

    def send(self, headers: dict[str, str], body: bytes = BODY) -> Answer:
        return self.node.ask(body, headers=headers)

    def forgive(self) -> None:
        """Forget failures, which would make the next request wait."""
        self.world.broker.gate.authentication._failures = Failures()

    def sign(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The headers of a signed request."""
        sent = AWSRequest("POST", f"{ENDPOINT}/", data=BODY, headers={**JSON, **(extra or {})})
        SigV4Auth(Credentials(self.key_id, self.secret), "sqs", "us-east-1").add_auth(sent)
        return {name.lower(): str(value) for name, value in sent.headers.items()}


def claim_of(headers: dict[str, str]) -> signatures.Claim | None:
    named = {name.encode(): value.encode() for name, value in headers.items()}
    return signatures.claim_of(Request("POST", "/", headers=named))


@pytest.fixture(autouse=True)
def same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have botocore sign with the time at which a simulation begins."""
    began = datetime.fromtimestamp(World().broker.clock.wall_ms() / 1000, UTC)
    now = began.replace(tzinfo=None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: now)


def test_a_signature_gives_the_session_of_its_user() -> None:
    for rules in (STRICT, OPEN):
        desk = Desk(rules)
        assert desk.who(desk.boto3()) == "User:alice"
        shown = desk.users.show_key(NOBODY, key_id=desk.key_id)
        assert shown.last_used_ms > 0


def test_a_key_of_the_settings_is_the_user_of_its_name() -> None:
    desk = Desk(OPEN, {"AKIDEXAMPLE": "a secret"})
    assert desk.who(desk.boto3("AKIDEXAMPLE", "a secret")) == "User:AKIDEXAMPLE"
    assert desk.who(desk.boto3()) == "User:alice"


def test_on_an_open_listener_other_keys_are_anonymous() -> None:
    desk = Desk(OPEN)
    assert desk.who(desk.boto3("testing", "testing")) == "User:ANONYMOUS"
    assert desk.send({**JSON, "authorization": "Basic abc"}).status == 200
    assert desk.send(JSON).status == 200


@pytest.mark.parametrize("place", ["strict", "keys"])
def test_where_signatures_are_required_others_are_refused(place: str) -> None:
    desk = Desk(STRICT) if place == "strict" else Desk(OPEN, {"AKIDEXAMPLE": "a secret"})
    assert error_of(desk.boto3("testing", "testing").list_queues)[1] == 403
    assert error_of(desk.boto3(secret="other").list_queues)[1] == 403
    for headers, code in (
        (JSON, "MissingAuthenticationToken"),
        ({**JSON, "authorization": "Basic abc"}, "IncompleteSignature"),
        ({**JSON, "authorization": "Bearer abc"}, "IncompleteSignature"),
    ):
        answer = desk.send(headers)
        assert answer.status in (400, 403)
        assert code in answer.headers["x-amzn-query-error"]
    assert desk.policy.seen == []


def test_a_wrong_secret_is_refused_on_an_open_listener_too() -> None:
    desk = Desk(OPEN)
    assert error_of(desk.boto3(secret="other").list_queues)[1] == 403
    desk.world.wait(desk.users.delete_key(NOBODY, key_id=desk.key_id))
    assert error_of(desk.boto3().list_queues)[1] == 403, "it is no anonymous client"


def test_a_disabled_user_cannot_sign() -> None:
    desk = Desk(STRICT)
    sqs = desk.boto3()
    sqs.list_queues()
    desk.world.wait(desk.users.disable(NOBODY, user="alice"))
    assert error_of(sqs.list_queues)[1] == 403


def test_a_disabled_user_cannot_sign_with_a_key_of_the_settings() -> None:
    desk = Desk(OPEN, {"alice": "a secret"})
    sqs = desk.boto3("alice", "a secret")
    sqs.list_queues()
    desk.world.wait(desk.users.disable(NOBODY, user="alice"))
    assert error_of(sqs.list_queues)[1] == 403


def test_what_decides_the_action_must_be_signed() -> None:
    desk = Desk(STRICT)
    headers = desk.sign()
    assert desk.send(headers).status == 200
    names = headers["authorization"]
    assert "x-amz-target" in names
    assert desk.send({**headers, "x-amz-target": "AmazonSQS.CreateQueue"}).status == 403
    assert desk.send({**headers, "x-amz-other": "unsigned"}).status == 403
    assert desk.send(headers, b'{"MaxResults": 1}').status == 403


def test_a_body_that_is_not_signed_is_refused() -> None:
    desk = Desk(STRICT)
    headers = desk.sign({"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    answer = desk.send(headers)
    assert answer.status == 403
    assert "UNSIGNED-PAYLOAD" in answer.json["message"]


def test_a_security_token_is_signed_and_ignored() -> None:
    desk = Desk(STRICT)
    assert (
        desk.send(desk.sign({"X-Amz-Security-Token": "a token of another service"})).status == 200
    )


def test_a_presigned_address_gives_a_session() -> None:
    desk = Desk(STRICT)
    sent = AWSRequest("GET", f"{ENDPOINT}/?Action=ListQueues")
    signer = SigV4QueryAuth(Credentials(desk.key_id, desk.secret), "sqs", "us-east-1", expires=60)
    signer.add_auth(sent)
    target = sent.prepare().url.removeprefix(ENDPOINT)
    assert desk.node.ask(b"", headers={}, method="GET", target=target).status == 200
    desk.world.run_for(61_000)
    assert desk.node.ask(b"", headers={}, method="GET", target=target).status == 403


def test_many_wrong_signatures_make_a_client_wait() -> None:
    desk = Desk(STRICT)
    wrong = desk.boto3(secret="other")
    errors = {error_of(wrong.list_queues)[0] for _ in range(10)}
    assert "RequestThrottled" in errors
    assert error_of(desk.boto3().list_queues)[0] == "RequestThrottled"
    desk.world.run_for(60_000)
    assert desk.who(desk.boto3())


def test_a_wrong_clock_is_not_counted_as_an_attempt() -> None:
    desk = Desk(STRICT)
    sqs = desk.boto3()
    desk.world.run_for(16 * 60_000)
    for _ in range(20):
        code, status, _ = error_of(sqs.list_queues)
        assert (code != "RequestThrottled", status) == (True, 403)


def test_nonsense_in_signed_headers_is_refused_cleanly() -> None:
    desk = Desk(STRICT)
    good = {"host": "goqueue.test:9324", **desk.sign()}
    chance = random.Random(21)
    refused = 0
    for _ in range(300):
        headers = dict(good)
        name = chance.choice(["authorization", "x-amz-date", "host", "x-amz-target"])
        text = bytearray(headers[name].encode())
        at = chance.randrange(len(text))
        noise = bytes(chance.choice(range(32, 127)) for _ in range(chance.randrange(4)))
        text[at : at + chance.randrange(1, 9)] = noise
        headers[name] = text.decode()
        desk.forgive()
        answer = desk.send(headers)
        if answer.status == 200:
            assert claim_of(headers) == claim_of(good), "only blanks and the like differ"
        else:
            assert answer.status in (400, 403, 404), answer
            refused += 1
    assert refused > 200
