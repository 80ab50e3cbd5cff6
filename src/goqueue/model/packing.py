"""Batches filled from columns, without a Python object per record.

A packed batch has space for its header before its records, so that the bytes are written once and
sent as they are. The header is filled in when the sender of the batch is known.
"""

from __future__ import annotations

from goqueue.model.batch import (
    HEADER_BYTES,
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    build_batch,
    fill_header,
)
from goqueue.model.compression import Compression, compress
from goqueue.model.encode_reference import Columns
from goqueue.model.encoding import encoder
from goqueue.model.errors import InvalidRecord


class PackedRecords:
    """The records of one batch, as bytes."""

    __slots__ = ("_data", "base_timestamp", "count", "max_timestamp")

    def __init__(self) -> None:
        self._data = bytearray(HEADER_BYTES)
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    @property
    def size(self) -> int:
        """The size of the batch before compression, in bytes."""
        return len(self._data)

    def add(
        self, columns: Columns, places: memoryview, first: int, *, bytes_max: int, records_max: int
    ) -> int:
        """Add the records at these places, from the `first` one on; return how many fitted."""
        if first >= len(places):
            return 0
        times = columns[4]
        if not self.count:
            self.base_timestamp = self.max_timestamp = times[places[first]]
        added, newest = encoder.append(
            self._data,
            self.count,
            self.base_timestamp,
            columns,
            places,
            first,
            bytes_max,
            records_max,
        )
        self.count += added
        self.max_timestamp = max(self.max_timestamp, newest)
        return added

    def encode(
        self,
        *,
        codec: Compression = Compression.NONE,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = NO_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytearray:
        """Encode the whole batch. Without compression this is the records' buffer, not a copy."""
        if not self.count:
            raise InvalidRecord("A batch needs at least one record.")
        fields = {
            "record_count": self.count,
            "attributes": codec | (TRANSACTIONAL if is_transactional else 0),
            "base_timestamp": self.base_timestamp,
            "max_timestamp": self.max_timestamp,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "base_sequence": base_sequence,
        }
        if codec is Compression.NONE:
            fill_header(self._data, **fields)
            return self._data
        with memoryview(self._data) as view:
            return build_batch(compress(codec, view[HEADER_BYTES:]), **fields)
