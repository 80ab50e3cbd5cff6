"""The peers with clients of their own: their names, what they can do, and how one is started.

Synced peers have a message on disk before they acknowledge it; the others have it in memory or in
the page cache, as Apache Kafka does. A figure of GoQueue stands beside those that make the same
promise.
"""

from __future__ import annotations

from pathlib import Path

from bench.peers import Peer

RABBITMQ = "RabbitMQ quorum queue"
RABBITMQ_STREAM = "RabbitMQ stream"
NATS = "NATS JetStream"
NATS_SYNCED = "NATS JetStream, sync always"
REDIS = "Redis Streams, AOF everysec"
REDIS_SYNCED = "Redis Streams, AOF always"

# By the word on the command line.
ASKED = {
    "rabbitmq": (RABBITMQ, RABBITMQ_STREAM),
    "nats": (NATS, NATS_SYNCED),
    "redis": (REDIS, REDIS_SYNCED),
}
SYNCED = frozenset({RABBITMQ, NATS_SYNCED, REDIS_SYNCED})
# Those whose messages are each acknowledged by a consumer. NATS with sync always is left out: to
# fill it takes 25 s for each second that is measured.
QUEUES = frozenset({RABBITMQ, NATS, REDIS, REDIS_SYNCED})
# Those that can be read again from the beginning.
LOGS = frozenset({RABBITMQ_STREAM, NATS, REDIS})


def start(name: str, home: Path, running: Peer | None) -> Peer:
    """A started peer; `running` is the node of which the peer of this name is a part, if any."""
    # Imported here, because only a run that asks for peers needs them.
    from bench.peers.nats import Nats
    from bench.peers.rabbitmq import RabbitMq, RabbitMqStream
    from bench.peers.redis import Redis

    peer: Peer
    if name == RABBITMQ:
        peer = RabbitMq(home)
    elif name == RABBITMQ_STREAM:
        assert isinstance(running, RabbitMq), "a stream needs the node that holds it"
        peer = RabbitMqStream(running)
    elif name in (NATS, NATS_SYNCED):
        peer = Nats(home, is_synced=name == NATS_SYNCED)
    else:
        peer = Redis(home, "always" if name == REDIS_SYNCED else "everysec")
    try:
        peer.start()
    except BaseException:
        peer.close()
        raise
    return peer
