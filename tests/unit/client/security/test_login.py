"""Authentication on a connection: refusals, re-authentication, and what is in flight meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

import pytest

from goqueue.client.addresses import Address
from goqueue.client.cluster import Cluster
from goqueue.client.connection import Connection
from goqueue.client.errors import HungUp, SecretRefused, TlsFailed
from goqueue.client.security import SaslSettings
from goqueue.client.settings import ClientSettings
from goqueue.model.credentials import ScramMechanism
from goqueue.model.errors import AuthenticationFailed, TooManyFailures
from goqueue.tenancy.scram import ScramConversation, make_verifier
from goqueue.wire.kafka.headers import decode_request_header, encode_response_header
from goqueue.wire.kafka.messages import (
    API_BY_KEY,
    api_versions,
    list_groups,
    sasl_authenticate,
    sasl_handshake,
)

ADDRESS = Address("queue.example", 9093)
VERIFIER = make_verifier(ScramMechanism.SHA_512, "right-one", b"0123456789abcdef")
SCRAM = SaslSettings("SCRAM-SHA-512", "ann", "right-one")


class SaslSocket:
    """A broker of SCRAM, made of its own code, at the other end of a socket."""

    def __init__(self, *, lifetime_ms: int = 0, mechanisms: tuple[str, ...] = ("SCRAM-SHA-512",)):
        self.lifetime_ms = lifetime_ms
        self.mechanisms = mechanisms
        self.offered = {16: (0, 5), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
        self.requests: list[str] = []
        self.alert = b""
        self.hangs_up_at = ""
        self.refusal = "Not you."
        self._talk: ScramConversation | None = None
        self._out = bytearray()

    def sendall(self, data: bytes, /) -> None:
        if self.alert:
            self._out += self.alert
            return
        header, start = decode_request_header(data, 4)
        api, version = API_BY_KEY[header.request_api_key], header.request_api_version
        self.requests.append(api.name)
        if api.name == self.hangs_up_at:
            return
        body = self._answers[api.name](self, data, version, start)
        head = encode_response_header(api, version=version, correlation_id=header.correlation_id)
        self._out += (len(head) + len(body)).to_bytes(4, "big") + head + body

    def recv_into(self, buffer: memoryview, /) -> int:
        count = min(len(buffer), len(self._out))
        buffer[:count] = self._out[:count]
        del self._out[:count]
        return count

    def settimeout(self, value: float | None, /) -> None: ...

    def close(self) -> None: ...

    def _versions(self, data: bytes, version: int, start: int) -> bytes:
        keys = [api_versions.ApiVersion(key, *found) for key, found in self.offered.items()]
        return api_versions.encode_response(api_versions.ApiVersionsResponse(0, keys), version)

    def _handshake(self, data: bytes, version: int, start: int) -> bytes:
        assert version == 1
        wanted = sasl_handshake.decode_request(data, version, start).mechanism
        code = 0 if wanted in self.mechanisms else 33
        self._talk = ScramConversation(
            ScramMechanism.SHA_512,
            lambda user: VERIFIER if user == "ann" else None,
            nonce=b"nonce",
            salt_secret=b"salt",
        )
        response = sasl_handshake.SaslHandshakeResponse(code, list(self.mechanisms))
        return sasl_handshake.encode_response(response, version)

    def _authenticate(self, data: bytes, version: int, start: int) -> bytes:
        message = sasl_authenticate.decode_request(data, version, start).auth_bytes
        assert self._talk is not None
        try:
            answer = self._talk.answer(bytes(message))
        except AuthenticationFailed:
            response = sasl_authenticate.SaslAuthenticateResponse(58, self.refusal)
        else:
            lifetime_ms = self.lifetime_ms if self._talk.is_done else 0
            response = sasl_authenticate.SaslAuthenticateResponse(0, None, answer, lifetime_ms)
        return sasl_authenticate.encode_response(response, version)

    def _groups(self, data: bytes, version: int, start: int) -> bytes:
        return list_groups.encode_response(list_groups.ListGroupsResponse(), version)

    _answers: ClassVar[dict[str, Callable[[SaslSocket, bytes, int, int], bytes]]] = {
        "ApiVersions": _versions,
        "SaslHandshake": _handshake,
        "SaslAuthenticate": _authenticate,
        "ListGroups": _groups,
    }


LOGIN = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]


def connected(sock: SaslSocket, sasl: SaslSettings | None = SCRAM) -> Connection:
    connection = Connection(sock, ADDRESS, ClientSettings(sasl=sasl))
    connection.negotiate()
    connection.log_in()
    return connection


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock for the connection, that the test moves."""
    now = [1_000.0]
    fake = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("goqueue.client.connection.time", fake)
    return now


