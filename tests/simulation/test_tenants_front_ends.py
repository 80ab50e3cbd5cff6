"""No request of any protocol by one tenant shows a name or a byte of another.

The front ends are the real ones, without sockets, and clients authenticate with keys.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from random import Random
from typing import Any

import botocore.auth
import pytest

from goqueue.model.credentials import KeyKind
from goqueue.model.session import ListenerRules, Session
from goqueue.wire.http.operations import OPERATIONS
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from goqueue.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.integration.sqs import error_of
from tests.simulation.kafka_peer import KafkaPeer
from tests.simulation.tenant_calls import leaked
from tests.simulation.test_tenants import OPERATOR, SESSIONS, Tenants
from tests.simulation.world import World
from tests.unit.wire.http.client import Client
from tests.unit.wire.kafka import requests
from tests.unit.wire.kafka.requests import Subject, records_for, request_of
from tests.unit.wire.sqs.client import Node as Queues

STRICT_KAFKA = ListenerRules("kafka", must_authenticate=True, sasl_mechanisms=("PLAIN",))
STRICT_HTTP = ListenerRules("http", must_authenticate=True)
STRICT_SQS = ListenerRules("sqs", must_authenticate=True)
ROUNDS = 3
# They wait for messages, or change who the clients are.
NOT_CALLED = re.compile(r"stream|follow|events|(create|delete|change|set)\w*(User|Tenant|Password)")
NOT_SENT = ("SaslHandshake", "SaslAuthenticate", "ApiVersions")


class Street:
    """One node with three tenants, and a client of each protocol for each of them."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, security__super_users="User:root")
        self.gate = self.world.broker.gate
        self.random = Random(seed)
        self.tenants = Tenants(seed, [self.gate], self.world.wait)
        self.keys: dict[str, str] = {}
        self.access: dict[str, tuple[str, str]] = {}
        for session in SESSIONS:
            self._make_user(session)

    def _make_user(self, session: Session) -> None:
        users, wait = self.gate.users, self.world.wait
        wait(users.create(OPERATOR, user=session.user, password=None, tenant=session.tenant))
        for kind in KeyKind:
            made = wait(
                users.create_key(
                    OPERATOR, user=session.user, kind=kind, expires_ms=0, description=""
                )
            )
            if kind is KeyKind.API:
                self.keys[session.user] = made.secret
            else:
                self.access[session.user] = (made.key.id, made.secret)

    def check(self, session: Session, request: Any, answer: bytes, what: str) -> None:
        found = leaked(session, request, answer)
        assert not found, f"{what} shows {found} to {session.principal}: {answer[:2000]!r}"

    def name(self, session: Session) -> str:
        own = f"zq{session.tenant or 'plain'}q{self.random.randrange(8)}"
        return self.random.choice(["orders", "work", own, own, "~acme~orders"])


