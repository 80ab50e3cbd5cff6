"""What listeners require of their clients, and what is said about those that protect too little."""

from __future__ import annotations

import pytest

from goqueue.config import Settings, load
from goqueue.model.session import ListenerRules
from goqueue.runtime.client_listeners import rules_of, warn_of_readable_credentials

TLS = {"security.tls_certificate": "server.pem", "security.tls_key": "server.key"}
CLIENTS = {"security.tls_client_authorities": "clients.pem"}


def kafka_rules(settings: Settings) -> list[ListenerRules]:
    return [rules_of(settings, one) for one in settings.listeners.kafka]


@pytest.mark.parametrize(
    ("client_auth", "on_ssl"), [("none", False), ("requested", False), ("required", True)]
)
def test_certificates_authenticate_where_sasl_does_not(client_auth: str, on_ssl: bool) -> None:
    listeners = {"--listen-kafka": "a=127.0.0.1:1,b=ssl://127.0.0.1:2,c=sasl_ssl://127.0.0.1:3"}
    clients = CLIENTS if client_auth != "none" else {}
    settings = load(
        overrides={**listeners, **TLS, **clients, "security.tls_client_auth": client_auth}
    )
    plain, ssl, sasl = kafka_rules(settings)
    assert [one.is_encrypted for one in (plain, ssl, sasl)] == [False, True, True]
    assert [one.must_authenticate for one in (plain, ssl, sasl)] == [False, on_ssl, True]
    assert [one.uses_certificates for one in (plain, ssl, sasl)] == [False, True, False]
    assert [bool(one.sasl_mechanisms) for one in (plain, ssl, sasl)] == [False, False, True]


def test_credentials_that_others_can_read_are_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_readable_credentials(load(overrides={"--listen-kafka": "sasl_plaintext://[::1]:1"}))
    assert not caplog.records
    warn_of_readable_credentials(load(overrides={"--listen-http": "sasl_plaintext://10.0.0.1:1"}))
    (record,) = caplog.records
    assert "listener http" in record.message
    assert "use sasl_ssl://10.0.0.1:1" in record.message
