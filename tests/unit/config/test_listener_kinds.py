"""Several listeners per protocol: how they are written, named and checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.config import Address, load, render
from goqueue.config.listener_kinds import (
    LISTENERS_MAX,
    SECURITY_PROTOCOLS,
    AdvertisedAddresses,
    ListenerAddress,
    Listeners,
)
from goqueue.model.errors import InvalidSettings

KAFKA = Listeners("kafka")
TLS = {"security.tls_certificate": "node.pem", "security.tls_key": "node.key"}


def names_of(text: str) -> list[str]:
    return [one.name for one in KAFKA.read(text)]


def problems_of(overrides: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        load(overrides=overrides)
    return caught.value.problems


def test_the_first_is_named_after_its_protocol_and_others_after_their_security() -> None:
    assert names_of("127.0.0.1:9092") == ["kafka"]
    assert names_of("127.0.0.1:1, sasl_ssl://0.0.0.0:2,SSL://[::1]:3") == [
        "kafka",
        "kafka-sasl_ssl",
        "kafka-ssl",
    ]
    assert names_of("in=127.0.0.1:1,out=sasl_ssl://10.0.0.1:2") == ["in", "out"]
    assert names_of("sasl_ssl://10.0.0.1:1") == ["kafka"]


def test_what_a_listener_requires_follows_from_its_security() -> None:
    plain, ssl, sasl, both = KAFKA.read(
        "a=plaintext://h:1,b=ssl://h:2,c=sasl_plaintext://h:3,d=sasl_ssl://[::1]:4"
    )
    assert [one.is_encrypted for one in (plain, ssl, sasl, both)] == [False, True, False, True]
    assert [one.has_sasl for one in (plain, ssl, sasl, both)] == [False, False, True, True]
    assert both.address == Address("::1", 4)
    assert str(both) == "sasl_ssl://[::1]:4"
    assert both.at("queue.example:9") == "sasl_ssl://queue.example:9"
    assert plain.at("queue.example:9") == "queue.example:9"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a listener"),
        ("127.0.0.1", "is not a listener"),
        ("tls://127.0.0.1:1", "'tls' is unknown"),
        ("://127.0.0.1:1", "'' is unknown"),
        ("127.0.0.1:1,", "is not a listener"),
        ("=127.0.0.1:1", "is not a name"),
        ("a b=127.0.0.1:1", "is not a name"),
        ("http=127.0.0.1:1", "reserved"),
        ("internal=127.0.0.1:1", "reserved"),
        ("a=127.0.0.1:1,A=127.0.0.1:2", "two listeners are named 'A'"),
        ("127.0.0.1:1,ssl://h:2,ssl://h:3", "two listeners are named 'kafka-ssl'"),
        (",".join(f"l{one}=h:{one}" for one in range(1, LISTENERS_MAX + 2)), "expected 1 to"),
    ],
)
def test_what_is_no_listener_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("'", ".")):
        KAFKA.read(text)


_listeners = st.lists(
    st.builds(
        ListenerAddress,
        st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True).map(lambda text: f"x{text}"),
        st.sampled_from(SECURITY_PROTOCOLS),
        st.builds(Address, st.sampled_from(["h", "::1", "10.0.0.1"]), st.integers(0, 65535)),
    ),
    min_size=1,
    max_size=LISTENERS_MAX,
    unique_by=lambda one: one.name,
).map(tuple)


@given(_listeners)
def test_what_is_shown_can_be_read(listeners: tuple[ListenerAddress, ...]) -> None:
    assert KAFKA.read(KAFKA.show(listeners)) == listeners


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in (KAFKA, AdvertisedAddresses()):
        try:
            kind.read(text)
        except ValueError:
            continue


def test_advertised_addresses_name_their_listener() -> None:
    settings = load(
        overrides={
            "--listen-kafka": "127.0.0.1:9092,out=sasl_ssl://0.0.0.0:9093",
            "--advertise-kafka": "localhost:9092,out=queue.example:19093",
            **TLS,
        }
    )
    first, out = settings.listeners.kafka
    assert settings.listeners.advertised(first) == Address("localhost", 9092)
    assert settings.listeners.advertised(out) == Address("queue.example", 19093)
    assert load(overrides={}).listeners.advertised(first) is None
    assert "kafka_advertised: 'localhost:9092,out=queue.example:19093'" in render(settings)


@pytest.mark.parametrize("text", ["a:1,b:2", "x=a:1,x=b:2", "=a:1", "a", "x=:1", "a:0"])
def test_what_is_no_advertised_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        AdvertisedAddresses().read(text)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"--listen-kafka": "127.0.0.1:1,ssl://10.1.1.1:2", **TLS}, "sasl_ssl://10.1.1.1:2"),
        ({"--listen-kafka": "127.0.0.1:1,ssl://10.1.1.1:2", **TLS}, "--allow-unauthenticated"),
        ({"--listen-kafka": "ssl://127.0.0.1:1"}, "TLS needs security.tls_certificate"),
        ({"security.tls_key": "k"}, "needs security.tls_certificate too"),
        ({"security.tls_client_auth": "required"}, "needs security.tls_client_authorities"),
        ({"security.tls_client_authorities": "ca"}, "set security.tls_client_auth"),
        ({"security.tls_principal_rules": "DEFAULT"}, "set security.tls_client_auth"),
        ({"--listen-kafka": "127.0.0.1:8080"}, "is also an address of listeners.kafka"),
        ({"--listen-kafka": "a=127.0.0.1:7,b=127.0.0.1:7"}, "is also an address of"),
        (
            {"--listen-kafka": "x=127.0.0.1:1", "--listen-http": "x=127.0.0.1:2"},
            "listeners.kafka has a listener named 'x' too",
        ),
        ({"--advertise-kafka": "x=queue.example:1"}, "there is no listener 'x'"),
        ({"--advertise-kafka": "h:1,kafka=h:2"}, "has two addresses"),
        (
            {"--listen-kafka": "127.0.0.1:1,out=sasl_ssl://0.0.0.0:2", **TLS},
            "--advertise-kafka out=HOST:PORT",
        ),
    ],
)
def test_listeners_that_contradict_other_settings_are_refused(
    overrides: dict[str, str], words: str
) -> None:
    (problem,) = problems_of(overrides)
    assert words in problem


def test_a_listener_that_authenticates_may_be_anywhere() -> None:
    authorities = {"security.tls_client_authorities": "ca.pem"}
    certificates = {"security.tls_client_auth": "required", **authorities}
    for overrides in (
        {"--listen-kafka": "sasl_plaintext://10.1.1.1:9092"},
        {"--listen-sqs": "sasl_ssl://10.1.1.1:9092", **TLS},
        {"--listen-http": "ssl://10.1.1.1:9092", **TLS, **certificates},
    ):
        assert load(overrides=overrides).listeners.all_of_clients()
    requested = {**certificates, "security.tls_client_auth": "requested"}
    (problem,) = problems_of({"--listen-http": "ssl://10.1.1.1:9092", **TLS, **requested})
    assert "security.tls_client_auth = required" in problem


GRPC = Listeners("grpc", may_be_empty=True, port_default=9000)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1", "127.0.0.1:9000"),
        ("[::1]", "[::1]:9000"),
        ("sasl_ssl://queue.example", "sasl_ssl://queue.example:9000"),
        ("inside=plaintext://localhost,ssl://0.0.0.0:9443", None),
        ("127.0.0.1:9001", "127.0.0.1:9001"),
        ("", ""),
    ],
)
def test_a_default_port_is_that_of_addresses_without_one(text: str, shown: str | None) -> None:
    listeners = GRPC.read(text)
    assert GRPC.read(GRPC.show(listeners)) == listeners
    if shown is None:
        assert [one.address.port for one in listeners] == [9000, 9443]
    else:
        assert GRPC.show(listeners) == shown


@pytest.mark.parametrize("text", ["9000", ":9000", "::1", "[::1", "a b", "ssl://", "host:", "[]"])
def test_an_address_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a listener"):
        GRPC.read(text)


def test_other_protocols_need_a_port() -> None:
    with pytest.raises(ValueError, match="is not a listener"):
        KAFKA.read("127.0.0.1")