def test_the_right_password_is_let_in() -> None:
    sock = SaslSocket()
    connected(sock).call(list_groups, list_groups.ListGroupsRequest())
    assert sock.requests == ["ApiVersions", *LOGIN, "ListGroups"]


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_wrong_password_is_an_error_that_does_not_show_it(user: str) -> None:
    with pytest.raises(AuthenticationFailed, match=rf"user '{user}' .*Not you") as caught:
        connected(SaslSocket(), SaslSettings("SCRAM-SHA-512", user, "wrong-one"))
    assert "wrong-one" not in str(caught.value)
    assert not caught.value.retryable


def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are() -> None:
    with pytest.raises(AuthenticationFailed, match=r"does not accept PLAIN; .*SCRAM-SHA-512"):
        connected(SaslSocket(), SaslSettings("PLAIN", "ann", "right-one"))


def test_a_listener_without_sasl_is_recognised() -> None:
    sock = SaslSocket()
    sock.offered = {16: (0, 5), 18: (0, 4)}
    with pytest.raises(AuthenticationFailed, match="takes no credentials"):
        connected(sock)
    with pytest.raises(AuthenticationFailed, match="takes no credentials"):
        connected(SaslSocket(mechanisms=()))


def test_a_session_is_renewed_between_two_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)
    sock = SaslSocket(lifetime_ms=10_000)
    connection = connected(sock)
    request = list_groups.ListGroupsRequest()
    now[0] += 8.4
    early = connection.send(list_groups, request)  # in flight when the session is renewed
    now[0] += 1.2
    late = connection.send(list_groups, request)
    assert sock.requests[4:] == ["ListGroups", *LOGIN, "ListGroups"]
    for one in (late, early):
        assert connection.receive(one).error_code == 0
    connection.call(list_groups, request)
    now[0] += 9.6
    connection.call(list_groups, request)
    assert sock.requests[9:] == ["ListGroups", *LOGIN, "ListGroups"]


def test_a_password_that_was_changed_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    now, passwords = clock(monkeypatch), iter(["right-one", "wrong-one"])
    sasl = SaslSettings("SCRAM-SHA-512", "ann", lambda: next(passwords))
    connection = connected(SaslSocket(lifetime_ms=10_000), sasl)
    now[0] += 10
    with pytest.raises(AuthenticationFailed):
        connection.call(list_groups, list_groups.ListGroupsRequest())
    assert not connection.is_open


def test_a_secret_from_a_function_may_be_refused_while_it_is_rotated() -> None:
    sasl = SaslSettings("SCRAM-SHA-512", "ann", lambda: "wrong-one")
    with pytest.raises(SecretRefused) as caught:
        connected(SaslSocket(), sasl)
    assert caught.value.retryable
    cluster = Cluster("queue.example:9093")
    assert not cluster.is_worth_retrying(caught.value)
    cluster._was_reached = True
    assert cluster.is_worth_retrying(caught.value)


def test_a_client_that_has_to_wait_waits() -> None:
    sock = SaslSocket()
    sock.refusal = str(TooManyFailures(1_000))
    with pytest.raises(TooManyFailures) as caught:
        connected(sock, SaslSettings("SCRAM-SHA-512", "ann", "wrong-one"))
    assert Cluster("queue.example:9093").is_worth_retrying(caught.value)


def test_a_session_without_an_end_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)
    sock = SaslSocket()
    connection = connected(sock)
    now[0] += 1e9
    connection.call(list_groups, list_groups.ListGroupsRequest())
    assert sock.requests.count("SaslHandshake") == 1


def test_a_client_without_tls_recognises_an_alert() -> None:
    sock = SaslSocket()
    sock.alert = b"\x15\x03\x03\x00\x02\x02\x46"
    with pytest.raises(TlsFailed, match="requires TLS"):
        connected(sock)


@pytest.mark.parametrize(
    ("at", "hint"), [("ApiVersions", "may require TLS"), ("ListGroups", "may require credentials")]
)
def test_a_broker_that_hangs_up_at_the_first_request_gets_a_hint(at: str, hint: str) -> None:
    sock = SaslSocket()
    sock.hangs_up_at = at
    with pytest.raises(HungUp, match=hint):
        connected(sock, None).call(list_groups, list_groups.ListGroupsRequest())
