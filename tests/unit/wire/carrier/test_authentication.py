"""Credentials in headers: who gets a session, how often they are checked, and when it ends."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goqueue.broker.gate.areas.users import NewKeyView
from goqueue.model.credentials import KeyKind
from goqueue.model.errors import AuthenticationFailed, MalformedRequest
from goqueue.model.session import NOBODY, ListenerRules
from goqueue.wire.carrier.credentials import Password, Token, read_credentials
from tests.simulation.world import World
from tests.unit.wire.http.client import Answer, Client, Wire, request

PASSWORD = "correct horse"
STRICT = ListenerRules("http", must_authenticate=True)


class Desk:
    """A listener, and a user that may use it."""

    def __init__(self, rules: ListenerRules, **settings: str) -> None:
        self.world = World(groups__initial_rebalance_delay_ms="0", **settings)
        self.client = Client(self.world)
        self.client.rules = rules
        self.users = self.world.broker.gate.users
        self.world.wait(self.users.create(NOBODY, user="alice", password=PASSWORD))
        self.checks = 0
        identities = self.world.broker.identities
        check = identities.check_password

        async def counted(*args: Any, **more: Any) -> bool:
            self.checks += 1
            return await check(*args, **more)

        identities.check_password = counted  # type: ignore[method-assign]

    def key(self, *, ttl_ms: int = 0) -> NewKeyView:
        expires_ms = self.world.broker.clock.wall_ms() + ttl_ms if ttl_ms else 0
        made = self.users.create_key(
            NOBODY, user="alice", kind=KeyKind.API, expires_ms=expires_ms, description=""
        )
        return self.world.wait(made)

    def get(self, path: str = "/v1/whoami", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.send("GET", path, headers=named)

    def on(self, wire: Wire, path: str = "/v1/whoami", **headers: str) -> Answer:
        """One more request on a connection."""
        before = len(wire.answers)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        wire.feed(request("GET", path, headers=named))
        self.world.run_until(lambda: len(wire.answers) > before and wire.answers[-1].is_whole)
        return wire.answers[-1]


def basic(user: str = "alice", password: str = PASSWORD) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def strict() -> Desk:
    return Desk(STRICT)


@pytest.fixture
def lax() -> Desk:
    return Desk(ListenerRules("http"))


def test_without_credentials_a_request_is_refused(strict: Desk) -> None:
    wire = strict.client.wire()
    answer = strict.on(wire)
    assert (answer.status, answer.json["code"]) == (401, "authentication_required")
    assert b'www-authenticate: Basic realm="GoQueue", charset="UTF-8"\r\n' in wire.sent
    assert b'www-authenticate: Bearer realm="GoQueue"\r\n' in wire.sent
    assert not wire.is_closed, "the client sends credentials on the same connection"
    assert strict.on(wire, authorization=basic()).status == 200


def test_credentials_in_trailers_are_none(strict: Desk) -> None:
    """Proxies that remove or check credentials do not look there."""
    wire = strict.client.wire()
    chunked = request("GET", "/v1/whoami", headers={"transfer-encoding": "chunked"})
    wire.feed(chunked + f"0\r\nauthorization: {basic()}\r\n\r\n".encode())
    strict.world.run_until(lambda: bool(wire.answers) and wire.answers[-1].is_whole)
    answer = wire.answers[-1]
    assert (answer.status, answer.json["code"]) == (401, "authentication_required")


def test_every_kind_of_credentials_is_accepted(strict: Desk) -> None:
    secret = strict.key().secret
    for headers in (
        {"authorization": basic()},
        {"authorization": basic().replace("Basic", "bASIC")},
        {"authorization": basic("", secret)},
        {"authorization": basic("anybody", secret)},
        {"authorization": f"Bearer {secret}"},
        {"x_api_key": secret},
    ):
        shown = strict.get(**headers).json
        assert (shown["principal"], shown["authenticated"]) == ("User:alice", True)


@pytest.mark.parametrize("desk", [STRICT, ListenerRules("http")], ids=["strict", "lax"])
def test_wrong_credentials_are_refused_on_every_listener(desk: ListenerRules) -> None:
    place = Desk(desk)
    secret = place.key().secret
    for headers in (
        {"authorization": basic("alice", "wrong horse")},
        {"authorization": basic("nobody")},
        {"authorization": "Bearer " + secret[:-1]},
        {"x_api_key": "nonsense"},
        {"authorization": "Digest abc"},
        {"authorization": "Basic !!!"},
        {"authorization": "Bearer"},
    ):
        answer = place.get(**headers)
        assert (answer.status, answer.json["code"]) == (401, "authentication_failed"), headers


def test_on_an_open_listener_credentials_are_optional(lax: Desk) -> None:
    assert lax.get().json["principal"] == "User:ANONYMOUS"
    assert lax.get(authorization=basic()).json["principal"] == "User:alice"


def test_credentials_in_the_address_are_not_read(strict: Desk) -> None:
    secret = strict.key().secret
    for name in ("api_key", "access_token", "authorization", "x-api-key"):
        assert strict.get(f"/v1/whoami?{name}={secret}").status in (400, 401)


def test_health_needs_no_credentials_unless_the_settings_say_so(strict: Desk) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        assert strict.get(path).status == 200
        assert strict.get(path, authorization=basic("alice", "wrong")).status == 200
    for path in ("/", "/version", "/openapi.json", "/docs"):
        assert strict.get(path).status == 401
    strict.client.application.open_to((), is_health_open=False)
    assert strict.get("/healthz").status == 401


def test_a_client_that_stays_connected_is_checked_once(strict: Desk) -> None:
    wire = strict.client.wire()
    for _ in range(5):
        assert strict.on(wire, authorization=basic()).status == 200
    assert strict.checks == 1
    assert strict.on(wire, authorization=basic("bob")).status == 401
    assert strict.on(wire, authorization=basic()).status == 200
    assert strict.on(wire).status == 401, "no session outlives its credentials"


def test_a_changed_password_is_noticed_at_the_next_request(strict: Desk) -> None:
    wire = strict.client.wire()
    assert strict.on(wire, authorization=basic()).status == 200
    changed = strict.users.set_password(NOBODY, user="alice", password="other horse")
    strict.world.wait(changed)
    assert strict.on(wire, authorization=basic()).status == 401
    assert strict.on(wire, authorization=basic(password="other horse")).status == 200


@pytest.mark.parametrize("how", ["delete key", "disable", "delete user", "expire"])
def test_a_session_ends_with_its_key_and_its_user(strict: Desk, how: str) -> None:
    made = strict.key(ttl_ms=60_000)
    wire = strict.client.wire()
    assert strict.on(wire, x_api_key=made.secret).status == 200
    end(strict, how, made)
    assert strict.on(wire, x_api_key=made.secret).status == 401


@pytest.mark.parametrize("how", ["delete key", "disable", "delete user", "expire"])
def test_a_long_poll_ends_with_its_session(strict: Desk, how: str) -> None:
    made = strict.key(ttl_ms=5_000)
    strict.world.create("orders")
    wire = strict.client.wire()
    path = "/v1/topics/orders/messages?from=latest&wait_ms=30000"
    wire.feed(request("GET", path, headers={"x-api-key": made.secret}))
    strict.world.run_for(100)
    assert not wire.answers
    end(strict, how, made)
    strict.world.run_for(100)
    assert [one.status for one in wire.answers] == [401]


@pytest.mark.parametrize("how", ["delete key", "disable", "delete user", "expire"])
def test_a_stream_ends_with_its_session(strict: Desk, how: str) -> None:
    made = strict.key(ttl_ms=5_000)
    strict.world.create("orders")
    wire = strict.client.wire()
    path = "/v1/topics/orders/stream"
    wire.feed(request("GET", path, headers={"x-api-key": made.secret}))
    strict.world.run_for(100)
    assert wire.answers[0].status == 200
    assert not wire.is_closed
    end(strict, how, made)
    strict.world.run_for(100)
    assert wire.is_closed


def test_a_stream_ends_with_the_overlap_of_a_rotated_key(strict: Desk) -> None:
    made = strict.key()
    strict.world.create("orders")
    wire = strict.client.wire()
    wire.feed(request("GET", "/v1/topics/orders/stream", headers={"x-api-key": made.secret}))
    strict.world.run_for(100)
    rotated = strict.users.rotate_key(
        NOBODY, key_id=made.key.id, overlap_ms=10_000, expires_ms=None
    )
    strict.world.wait(rotated)
    strict.world.run_for(9_000)
    assert not wire.is_closed
    strict.world.run_for(2_000)
    assert wire.is_closed


def end(desk: Desk, how: str, made: NewKeyView) -> None:
    if how == "delete key":
        desk.world.wait(desk.users.delete_key(NOBODY, key_id=made.key.id))
    elif how == "disable":
        desk.world.wait(desk.users.disable(NOBODY, user="alice"))
    elif how == "delete user":
        desk.world.wait(desk.users.delete(NOBODY, user="alice"))
    else:
        desk.world.run_for(60_000)


def test_requests_behind_a_password_check_wait_in_order(strict: Desk) -> None:
    wire = strict.client.wire()
    good = {"authorization": basic()}
    strict.world.create("orders")
    paths = ["/v1/whoami", "/livez", "/v1/topics/orders", "/nothing"]
    wire.feed(b"".join(request("GET", path, headers=good) for path in paths))
    assert not wire.answers, "the check takes place in a thread"
    strict.world.run_until(lambda: len(wire.answers) == 4 and wire.answers[-1].is_whole)
    assert [one.status for one in wire.answers] == [200, 200, 200, 404]
    assert wire.answers[0].json["principal"] == "User:alice"
    assert strict.checks == 1


def test_a_client_may_hang_up_during_the_check(strict: Desk) -> None:
    wire = strict.client.wire()
    wire.feed(request("GET", "/v1/whoami", headers={"authorization": basic()}))
    wire.close()
    strict.world.run_for(1_000)
    assert not wire.answers
    assert not strict.client.application.busy
    assert strict.get(authorization=basic()).status == 200


def test_a_node_stops_while_a_password_is_checked(strict: Desk) -> None:
    wire = strict.client.wire()
    wire.feed(request("GET", "/v1/whoami", headers={"authorization": basic()}))
    stopped: list[bool] = []
    strict.client.application.stop(lambda: stopped.append(True))
    strict.world.run_until(lambda: bool(stopped))
    assert [one.status for one in wire.answers] == [503]


def test_too_many_failures_make_a_client_wait(strict: Desk) -> None:
    answers = [strict.get(authorization=basic("alice", f"wrong {n}")) for n in range(12)]
    assert {one.status for one in answers} == {401, 429}
    last = answers[-1]
    assert last.json["code"] == "too_many_authentication_failures"
    assert int(last.headers["retry-after"]) >= 1
    strict.world.run_for(61_000)
    assert strict.get(authorization=basic()).status == 200


def test_a_large_body_without_credentials_is_not_read(strict: Desk, lax: Desk) -> None:
    large = request("POST", "/v1/topics/orders/publish", b"x" * 1_000_000)
    for desk, wanted in ((strict, [401]), (lax, [])):
        wire = desk.client.wire()
        wire.feed(large[:200_000])
        assert [one.status for one in wire.answers] == wanted
        assert wire.is_closed == bool(wanted)
    wire = strict.client.wire()
    small = request("POST", "/v1/topics/orders/publish", {"value": "x"})
    wire.feed(small + small)
    assert [one.status for one in wire.answers] == [401, 401]
    assert not wire.is_closed


def test_repeated_credentials_are_refused(strict: Desk) -> None:
    for name in ("authorization", "Authorization", "x-api-key", "host", "origin"):
        wire = strict.client.wire()
        head = f"GET /livez HTTP/1.1\r\nhost: node\r\n{name}: a\r\n{name.lower()}: b\r\n\r\n"
        wire.feed(head.encode())
        assert wire.answers[0].status == 400
        assert wire.answers[0].json["code"] == "repeated_header"
        assert wire.is_closed
    assert strict.get(authorization=basic(), x_api_key="b").status == 400


def test_no_refusal_repeats_a_secret(strict: Desk) -> None:
    for headers in (
        {"authorization": basic("alice", "hunter2-hunter2")},
        {"authorization": "Bearer hunter2-hunter2"},
        {"authorization": "hunter2-hunter2"},
        {"x_api_key": "hunter2-hunter2"},
    ):
        answer = strict.get(**headers)
        assert answer.status == 401
        assert b"hunter2" not in answer.body
        assert "hunter2" not in str(answer.headers)


def test_credentials_are_not_printed() -> None:
    assert "secret" not in repr(Password("alice", "secret"))
    assert "secret" not in repr(Token("secret"))


@given(st.binary(max_size=200), st.none() | st.binary(max_size=50))
def test_any_header_is_read_or_refused_cleanly(value: bytes, api_key: bytes | None) -> None:
    for header in (value, b"Basic " + value, b"Bearer " + value, b"Basic " + b64encode(value)):
        try:
            found = read_credentials(header, api_key)
        except (AuthenticationFailed, MalformedRequest):
            continue
        assert isinstance(found, Password | Token)


HEADER = st.binary(min_size=0, max_size=60).map(
    lambda data: bytes(one for one in data if one >= 32 and one != 127)
)


@pytest.fixture(scope="module")
def shared() -> Desk:
    return Desk(STRICT)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scheme=st.sampled_from([b"", b"Basic ", b"Bearer ", b"basic", b"AWS4-HMAC "]), data=HEADER)
def test_no_header_opens_the_door(shared: Desk, scheme: bytes, data: bytes) -> None:
    wire = shared.client.wire()
    wire.feed(
        b"GET /v1/topics HTTP/1.1\r\nhost: node\r\nauthorization: %s%s\r\n\r\n" % (scheme, data)
    )
    shared.world.run_until(lambda: bool(wire.answers) and wire.answers[-1].is_whole)
    assert wire.answers[0].status in (400, 401, 429)
    wire.close()


def test_a_call_carries_the_session(strict: Desk) -> None:
    seen: list[str] = []

    class Policy:
        def allows(self, session: Any, action: Any, resource: Any) -> bool:
            seen.append(session.principal)
            return False

    strict.world.broker.gate.policy = Policy()
    answer = strict.get("/v1/users", authorization=basic())
    assert (answer.status, answer.json["code"]) == (403, "access_denied")
    assert set(seen) == {"User:alice"}


# Browsers


def headers_of(answer: Answer, *names: str) -> Mapping[str, str | None]:
    return {name: answer.headers.get(name) for name in names}


def test_every_response_has_security_headers(lax: Desk) -> None:
    for path in ("/livez", "/docs", "/nothing", "/v1/topics/missing"):
        assert headers_of(
            lax.get(path),
            "x-content-type-options",
            "referrer-policy",
            "cross-origin-resource-policy",
            "strict-transport-security",
            "access-control-allow-origin",
        ) == {
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "strict-transport-security": None,
            "access-control-allow-origin": None,
        }
    assert "default-src 'none'" in lax.get("/docs").headers["content-security-policy"]


def test_over_tls_browsers_are_told_to_stay_there() -> None:
    desk = Desk(ListenerRules("http", is_encrypted=True))
    for path in ("/livez", "/nothing"):
        assert desk.get(path).headers["strict-transport-security"].startswith("max-age=")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://node.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
    ],
)
def test_pages_of_other_sites_are_refused(lax: Desk, headers: dict[str, str]) -> None:
    answer = lax.get("/v1/topics", **headers)
    assert (answer.status, answer.json["code"]) == (403, "foreign_origin")
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://node"},
        {"origin": "https://node"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
        {
            "sec_fetch_site": "cross-site",
            "sec_fetch_mode": "navigate",
            "sec_fetch_dest": "document",
        },
    ],
)
def test_own_pages_and_links_are_served(lax: Desk, headers: dict[str, str]) -> None:
    assert lax.get("/docs", **headers).status == 200


def test_a_link_of_another_site_changes_nothing(lax: Desk) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    headers["sec-fetch-dest"] = "document"
    answer = lax.client.send("POST", "/v1/topics", {"name": "orders"}, headers=headers)
    assert answer.status == 403


def test_origins_in_the_settings_may_use_the_listener(strict: Desk) -> None:
    strict.client.application.open_to(["https://console.example"], is_health_open=True)
    origin = {"origin": "https://console.example"}
    asked = strict.client.send(
        "OPTIONS",
        "/v1/topics",
        headers={
            **origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        },
    )
    assert asked.status == 204
    assert asked.headers["access-control-allow-origin"] == "https://console.example"
    assert asked.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in asked.headers
    refused = strict.get(**origin)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == "https://console.example"
    assert strict.get(**origin, authorization=basic()).status == 200


def test_other_origins_get_no_answer_to_a_preflight(lax: Desk) -> None:
    lax.client.application.open_to(["https://console.example"], is_health_open=True)
    for origin in ("https://evil.example", "https://console.example.evil", "null"):
        asked = lax.client.send(
            "OPTIONS",
            "/v1/topics",
            headers={"origin": origin, "access-control-request-method": "POST"},
        )
        assert asked.status == 403
        assert "access-control-allow-origin" not in asked.headers


def test_a_preflight_does_not_repeat_header_lines(lax: Desk) -> None:
    lax.client.application.open_to(["https://console.example"], is_health_open=True)
    asked = lax.client.send(
        "OPTIONS",
        "/v1/topics",
        headers={
            "origin": "https://console.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "x: y; z",
        },
    )
    assert asked.headers["access-control-allow-headers"] == "authorization, content-type"