@pytest.mark.parametrize("seed", range(2))
def test_http_shows_nothing_of_another_tenant(seed: int) -> None:
    street = Street(seed)
    client = Client(street.world)
    client.rules = STRICT_HTTP
    statuses: dict[str, set[int]] = {}
    for _ in range(ROUNDS):
        for operation in OPERATIONS:
            if NOT_CALLED.search(operation.name):
                continue
            for session in SESSIONS:
                path = re.sub(r"{(\w+)}", lambda _: street.name(session), operation.path)  # noqa: B023
                path = re.sub(r"(partitions|nodes|messages|epochs|offsets)/[^/]+", r"\1/0", path)
                body = getattr(operation, "example", None)
                is_reading = operation.method in ("GET", "HEAD")
                answer = client.send(
                    operation.method,
                    path.replace("~", "%7E"),
                    None if is_reading else body or {},
                    headers={"authorization": f"Bearer {street.keys[session.user]}"},
                )
                assert answer.status not in (401, 500), (operation.name, answer)
                statuses.setdefault(operation.name, set()).add(answer.status // 100)
                street.check(session, [path, json.dumps(body)], answer.body, operation.name)
    assert sum(2 in one for one in statuses.values()) > 40


@pytest.mark.parametrize("seed", range(2))
def test_kafka_shows_nothing_of_another_tenant(seed: int) -> None:
    street = Street(seed)
    ids = [street.gate.topics.get(one, topic="orders").id for one in SESSIONS]
    peers: dict[str, KafkaPeer] = {}

    def peer_of(session: Session) -> KafkaPeer:
        known = peers.get(session.user)
        if known is None or known.is_closed:
            run = street.world.run_until
            known = peers[session.user] = KafkaPeer(street.world.front, run, rules=STRICT_KAFKA)
            known.call("SaslHandshake", 1, SaslHandshakeRequest("PLAIN"))
            login = f"\0{session.user}\0{street.keys[session.user]}".encode()
            done = known.call("SaslAuthenticate", 2, SaslAuthenticateRequest(login))
            assert done.error_code == 0
        return known

    for _ in range(ROUNDS):
        for name in requests._BUILDERS:
            if name in NOT_SENT:
                continue
            for session in SESSIONS:
                api = API_BY_NAME[name]
                subject = Subject(
                    topic=street.name(session),
                    topic_id=street.random.choice(ids),
                    group=street.name(session),
                    consumer_group=street.name(session),
                    transaction=street.name(session),
                )
                version = api.version_max - api.is_latest_unstable
                sent = peer_of(session).frame(api, version, request_of(name, version, subject))
                peer = peer_of(session)
                peer.received = b""
                try:
                    peer.send(sent)
                    street.world.run_until(lambda: peer.has_answer)  # noqa: B023
                except (ConnectionError, AssertionError, TimeoutError):
                    peer._close() if not peer.is_closed else None
                street.check(session, sent, peer.received, name)


def test_kafka_clients_of_two_tenants_use_the_same_names() -> None:
    street = Street(0)
    for session in SESSIONS[:2]:
        peer = KafkaPeer(street.world.front, street.world.run_until, rules=STRICT_KAFKA)
        peer.call("SaslHandshake", 1, SaslHandshakeRequest("PLAIN"))
        login = f"\0{session.user}\0{street.keys[session.user]}".encode()
        peer.call("SaslAuthenticate", 2, SaslAuthenticateRequest(login))
        value = f"zq{session.tenant}q77".encode()
        request = requests.produce_request(9, Subject(), records_for(9, value))
        [topic] = peer.call("Produce", 9, request).responses
        assert (topic.name, topic.partition_responses[0].error_code) == ("orders", 0)
        listed = peer.call("Metadata", 9, requests.metadata.MetadataRequest(topics=None))
        names = {one.name for one in listed.topics}
        assert "orders" in names
        assert all("~" not in one and not one.startswith("__") for one in names)
        missing = requests.produce_request(9, Subject(topic="nope/x"), records_for(9, value))
        [refused] = peer.call("Produce", 9, missing).responses
        assert refused.partition_responses[0].error_code
        assert "~" not in (refused.partition_responses[0].error_message or "")


@pytest.fixture
def same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have botocore sign with the time at which a simulation begins."""
    began = datetime.fromtimestamp(World().broker.clock.wall_ms() / 1000, UTC)
    now = began.replace(tzinfo=None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: now)


@pytest.mark.usefixtures("same_time")
def test_queue_urls_have_the_account_of_the_tenant() -> None:
    street = Street(0)
    queues = Queues(street.world)
    queues.listener = STRICT_SQS
    clients = {}
    urls = {}
    for session in SESSIONS:
        key, secret = street.access[session.user]
        sqs = clients[session.user] = queues.boto3(key=key, secret=secret)
        urls[session.user] = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        own = f"zq{session.tenant or 'plain'}q1"
        sqs.send_message(QueueUrl=urls[session.user], MessageBody=own)
    assert len(set(urls.values())) == 3
    for session in SESSIONS:
        sqs, account = clients[session.user], urls[session.user].split("/")[-2]
        expected = street.gate.tenants.account(session) or "000000000000"
        assert account == expected
        [message] = sqs.receive_message(QueueUrl=urls[session.user])["Messages"]
        assert message["Body"] == f"zq{session.tenant or 'plain'}q1"
        listed = sqs.list_queues()["QueueUrls"]
        assert all(one.split("/")[-2] == account for one in listed)
        found = sqs.get_queue_attributes(QueueUrl=urls[session.user], AttributeNames=["QueueArn"])
        assert found["Attributes"]["QueueArn"].split(":")[4] == account
        for other, url in urls.items():
            if other != session.user:
                code, status, text = error_of(sqs.receive_message, QueueUrl=url)
                assert status in (400, 403, 404), code
                assert leaked(session, url, text) == set()
                if session.tenant:
                    assert code.startswith("AccessDenied")
