"""Settings of a client: timeouts, sizes, and its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from goqueue.client.security.settings import SaslSettings, TlsSettings
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidRequest

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Connections, timeouts and retries."""

    client_id: str = "goqueue"
    connect_ms_max: int = 5_000
    request_ms_max: int = 30_000  # for one response, in addition to a wait that the request allows
    retry_ms_max: int = 30_000  # from the first attempt of a call to the last
    backoff_ms_min: int = 50
    backoff_ms_max: int = 1_000
    metadata_age_ms_max: int = 300_000  # then refresh, to discover added partitions
    answer_bytes_max: int = 512 << 20  # a larger frame is treated as malformed
    buffers_kept_max: int = 0  # per connection, for large responses: more memory, less work
    answer_wait_ms: int = 15_000  # how long a broker may take for an administrative request
    tls: TlsSettings | None = None  # None: without encryption
    sasl: SaslSettings | None = None  # None: without credentials


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Batching, acknowledgements and idempotence."""

    acks: int = ACKS_ALL
    compression: Compression = Compression.NONE
    is_idempotent: bool = True  # retries are stored once and in order; requires acks from all
    batch_bytes_max: int = 256 << 10
    batch_records_max: int = 10_000
    linger_ms: int = 5  # how long `send` lets a batch wait for more records
    in_flight_max: int = 5  # brokers remember five batches per producer
    delivery_ms_max: int = 120_000  # from `send` until a record fails
    topic_wait_ms_max: int = 3_000  # for a topic that the broker may create on first use

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise InvalidRequest("acks must be 0 (none), 1 (leader) or -1 (all).")
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise InvalidRequest("An idempotent producer needs acks from all (-1).")
        if not 1 <= self.in_flight_max <= 5:
            raise InvalidRequest("in_flight_max must be from 1 to 5.")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Sizes of fetches, and how long a fetch of an empty partition waits."""

    wait_ms: int = 500
    bytes_min: int = 1
    bytes_max: int = 64 << 20
    partition_bytes_max: int = 8 << 20
    is_committed_only: bool = False  # skip records of open and aborted transactions
    out_of_range: str = "fail"  # or "earliest", "latest": where to continue

    def __post_init__(self) -> None:
        if self.out_of_range not in ("fail", "earliest", "latest"):
            raise InvalidRequest("out_of_range must be fail, earliest or latest.")
