"""Settings by the names and in the forms that Kafka's tools know."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.configs import (
    ACCEPTED_SETTINGS,
    DYNAMIC_DEFAULTS,
    TOPIC_SETTINGS,
    DefaultLayers,
    built_in_defaults,
)
from goqueue.broker.topics.settings import TopicDefaults
from goqueue.config import Settings, load
from goqueue.wire.kafka.config_names import OF_NODE, core_name, wire_name
from goqueue.wire.kafka.configs import (
    SOURCE_DEFAULT,
    SOURCE_STATIC_BROKER,
    SOURCE_TOPIC,
    describe_node,
    describe_topic,
)

SETTINGS = load(environ={}, overrides={})


def layers(settings: Settings) -> DefaultLayers:
    """Of a node on which nothing was changed while it runs."""
    static = TopicDefaults(settings.storage, settings.compaction, settings.topics).static
    return DefaultLayers({}, {}, static, built_in_defaults())


DEFAULTS = layers(SETTINGS)

# As Kafka's documentation of topic configurations spells them.
KNOWN_TO_KAFKA = [
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]

# What Kafka does not have: attributes, lanes and the lives of messages.
OUR_OWN = ("goqueue.", "lane.", "message.ttl.ms", "schema.")


@pytest.mark.parametrize("name", [*TOPIC_SETTINGS, *ACCEPTED_SETTINGS])
def test_every_name_goes_out_and_comes_back(name: str) -> None:
    assert core_name(wire_name(name)) == name


def test_the_names_are_kafkas() -> None:
    names = [one.name for one in describe_topic(DEFAULTS, {})]
    assert [one for one in names if not one.startswith(OUR_OWN)] == sorted(KNOWN_TO_KAFKA)


def test_a_setting_of_the_topic_is_told_from_one_of_the_node() -> None:
    configs = {one.name: one for one in describe_topic(DEFAULTS, {"retention_ms": "5"})}
    own, other = configs["retention.ms"], configs["retention.bytes"]
    assert (own.value, own.config_source) == ("5", SOURCE_TOPIC)
    assert own.synonyms[-1] == ("log.retention.ms", DEFAULTS.value("retention_ms"), SOURCE_DEFAULT)
    assert (other.value, other.config_source) == ("-1", SOURCE_DEFAULT)
    assert not own.is_read_only


def test_the_nodes_settings_are_read_only_and_sorted() -> None:
    settings = load(environ={}, overrides={"cluster.rack": "r1", "storage.retention_ms": "5s"})
    configs = describe_node(
        settings,
        layers(settings),
        {},
        addresses={"kafka": "queue.example:9092", "http": "queue.example:8080"},
        listener="kafka",
    )
    assert [one.name for one in configs] == sorted(one.name for one in configs)
    found = {one.name: one for one in configs}
    assert found["broker.rack"].config_source == SOURCE_STATIC_BROKER
    assert found["log.retention.ms"].config_source == SOURCE_STATIC_BROKER
    assert found["log.retention.bytes"].config_source == SOURCE_DEFAULT
    assert {name for name, one in found.items() if not one.is_read_only} == {
        OF_NODE[name] for name in OF_NODE.keys() & DYNAMIC_DEFAULTS
    }
    values = {one.name: one.value for one in configs}
    assert values["num.partitions"] == str(SETTINGS.topics.partitions)
    assert values["auto.create.topics.enable"] in ("true", "false")
    assert values["goqueue.http.listener"] == "queue.example:8080"


def test_clients_are_told_of_the_http_listener_that_is_like_theirs() -> None:
    settings = load(
        environ={},
        overrides={
            "--listen-kafka": "127.0.0.1:9092,out=sasl_ssl://10.0.0.1:9093",
            "--listen-http": "127.0.0.1:8080,sasl_ssl://10.0.0.1:8443",
            "security.tls_certificate": "node.pem",
            "security.tls_key": "node.key",
        },
    )
    addresses = {"http-sasl_ssl": "sasl_ssl://queue.example:443", "out": "sasl_ssl://q:1"}

    def told(listener: str) -> dict[str, str | None]:
        configs = describe_node(
            settings, layers(settings), {}, addresses=addresses, listener=listener
        )
        return {one.name: one.value for one in configs}

    assert told("kafka")["goqueue.http.listener"] == "127.0.0.1:8080"
    assert told("out")["goqueue.http.listener"] == "https://queue.example:443"
    assert told("out")["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092,SASL_SSL://q:1"
    assert told("out")["listeners"] == "PLAINTEXT://127.0.0.1:9092,SASL_SSL://10.0.0.1:9093"
