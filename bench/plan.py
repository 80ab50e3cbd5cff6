"""How much each row does: enough to be steady, small enough to be waited for."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

PARTITIONS = 6
PAYLOAD_BYTES = (1000, 100)
LARGE_BYTES = 65_536
PRODUCED_BYTES = (*PAYLOAD_BYTES, LARGE_BYTES)
PAYLOAD_NAMES = {1000: "1 KB", 100: "100 B", LARGE_BYTES: "64 KB"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts and sizes of one benchmark; with all peers the defaults take 90 minutes."""

    repeat: int = 3
    warmup_messages: int = 1_000_000
    # By payload size.
    c_messages: tuple[tuple[int, int], ...] = (
        *((1000, 1_000_000), (100, 3_000_000), (LARGE_BYTES, 8_000)),
    )
    python_messages: tuple[tuple[int, int], ...] = ((1000, 600_000), (100, 1_000_000))
    # A peer may take a hundredth of the messages of another in the same time, so those that publish
    # one by one stop by the clock.
    peer_seconds: float = 2.0
    # Connections, and requests of all of them together.
    connection_levels: tuple[tuple[int, int], ...] = (
        *((1, 4_000), (16, 40_000), (100, 40_000), (1000, 40_000)),
    )
    catch_up_messages: int = 5_000_000
    # Of peers that take a minute for what a batching client sends in a few seconds.
    catch_up_messages_peer: int = 500_000
    tail_messages_peer: int = 200_000
    durable_batches: int = 20_000
    single_requests: int = 100_000
    single_requests_deep: int = 200_000
    pipelined_requests: int = 400_000
    publish_count: int = 5_000
    publish_warmup: int = 500
    end_to_end_seconds: float = 3.0
    http_requests: int = 60_000
    http_batches: int = 4_000
    schema_messages: int = 300_000
    sqs_messages: int = 20_000
    # moto looks through all messages of a queue in every call, and would take minutes for more.
    sqs_messages_moto: int = 1_000
    # By messages per call.
    queue_messages: tuple[tuple[int, int], ...] = ((1, 20_000), (10, 100_000), (100, 400_000))
    queue_messages_peer: int = 150_000
    queue_consumers: tuple[int, ...] = (1, 8, 64)
    share_messages: tuple[tuple[int, int], ...] = ((1000, 400_000), (100, 1_000_000))
    grpc_messages: int = 1_000_000
    # The last is close to a million: the highest limit that a group takes is a million in all.
    unacked_levels: tuple[int, ...] = (100, 10_000, 100_000, 950_000)
    unacked_probe: int = 40_000
    schedules: int = 1_000_000
    schedule_window_seconds: int = 60
    schedule_pace_seconds: int = 10
    schedule_cancels: int = 200_000
    schedule_cancels_single: int = 20_000
    # Of peers: each takes two minutes.
    schedule_rounds_peer: int = 1
    spark_messages: tuple[tuple[int, int], ...] = ((1000, 1_000_000), (100, 5_000_000))
    spark_micro_batches: int = 40
    cluster_messages: int = 1_000_000
    cluster_kills: int = 20
    cluster_rounds: int = 5
    # Of a peer, which takes much longer to notice a death and to start again.
    cluster_peer_kills: int = 5
    cluster_peer_rounds: int = 2
    start_bytes: int = 10 * GIB
    start_partitions: int = 1_000
    idle_partitions: int = 5_000
    growth_levels: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    growth_probe: int = 200_000
    growth_partitions: tuple[int, ...] = (1, 10, 100, 1_000, 5_000)
    growth_requests: int = 20_000
    growth_connections: tuple[int, ...] = (1, 10, 100, 1_000)
    growth_client_partitions: tuple[int, ...] = (10, 1_000, 5_000)
    growth_client_messages: int = 1_000_000
    growth_consumers: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    growth_consumer_messages: int = 50_000
    growth_schedules: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    growth_schedule_probe: int = 20_000
    limit_bytes: int = 2 * GIB
    limit_write_bytes: int = 512 * MIB
    limit_syncs: int = 300

    def messages(self, client: str, size: int) -> int:
        """How many messages of this size this client sends or reads in one run."""
        table = dict(self.python_messages if client == "Python" else self.c_messages)
        return table[size]


QUICK = Plan(
    warmup_messages=200_000,
    c_messages=((1000, 200_000), (100, 400_000), (LARGE_BYTES, 2_000)),
    python_messages=((1000, 100_000), (100, 200_000)),
    peer_seconds=0.5,
    connection_levels=((1, 1_000), (16, 6_000), (100, 6_000), (1000, 6_000)),
    catch_up_messages=300_000,
    catch_up_messages_peer=30_000,
    tail_messages_peer=30_000,
    queue_messages_peer=15_000,
    durable_batches=2_000,
    single_requests=6_000,
    single_requests_deep=15_000,
    pipelined_requests=20_000,
    publish_count=1_000,
    publish_warmup=100,
    end_to_end_seconds=0.5,
    http_requests=5_000,
    http_batches=200,
    schema_messages=30_000,
    sqs_messages=2_000,
    sqs_messages_moto=300,
    queue_messages=((1, 1_000), (10, 5_000), (100, 20_000)),
    grpc_messages=100_000,
    share_messages=((1000, 60_000), (100, 120_000)),
    unacked_levels=(100, 10_000, 50_000),
    unacked_probe=5_000,
    schedules=50_000,
    schedule_window_seconds=5,
    schedule_pace_seconds=3,
    schedule_cancels=10_000,
    schedule_cancels_single=2_000,
    spark_messages=((1000, 100_000), (100, 500_000)),
    spark_micro_batches=10,
    cluster_messages=100_000,
    cluster_kills=3,
    cluster_rounds=1,
    cluster_peer_kills=1,
    cluster_peer_rounds=1,
    start_bytes=1 * GIB,
    start_partitions=100,
    idle_partitions=1_000,
    growth_levels=(10_000, 1_000_000),
    growth_probe=100_000,
    growth_partitions=(1, 1_000),
    growth_requests=4_000,
    growth_connections=(1, 1_000),
    growth_client_partitions=(10, 1_000),
    growth_client_messages=200_000,
    growth_consumers=(1, 8, 64),
    growth_consumer_messages=20_000,
    growth_schedules=(10_000, 100_000),
    growth_schedule_probe=5_000,
    limit_bytes=GIB // 2,
    limit_write_bytes=128 * MIB,
    limit_syncs=100,
)
