"""The listener between nodes always asks who connects."""

from __future__ import annotations

import pytest

from goqueue.config import load
from goqueue.model.errors import InvalidSettings
from goqueue.runtime.cluster_secret import credentials_of

PEERS = "1@10.0.0.1:7000,2@10.0.0.2:7000,3@10.0.0.3:7000"


@pytest.mark.parametrize(
    "overrides",
    [
        {"--peers": PEERS},
        {"cluster.discovery": "nodes.example:7000"},
        {"--peers": PEERS, "--allow-unauthenticated": "true"},
        {
            "--peers": PEERS,
            "--listen-kafka": "sasl_ssl://10.0.0.1:9093",
            "security.tls_certificate": "server.pem",
            "security.tls_key": "server.key",
        },
    ],
)
def test_without_a_secret_or_certificates_of_nodes_it_is_not_opened(
    overrides: dict[str, str],
) -> None:
    settings = load(overrides={"--listen-internal": "10.0.0.1:7000", **overrides})
    with pytest.raises(InvalidSettings, match="nodes must authenticate"):
        credentials_of(settings.cluster)


@pytest.mark.parametrize("text", ["plaintext://10.0.0.1:7000", "a=10.0.0.1:7000", "h:1,h:2"])
def test_it_has_one_address_and_no_security_to_choose(text: str) -> None:
    with pytest.raises(InvalidSettings, match="is not an address"):
        load(overrides={"--listen-internal": text})
