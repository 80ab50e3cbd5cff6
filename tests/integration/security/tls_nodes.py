"""Nodes with listeners for TLS beside the plain ones, and clients of them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer

from tests.certificates import Authority, Files
from tests.integration.cluster import ClusterBroker
from tests.integration.ports import quiet_port
from tests.integration.process import Broker

PROTOCOLS = ("kafka", "http", "registry", "sqs")
SECONDS_MAX = 20


class TlsBroker(Broker):
    """A node that listens with TLS too, for every protocol."""

    security = "ssl"

    def __init__(
        self, directory: Path, files: Files, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(directory, {**server_settings(files), **(settings or {})})
        self.tls_ports = {protocol: quiet_port() for protocol in PROTOCOLS}

    def at(self, protocol: str) -> str:
        """The address of the listener with TLS."""
        return f"127.0.0.1:{self.tls_ports[protocol]}"

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        for protocol in PROTOCOLS:
            command[command.index(f"--listen-{protocol}") + 1] += f",ssl://{self.at(protocol)}"
        return command


class TlsClusterBroker(ClusterBroker):
    """A node of a cluster that also has a Kafka listener with TLS, if it has a port for it."""

    tls_port: int | None = None

    def _command(self, ready_file: Path) -> list[str]:
        command = super()._command(ready_file)
        if self.tls_port is not None:
            at = command.index("--listen-kafka") + 1
            command[at] += f",outside=ssl://127.0.0.1:{self.tls_port}"
        return command


def server_settings(files: Files) -> dict[str, object]:
    """The settings for a certificate that clients see."""
    return {
        "security.tls_certificate": files.certificate,
        "security.tls_key": files.key,
        "groups.initial_rebalance_delay_ms": 0,
    }


def client_settings(files: Files, mode: str) -> dict[str, object]:
    """The settings for certificates of clients."""
    return {
        "security.tls_client_auth": mode,
        "security.tls_client_authorities": files.authorities,
    }


class Trust(NamedTuple):
    """Which authority a client trusts, and the certificate it shows if it has one."""

    authorities: Path
    own: Files | None = None

    @property
    def librdkafka(self) -> dict[str, Any]:
        settings = {"security.protocol": "ssl", "ssl.ca.location": str(self.authorities)}
        if self.own is not None:
            settings["ssl.certificate.location"] = str(self.own.certificate)
            settings["ssl.key.location"] = str(self.own.key)
        return {**settings, "log_level": 0}

    @property
    def curl(self) -> list[str]:
        words = ["--cacert", str(self.authorities)]
        if self.own is not None:
            words += ["--cert", str(self.own.certificate), "--key", str(self.own.key)]
        return words


def curl(url: str, trust: Trust, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["curl", "-sS", "--max-time", str(SECONDS_MAX), *trust.curl, *words, url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(
    bootstrap: str, trust: Trust, topic: str, values: Iterable[bytes], *, seconds: int = SECONDS_MAX
) -> None:
    """Write with confluent-kafka; raises unless every message is acknowledged."""
    failures: list[Any] = []
    settings = {"bootstrap.servers": bootstrap, "message.timeout.ms": seconds * 1_000}
    producer = Producer({**settings, **trust.librdkafka})
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    if producer.flush(SECONDS_MAX) or failures:
        raise ConnectionError(f"not everything was delivered: {failures[:1]}")


def read(bootstrap: str, trust: Trust, topic: str, count: int) -> list[bytes]:
    """Read that many messages from the beginning, with confluent-kafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            **trust.librdkafka,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            (*batch,) = consumer.consume(count - len(values), timeout=SECONDS_MAX)
            assert batch, f"{len(values)} of {count} messages came"
            values += [one.value() or b"" for one in batch if one.error() is None]
    finally:
        consumer.close()
    return values


def kcat(bootstrap: str, trust: Trust, *words: str, input: str = "") -> str:
    options = [one for name, text in trust.librdkafka.items() for one in ("-X", f"{name}={text}")]
    command = ["timeout", str(SECONDS_MAX), "kcat", "-b", bootstrap, *options, *words]
    done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def round_trip_aiokafka(bootstrap: str, trust: Trust, topic: str, value: bytes) -> bytes | None:
    async def story() -> bytes | None:
        own = trust.own
        options: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": create_ssl_context(
                cafile=str(trust.authorities),
                certfile=None if own is None else str(own.certificate),
                keyfile=None if own is None else str(own.key),
            ),
        }
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
            message = await asyncio.wait_for(consumer.getone(), SECONDS_MAX)
            found: bytes | None = message.value
            return found

    return asyncio.run(story())


def new_authority(folder: Path, name: str = "clients") -> Authority:
    return Authority(folder / name, name)
