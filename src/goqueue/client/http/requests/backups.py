"""What a backup needs of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from goqueue.client.errors import BrokerRefused
from goqueue.client.http.request import Request, body_of, path_of, query_of, reading
from goqueue.wire.http.bodies import backups as bodies
from goqueue.wire.http.bodies.backups import BackupCut, Piece

_read_cut = reading(BackupCut)


class BackupRequests:
    def cut(self, *, topics: Sequence[str] | None = None) -> Request[BackupCut]:
        """Take a consistent cut, maybe without the messages of other topics than these."""
        body = bodies.TakeCut(topics=None if topics is None else list(topics))
        return Request("POST", path_of("admin", "backups", "cuts"), _read_cut, body=body_of(body))

    def read(self, topic_id: str, partition: int, *, offset: int, until: int) -> Request[Piece]:
        """Return batches of a partition as they are stored, before an offset of the cut."""
        path = path_of("admin", "backups", "logs", topic_id, partition)
        query = bodies.ReadBatches(offset=offset, until=until)
        return Request("GET", path, _read_piece, query_of(query))


def _read_piece(data: bytes) -> Piece:
    try:
        return bodies.decode_piece(data)
    except msgspec.DecodeError as error:
        raise BrokerRefused(f"The response has an unexpected format: {error}.") from error
