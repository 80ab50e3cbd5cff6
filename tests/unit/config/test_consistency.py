"""Settings that contradict each other are refused, each pair with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.config import Address, load, render
from goqueue.model.errors import InvalidSettings

SECRET = "x" * 32


def problems_of(overrides: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        load(overrides=overrides)
    return caught.value.problems


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"--listen-kafka": "10.1.2.3:9092"}, "--allow-unauthenticated"),
        ({"--listen-kafka": "broker.example:9092"}, "--allow-unauthenticated"),
        ({"--listen-http": "10.1.2.3:8080"}, "--allow-unauthenticated"),
        ({"--listen-registry": "10.1.2.3:8081"}, "--allow-unauthenticated"),
        ({"--listen-sqs": "10.1.2.3:9324", "--allow-unauthenticated": "true"}, "sqs.access_keys"),
        ({"sqs.message_bytes_max": "6MiB"}, "must be at least three times as large"),
        ({"listeners.http_body_bytes_max": "300MiB"}, "receive_buffer_bytes_total_max = 128MiB"),
        (
            {"--listen-kafka": "0.0.0.0:9092", "--allow-unauthenticated": "true"},
            "--advertise-kafka HOST:PORT",
        ),
        ({"--advertise-kafka": "[::]:9092"}, "clients cannot connect to a wildcard address"),
        ({"listeners.request_bytes_max": "300MiB"}, "receive_buffer_bytes_total_max = 128MiB"),
        ({"topics.message_bytes_max": "101MiB"}, "does not fit into a request"),
        ({"groups.session_ms_min": "1h"}, "is above groups.session_ms_max = 30m (default)"),
        ({"groups.consumer_heartbeat_ms": "45s"}, "must be shorter than"),
        (
            {"compaction.lag_min_ms": "2s", "compaction.lag_max_ms": "1s"},
            "is above compaction.lag_max_ms = 1s",
        ),
        ({"cluster.heartbeat_ms": "1500"}, "at most half of cluster.session_ms"),
        (
            {"cluster.peers": "1@a:1", "cluster.discovery": "nodes.example:9094"},
            "both define the initial voters",
        ),
        (
            {"cluster.tls_key": "node.key"},
            "needs cluster.tls_certificate and cluster.tls_authorities too; give all three",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    overrides: dict[str, str], words: str
) -> None:
    (problem,) = problems_of(overrides)
    assert words in problem


def test_a_listener_beyond_loopback_is_allowed_when_asked_for() -> None:
    settings = load(
        overrides={
            "--listen-kafka": "0.0.0.0:9092",
            "--advertise-kafka": "queue.example:9092",
            "--allow-unauthenticated": "true",
        }
    )
    (kafka,) = settings.listeners.kafka
    assert settings.listeners.advertised(kafka) == Address("queue.example", 9092)


def test_clients_that_sign_with_a_key_may_come_from_anywhere() -> None:
    keys = {"--listen-sqs": "0.0.0.0:9324", "sqs.access_keys": "me:top/secret+1=,you:other"}
    settings = load(overrides=keys)
    assert dict(settings.sqs.access_keys) == {"me": "top/secret+1=", "you": "other"}
    assert "secret+1" not in render(settings)


def test_the_secret_of_nodes_is_in_one_place() -> None:
    (problem,) = problems_of({"cluster.secret": SECRET, "--secret-file": "s"})
    assert "use one of them" in problem
    assert SECRET not in problem
    (problem,) = problems_of({"cluster.secret_previous": SECRET})
    assert "needs cluster.secret" in problem


def test_other_nodes_always_prove_who_they_are_so_nothing_need_be_allowed() -> None:
    certificates = {
        "cluster.tls_certificate": "~/node.pem",
        "cluster.tls_key": "node.key",
        "cluster.tls_authorities": "authority.pem",
    }
    listening = {"--listen-internal": "10.0.0.1:7000"}
    settings = load(overrides={**listening, **certificates})
    assert settings.cluster.has_tls
    assert settings.cluster.tls_certificate == Path("~/node.pem").expanduser()
    (problem,) = problems_of({"--listen-http": "10.0.0.1:8080", **certificates})
    assert "listeners.http" in problem
