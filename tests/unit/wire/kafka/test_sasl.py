"""Connections that must authenticate: what is legal when, and how each mechanism ends."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.broker.gate.authentication import Authentication
from goqueue.loop.promise import promised
from goqueue.model.credentials import KeyKind, ScramMechanism
from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTooLarge
from goqueue.model.session import ListenerRules
from goqueue.wire.kafka import sasl_connection
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.front_end import TURN_LOGINS_MAX, Limits
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.api_versions import ApiVersionsRequest
from goqueue.wire.kafka.messages.metadata import MetadataRequest
from goqueue.wire.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from goqueue.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from goqueue.wire.kafka.sasl_connection import REFUSAL_MS, SaslConnection
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.broker.node import Node

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RULES = ListenerRules("kafka", must_authenticate=True, sasl_mechanisms=MECHANISMS)
PASSWORD = "correct horse"
HELLO = ApiVersionsRequest(client_software_name="peer", client_software_version="1")
VERSIONS = range(3)


class Guarded:
    """A node with the user `ada`, and clients of its listener that requires authentication."""

    def __init__(self, **limits: int) -> None:
        self.node = Node(limits=Limits(**limits))
        self.node.wait(promised(self.node.broker.identities.create_user("ada", PASSWORD)))

    def peer(self, *, rules: ListenerRules = RULES, host: str = "192.0.2.1") -> KafkaPeer:
        run = self.node.run_until
        return KafkaPeer(self.node.front, run, rules=rules, host=host)

    def user(self, name: str) -> None:
        self.node.wait(promised(self.node.broker.identities.create_user(name, PASSWORD)))

    def key(self, **fields: Any) -> Any:
        create = self.node.broker.identities.create_key
        return self.node.wait(promised(create("ada", KeyKind.API, **fields)))

    @property
    def authentication(self) -> Authentication:
        return self.node.broker.gate.authentication


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


def handshake(peer: KafkaPeer, mechanism: str, version: int = 1) -> Any:
    return peer.call("SaslHandshake", version, SaslHandshakeRequest(mechanism))


def authenticate(peer: KafkaPeer, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer = peer.call("SaslAuthenticate", version, SaslAuthenticateRequest(message))
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


def plain(user: str, password: str, identity: str = "") -> bytes:
    return f"{identity}\0{user}\0{password}".encode()


def bearer(token: str, identity: str = "") -> bytes:
    named = f"a={identity}" if identity else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()


def scram_proof(name: str, password: str, first: str, answer: bytes) -> bytes:
    fields = dict(part.split("=", 1) for part in answer.decode().split(","))
    digest = ScramMechanism(name).hash_name
    salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)
    key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={fields['r']}"
    signed = f"{first},{answer.decode()},{final}".encode()
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}".encode()


def log_in(peer: KafkaPeer, mechanism: str, user: str, password: str) -> SaslAuthenticateResponse:
    """The whole of an exchange; its last answer."""
    assert handshake(peer, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return authenticate(peer, plain(user, password))
    if mechanism == "OAUTHBEARER":
        return authenticate(peer, bearer(password))
    first = f"n={user},r=nonce"
    answer = authenticate(peer, f"n,,{first}".encode())
    if answer.error_code:
        return answer
    return authenticate(peer, scram_proof(mechanism, password, first, answer.auth_bytes))


def is_served(peer: KafkaPeer) -> bool:
    """Whether the client can use the broker."""
    return bool(peer.call("Metadata", 12, MetadataRequest(topics=None)).brokers)


def assert_refused(answer: SaslAuthenticateResponse, guarded: Guarded, peer: KafkaPeer) -> None:
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    guarded.node.run_for(1)
    assert peer.is_closed


# Mechanisms


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_the_right_password_is_accepted(guarded: Guarded, mechanism: str) -> None:
    peer = guarded.peer()
    answer = log_in(peer, mechanism, "ada", PASSWORD)
    assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, None, 0)
    assert peer.connection.session.principal == "User:ada"
    assert is_served(peer)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.parametrize("user", ["ada", "nobody"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    guarded: Guarded, mechanism: str, user: str
) -> None:
    peer = guarded.peer()
    answer = log_in(peer, mechanism, user, "wrong horse")
    assert answer.error_message == "The credentials are not valid."
    assert_refused(answer, guarded, peer)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_the_request_works(guarded: Guarded, version: int) -> None:
    peer = guarded.peer()
    handshake(peer, "PLAIN")
    assert authenticate(peer, plain("ada", PASSWORD), version).error_code == 0
    assert is_served(peer)


@pytest.mark.parametrize("name", ["ada", "anything"])
def test_an_api_key_is_a_password(guarded: Guarded, name: str) -> None:
    made = guarded.key()
    peer = guarded.peer()
    assert log_in(peer, "PLAIN", name, made.secret).error_code == 0
    session = peer.connection.session
    assert (session.principal, session.key_id) == ("User:ada", made.key.id)


@pytest.mark.parametrize("identity", ["", "ada"])
def test_an_api_key_is_a_token(guarded: Guarded, identity: str) -> None:
    peer = guarded.peer()
    handshake(peer, "OAUTHBEARER")
    answer = authenticate(peer, bearer(guarded.key().secret, identity))
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert is_served(peer)


@pytest.mark.parametrize("token", ["nonsense", "gqk_aaaa_bbbb", "a.b.c"])
def test_a_wrong_token_is_described_before_it_is_refused(guarded: Guarded, token: str) -> None:
    peer = guarded.peer()
    handshake(peer, "OAUTHBEARER")
    answer = authenticate(peer, bearer(token))
    assert answer.error_code == 0
    assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
    assert not peer.connection.session.is_authenticated
    assert_refused(authenticate(peer, b"\x01"), guarded, peer)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [("PLAIN", plain("ada", PASSWORD, "admin")), ("SCRAM-SHA-256", b"n,a=admin,n=ada,r=x")],
)
def test_nobody_acts_as_another_user(guarded: Guarded, mechanism: str, message: bytes) -> None:
    peer = guarded.peer()
    handshake(peer, mechanism)
    assert_refused(authenticate(peer, message), guarded, peer)


def test_the_holder_of_a_token_does_not_act_as_another_user(guarded: Guarded) -> None:
    peer = guarded.peer()
    handshake(peer, "OAUTHBEARER")
    assert authenticate(peer, bearer(guarded.key().secret, "admin")).auth_bytes
    assert_refused(authenticate(peer, b"\x01"), guarded, peer)


def test_a_disabled_user_is_refused(guarded: Guarded) -> None:
    identities = guarded.node.broker.identities
    made = guarded.key()
    guarded.node.wait(promised(identities.disable_user("ada", is_disabled=True)))
    for mechanism, secret in [*((one, PASSWORD) for one in MECHANISMS[:3]), ("PLAIN", made.secret)]:
        peer = guarded.peer()
        assert_refused(log_in(peer, mechanism, "ada", secret), guarded, peer)


def test_an_unknown_mechanism_is_answered_with_those_that_exist(guarded: Guarded) -> None:
    peer = guarded.peer()
    answer = handshake(peer, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == list(MECHANISMS)
    guarded.node.run_for(1)
    assert peer.is_closed


def test_a_mechanism_that_is_not_enabled_is_not_offered(guarded: Guarded) -> None:
    rules = ListenerRules("kafka", must_authenticate=True, sasl_mechanisms=("SCRAM-SHA-512",))
    answer = handshake(guarded.peer(rules=rules), "PLAIN")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-512"]


# What is legal when


def test_versions_are_answered_before_authentication(guarded: Guarded) -> None:
    peer = guarded.peer()
    answer = peer.call("ApiVersions", 4, HELLO)
    assert {17, 36} <= {one.api_key for one in answer.api_keys}
    assert log_in(peer, "PLAIN", "ada", PASSWORD).error_code == 0


@pytest.mark.parametrize("name", ["Metadata", "SaslAuthenticate", "Produce", "Fetch"])
def test_other_requests_close_the_connection(guarded: Guarded, name: str) -> None:
    peer, api = guarded.peer(), API_BY_NAME[name]
    request = SaslAuthenticateRequest(b"x") if "Sasl" in name else api.codec.Request()
    with pytest.raises(MalformedRequest, match="must authenticate first"):
        peer.send(peer.frame(api, api.version_min, request))
    assert peer.received == b""


@pytest.mark.parametrize("name", ["Metadata", "SaslHandshake", "ApiVersions"])
def test_after_the_handshake_only_its_mechanism_is_legal(guarded: Guarded, name: str) -> None:
    peer, api = guarded.peer(), API_BY_NAME[name]
    handshake(peer, "SCRAM-SHA-256")
    with pytest.raises(MalformedRequest, match="must authenticate first"):
        peer.send(peer.frame(api, api.version_min, api.codec.Request()))


def test_frames_are_small_before_authentication(guarded: Guarded) -> None:
    with pytest.raises(RequestTooLarge):
        guarded.peer().send(struct.pack(">i", (512 << 10) + 1))
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    assert peer.send(struct.pack(">i", (512 << 10) + 1)) == 0


def test_the_number_of_requests_before_authentication_is_limited(guarded: Guarded) -> None:
    peer = guarded.peer()
    for _ in range(sasl_connection.REQUESTS_MAX):
        peer.call("ApiVersions", 4, HELLO)
    with pytest.raises(MalformedRequest):
        peer.send(peer.frame(API_BY_NAME["ApiVersions"], 4, HELLO))


def test_a_client_that_does_not_authenticate_is_disconnected(guarded: Guarded) -> None:
    idle, done = guarded.peer(), guarded.peer()
    log_in(done, "PLAIN", "ada", PASSWORD)
    guarded.node.run_for(sasl_connection.LOGIN_MS_MAX + 1)
    assert idle.is_closed
    assert not done.is_closed


def test_requests_that_follow_at_once_wait_for_the_authentication(guarded: Guarded) -> None:
    peer = guarded.peer()
    frames = [
        peer.frame(API_BY_NAME["SaslHandshake"], 1, SaslHandshakeRequest("PLAIN")),
        peer.frame(API_BY_NAME["SaslAuthenticate"], 2, authenticate_request("ada", PASSWORD)),
        peer.frame(API_BY_NAME["Metadata"], 12, MetadataRequest(topics=None)),
    ]
    data = b"".join(frames)
    used = peer.send(data)
    assert used == len(frames[0]) + len(frames[1])
    assert peer.connection.is_blocked
    guarded.node.run_until(lambda: peer.is_unblocked)
    assert peer.send(data[used:]) == len(frames[2])
    guarded.node.run_for(10)
    lengths = []
    while peer.received:
        (length,) = struct.unpack_from(">i", peer.received)
        lengths.append(length)
        peer.received = peer.received[4 + length :]
    assert len(lengths) == 3


def test_requests_that_follow_a_wrong_password_are_not_handled(guarded: Guarded) -> None:
    peer = guarded.peer()
    handshake(peer, "PLAIN")
    wrong = peer.frame(API_BY_NAME["SaslAuthenticate"], 2, authenticate_request("ada", "wrong"))
    right = peer.frame(API_BY_NAME["SaslAuthenticate"], 2, authenticate_request("ada", PASSWORD))
    assert peer.send(wrong + right) == len(wrong)
    guarded.node.run_until(lambda: len(peer.received) > 0)
    assert peer.send(right) == 0
    guarded.node.run_for(REFUSAL_MS)
    assert peer.is_closed


def authenticate_request(user: str, password: str) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(plain(user, password))


def test_pieces_of_any_size_are_put_together(guarded: Guarded) -> None:
    peer = guarded.peer()
    data = peer.frame(API_BY_NAME["SaslHandshake"], 1, SaslHandshakeRequest("PLAIN"))
    for end in range(1, len(data)):
        assert peer.send(data[:end]) == 0
    assert peer.send(data) == len(data)


# Failures


def test_a_failure_is_answered_after_a_delay(guarded: Guarded) -> None:
    peer = guarded.peer()
    handshake(peer, "SCRAM-SHA-256")
    before = guarded.node.clock.now_ms()
    assert_refused(authenticate(peer, b"nonsense"), guarded, peer)
    assert guarded.node.clock.now_ms() - before >= REFUSAL_MS
    assert guarded.node.front.refusals == 0


def test_the_number_of_delayed_answers_is_limited(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl_connection, "REFUSALS_MAX", 2)
    peers = [guarded.peer() for _ in range(4)]
    api = API_BY_NAME["SaslHandshake"]
    for peer in peers:
        peer.send(peer.frame(api, 1, SaslHandshakeRequest("GSSAPI")))
    assert [peer.is_closed for peer in peers] == [False, False, True, True]
    guarded.node.run_for(REFUSAL_MS + 1)
    assert all(peer.is_closed for peer in peers)
    assert [bool(peer.received) for peer in peers] == [True, True, False, False]
    assert guarded.node.front.refusals == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("step", range(4))
def test_a_client_may_hang_up_at_any_step(guarded: Guarded, mechanism: str, step: int) -> None:
    peer = guarded.peer()
    if step > 0:
        peer.call("ApiVersions", 4, HELLO)
    if step > 1:
        handshake(peer, mechanism)
    if step > 2:
        message = SaslAuthenticateRequest(plain("ada", "wrong"))
        peer.send(peer.frame(API_BY_NAME["SaslAuthenticate"], 2, message))
    peer._close()
    guarded.node.run_for(2 * sasl_connection.LOGIN_MS_MAX)
    assert guarded.node.front.refusals == 0
    assert not guarded.authentication._watched


def test_a_client_that_hangs_up_while_it_waits_for_the_answer_is_forgotten(
    guarded: Guarded,
) -> None:
    peer = guarded.peer()
    peer.send(peer.frame(API_BY_NAME["SaslHandshake"], 1, SaslHandshakeRequest("GSSAPI")))
    assert guarded.node.front.refusals == 1
    peer._close()
    assert guarded.node.front.refusals == 0


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_guessing_becomes_slow_and_does_not_lock_out_others(
    guarded: Guarded, mechanism: str
) -> None:
    for _ in range(6):
        peer = guarded.peer(host="192.0.2.66")
        assert log_in(peer, "PLAIN", "ada", "wrong horse").error_code
    answer = log_in(guarded.peer(host="192.0.2.66"), mechanism, "ada", PASSWORD)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Too many failed attempts; try again in 1 s."
    assert log_in(guarded.peer(), "PLAIN", "ada", PASSWORD).error_code == 0
    guarded.node.run_for(1_000)
    assert log_in(guarded.peer(host="192.0.2.66"), "PLAIN", "ada", PASSWORD).error_code == 0


def test_guesses_are_not_made_in_parallel(guarded: Guarded) -> None:
    """Many connections at once get no more guesses than one after the other."""
    peers = [guarded.peer() for _ in range(40)]
    for peer in peers:
        handshake(peer, "PLAIN")
    for number, peer in enumerate(peers):
        message = authenticate_request("ada", f"wrong horse {number}")
        assert peer.send(peer.frame(API_BY_NAME["SaslAuthenticate"], 2, message))
        guarded.node.run_for(0)
    guarded.node.run_until(lambda: all(peer.received for peer in peers))
    texts = [peer.take_answer(API_BY_NAME["SaslAuthenticate"], 2).error_message for peer in peers]
    assert texts.count("The credentials are not valid.") <= 8


def test_parallel_proofs_are_not_guesses_either(guarded: Guarded) -> None:
    peers = [guarded.peer() for _ in range(40)]
    proofs = []
    for peer in peers:
        handshake(peer, "SCRAM-SHA-256")
        answer = authenticate(peer, b"n,,n=ada,r=nonce")
        proofs.append(scram_proof("SCRAM-SHA-256", "wrong", "n=ada,r=nonce", answer.auth_bytes))
    answers = [authenticate(peer, proof) for peer, proof in zip(peers, proofs, strict=True)]
    texts = [one.error_message for one in answers]
    assert texts.count("The credentials are not valid.") <= 12


def test_a_storm_of_logins_is_spread_over_many_turns(guarded: Guarded) -> None:
    peers = [guarded.peer(host=f"198.51.100.{number}") for number in range(100)]
    hello = [
        peer.frame(API_BY_NAME["SaslHandshake"], 1, SaslHandshakeRequest("PLAIN")) for peer in peers
    ]
    used = [peer.send(data) for peer, data in zip(peers, hello, strict=True)]
    assert sum(map(bool, used)) == TURN_LOGINS_MAX
    peers[-1]._close()
    waiting = {peer: data for peer, data, one in zip(peers, hello, used, strict=True) if not one}
    del waiting[peers[-1]]
    while waiting:
        guarded.node.run_until(lambda: any(peer.is_unblocked for peer in waiting))
        for peer in [one for one in waiting if one.is_unblocked]:
            assert peer.send(waiting.pop(peer))
    for peer in peers[:-1]:
        peer.take_answer(API_BY_NAME["SaslHandshake"], 1)
        assert authenticate(peer, plain("ada", PASSWORD)).error_code == 0


# Old clients, which send messages without headers


def raw(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def test_old_clients_send_plain_without_a_header(guarded: Guarded) -> None:
    peer = guarded.peer()
    assert handshake(peer, "PLAIN", 0).error_code == 0
    peer.send(raw(plain("ada", PASSWORD)))
    guarded.node.run_until(lambda: len(peer.received) > 0)
    assert peer.received == raw(b"")
    peer.received = b""
    assert is_served(peer)


def test_old_clients_prove_passwords_without_headers(guarded: Guarded) -> None:
    peer = guarded.peer()
    handshake(peer, "SCRAM-SHA-512", 0)
    first = "n=ada,r=nonce"
    peer.send(raw(f"n,,{first}".encode()))
    guarded.node.run_until(lambda: len(peer.received) > 0)
    answer, peer.received = peer.received[4:], b""
    peer.send(raw(scram_proof("SCRAM-SHA-512", PASSWORD, first, answer)))
    guarded.node.run_until(lambda: len(peer.received) > 0)
    assert peer.received[4:].startswith(b"v=")
    peer.received = b""
    assert is_served(peer)


@pytest.mark.parametrize("message", [plain("ada", "wrong horse"), b"", b"\xff", b"\0\0"])
def test_old_clients_that_fail_are_disconnected_without_an_answer(
    guarded: Guarded, message: bytes
) -> None:
    peer = guarded.peer()
    handshake(peer, "PLAIN", 0)
    peer.send(raw(message))
    guarded.node.run_for(5 * REFUSAL_MS)
    assert peer.is_closed
    assert peer.received == b""


# Sessions that end


def test_the_client_learns_how_long_its_session_lasts() -> None:
    guarded = Guarded(session_ms_max=5_000)
    peer = guarded.peer()
    assert log_in(peer, "PLAIN", "ada", PASSWORD).session_lifetime_ms == 5_000
    guarded.node.run_for(4_000)
    assert is_served(peer)
    assert log_in(peer, "PLAIN", "ada", PASSWORD).session_lifetime_ms == 5_000
    guarded.node.run_for(4_000)
    assert is_served(peer)


def test_only_the_last_answer_of_an_exchange_says_how_long_the_session_lasts() -> None:
    """As in Kafka: librdkafka begins again after that time, and crashed in the exchange."""
    guarded = Guarded(session_ms_max=5_000)
    peer = guarded.peer()
    for _ in range(2):
        handshake(peer, "SCRAM-SHA-256")
        first = "n=ada,r=nonce"
        answer = authenticate(peer, f"n,,{first}".encode())
        assert answer.session_lifetime_ms == 0
        proof = scram_proof("SCRAM-SHA-256", PASSWORD, first, answer.auth_bytes)
        assert authenticate(peer, proof).session_lifetime_ms == 5_000
        guarded.node.run_for(4_000)


def test_a_key_that_expires_ends_the_session(guarded: Guarded) -> None:
    wall_ms = guarded.node.broker.clock.wall_ms()
    peer = guarded.peer()
    secret = guarded.key(expires_ms=wall_ms + 3_000).secret
    assert 2_000 < log_in(peer, "PLAIN", "ada", secret).session_lifetime_ms <= 3_000
    guarded.node.run_for(3_000)
    with pytest.raises(MalformedRequest, match="its session has expired"):
        is_served(peer)


def test_after_the_end_of_a_session_only_authentication_is_legal() -> None:
    guarded = Guarded(session_ms_max=1_000)
    peer = guarded.peer()
    log_in(peer, "SCRAM-SHA-256", "ada", PASSWORD)
    guarded.node.run_for(1_000)
    assert log_in(peer, "SCRAM-SHA-256", "ada", PASSWORD).error_code == 0
    assert is_served(peer)
    guarded.node.run_for(1_000)
    with pytest.raises(MalformedRequest, match="its session has expired"):
        is_served(peer)


def test_requests_before_a_new_authentication_are_answered_first() -> None:
    guarded = Guarded(session_ms_max=5_000)
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    frames = [
        peer.frame(API_BY_NAME["Metadata"], 12, MetadataRequest(topics=None)),
        peer.frame(API_BY_NAME["SaslHandshake"], 1, SaslHandshakeRequest("PLAIN")),
        peer.frame(API_BY_NAME["SaslAuthenticate"], 2, authenticate_request("ada", PASSWORD)),
    ]
    peer.send(b"".join(frames))
    guarded.node.run_for(50)
    assert peer.take_answer(API_BY_NAME["Metadata"], 12).brokers
    assert peer.take_answer(API_BY_NAME["SaslHandshake"], 1).error_code == 0
    assert peer.take_answer(API_BY_NAME["SaslAuthenticate"], 2).session_lifetime_ms == 5_000


def test_the_mechanism_must_not_change(guarded: Guarded) -> None:
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    assert handshake(peer, "SCRAM-SHA-256").error_code == 0
    answer = authenticate(peer, b"n,,n=ada,r=nonce")
    assert "cannot authenticate again with SCRAM-SHA-256" in (answer.error_message or "")
    assert_refused(answer, guarded, peer)


def test_the_user_must_not_change(guarded: Guarded) -> None:
    guarded.user("bob")
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    answer = log_in(peer, "PLAIN", "bob", PASSWORD)
    assert "belongs to User:ada" in (answer.error_message or "")
    assert peer.connection.session.principal == "User:ada"
    assert_refused(answer, guarded, peer)


def test_a_wrong_password_ends_the_connection_of_the_right_one(guarded: Guarded) -> None:
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    assert_refused(log_in(peer, "PLAIN", "ada", "wrong horse"), guarded, peer)


def test_authentication_needs_a_handshake_each_time(guarded: Guarded) -> None:
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    answer = authenticate(peer, plain("ada", PASSWORD))
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(peer)


def test_old_handshakes_are_refused_on_an_authenticated_connection(guarded: Guarded) -> None:
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    assert handshake(peer, "PLAIN", 0).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("how", ["delete", "disable"])
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_user_that_is_removed_loses_its_connections(
    guarded: Guarded, how: str, mechanism: str
) -> None:
    guarded.user("bob")
    ada, bob = guarded.peer(), guarded.peer()
    log_in(ada, mechanism, "ada", PASSWORD)
    log_in(bob, mechanism, "bob", PASSWORD)
    identities = guarded.node.broker.identities
    if how == "delete":
        guarded.node.wait(promised(identities.delete_user("ada")))
    else:
        guarded.node.wait(promised(identities.disable_user("ada", is_disabled=True)))
    assert ada.is_closed
    assert is_served(bob)


def test_a_key_that_is_deleted_loses_its_connections(guarded: Guarded) -> None:
    first, second = guarded.key(), guarded.key()
    peers = [guarded.peer() for _ in range(3)]
    for peer, secret in zip(peers, [first.secret, second.secret, PASSWORD], strict=True):
        log_in(peer, "PLAIN", "ada", secret)
    guarded.node.wait(promised(guarded.node.broker.identities.delete_key(first.key.id)))
    assert [peer.is_closed for peer in peers] == [True, False, False]


def test_a_changed_password_leaves_connections_alone(guarded: Guarded) -> None:
    peer = guarded.peer()
    log_in(peer, "PLAIN", "ada", PASSWORD)
    guarded.node.wait(promised(guarded.node.broker.identities.set_password("ada", "better horse")))
    assert is_served(peer)
    other = guarded.peer()
    assert_refused(log_in(other, "PLAIN", "ada", PASSWORD), guarded, other)
    assert log_in(guarded.peer(), "PLAIN", "ada", "better horse").error_code == 0


def test_a_user_that_is_deleted_while_its_password_is_checked_is_refused(
    guarded: Guarded,
) -> None:
    peer = guarded.peer()
    handshake(peer, "SCRAM-SHA-256")
    answer = authenticate(peer, b"n,,n=ada,r=nonce")
    guarded.node.wait(promised(guarded.node.broker.identities.delete_user("ada")))
    proof = scram_proof("SCRAM-SHA-256", PASSWORD, "n=ada,r=nonce", answer.auth_bytes)
    assert_refused(authenticate(peer, proof), guarded, peer)


# Anything at all


@cache
def shared() -> Guarded:
    return Guarded()


quickly = settings(max_examples=60, derandomize=True, deadline=None, database=None)


@quickly
@given(data=st.binary(max_size=200), has_handshake=st.booleans(), is_raw=st.booleans())
def test_random_bytes_are_refused(data: bytes, has_handshake: bool, is_raw: bool) -> None:
    guarded = shared()
    peer = guarded.peer()
    if has_handshake:
        handshake(peer, "PLAIN", 0 if is_raw else 1)
    with suppress(MalformedRequest):
        peer.send(data)
    guarded.node.run_for(2 * REFUSAL_MS)
    assert not peer.connection.session.is_authenticated


@quickly
@given(
    mechanism=st.sampled_from(MECHANISMS),
    messages=st.lists(
        st.one_of(
            st.binary(max_size=100),
            st.text(max_size=50).map(lambda text: f"n,,{text}".encode()),
            st.sampled_from(
                [plain("ada", ""), plain("", PASSWORD), b"n,,n=ada,r=x", bearer(""), b"\x01"]
            ),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_random_messages_are_refused(mechanism: str, messages: list[bytes]) -> None:
    guarded = shared()
    peer = guarded.peer(host=f"198.51.100.{sum(messages[0]) % 250}")
    handshake(peer, mechanism)
    for message in messages:
        with suppress(GoQueueError, ConnectionError):
            if authenticate(peer, message).error_code:
                break
    assert not peer.connection.session.is_authenticated
    assert isinstance(peer.connection, SaslConnection)
