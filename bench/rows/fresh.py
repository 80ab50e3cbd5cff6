"""Servers that are started for one measurement and end with it: GoQueue and every peer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from bench.peers import PeerUnavailable, known
from bench.session import ELASTICMQ, KAFKA, MOTO, Session
from bench.systems import Unavailable

GOQUEUE = "GoQueue"


class Fresh(Protocol):
    """A server that can be started once."""

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def close(self) -> None: ...


def fresh_servers(session: Session) -> dict[str, Callable[[str], Fresh]]:
    """GoQueue and the peers that were asked for, by name; each makes one at a folder's name."""

    def make(build: Callable[[Path], Fresh]) -> Callable[[str], Fresh]:
        return lambda label: build(session.work / label)

    found: dict[str, Callable[[str], Fresh]] = {GOQUEUE: lambda label: session.node(label, {})}
    asked = {"kafka": KAFKA, "rabbitmq": known.RABBITMQ, "nats": known.NATS, "redis": known.REDIS}
    asked |= {"moto": MOTO, "elasticmq": ELASTICMQ}
    for key, name in asked.items():
        if key in session.peers:
            found[name] = make(_BUILDERS[key])
    return found


@contextlib.contextmanager
def started(make: Callable[[str], Fresh], label: str) -> Iterator[tuple[Fresh, float]]:
    """A server that has just started, and the seconds that it took."""
    with contextlib.ExitStack() as stack:
        try:
            server = make(label)
            stack.callback(server.close)
            begin = time.monotonic()
            server.start()
        except PeerUnavailable as error:
            raise Unavailable(str(error)) from error
        yield server, time.monotonic() - begin


# Imported where they are used, because only a run that asks for peers needs them.


def _kafka(home: Path) -> Fresh:
    from bench.peers.kafka import Kafka

    home.mkdir(parents=True, exist_ok=True)
    kafka = Kafka(directory=home)
    # Storage is formatted once in the life of a node, by a program of its own.
    kafka.prepare()
    return kafka


def _rabbitmq(home: Path) -> Fresh:
    from bench.peers.rabbitmq import RabbitMq

    return RabbitMq(home)


def _nats(home: Path) -> Fresh:
    from bench.peers.nats import Nats

    return Nats(home)


def _redis(home: Path) -> Fresh:
    from bench.peers.redis import Redis

    return Redis(home, "everysec")


def _moto(home: Path) -> Fresh:
    from bench.peers.moto import Moto

    return Moto(home)


def _elasticmq(home: Path) -> Fresh:
    from bench.peers.elasticmq import ElasticMq

    return ElasticMq(home)


_BUILDERS: dict[str, Callable[[Path], Fresh]] = {
    "kafka": _kafka,
    "rabbitmq": _rabbitmq,
    "nats": _nats,
    "redis": _redis,
    "moto": _moto,
    "elasticmq": _elasticmq,
}
