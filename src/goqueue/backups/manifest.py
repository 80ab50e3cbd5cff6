"""What a backup consists of, and how that is written.

`{"format": "goqueue-backup", "version": 1, "sha256": ..., "content": {...}}`: the checksum is that
of the bytes of `content`, so that damage to the manifest itself is found.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from goqueue.model.errors import CorruptBatch, UnsupportedVersion
from goqueue.model.support import LEVEL_MIN

FORMAT = "goqueue-backup"
VERSION = 1
MANIFESTS = "manifests"
_MANIFEST_SUFFIX = ".json"


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An object with batches of a partition, which covers the offsets from `base` to `end`."""

    base: int
    end: int
    last_end: int  # after the last record in it; compaction has removed those up to `end`
    size: int
    sha256: str
    last_crc: int  # the checksum of its last batch, to recognise that batch in the live log
    epoch: int  # the latest leader epoch in it


class PartitionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A partition from `start` to its cut, `end`."""

    number: int
    start: int
    end: int
    cleaned: int  # compaction had removed records below this offset when it was copied
    objects: tuple[ObjectEntry, ...] = ()


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str  # in hexadecimal
    partitions: tuple[PartitionEntry, ...]


class MetadataEntry(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup."""

    id: str
    cluster_id: str
    broker_version: str
    feature_level: int = LEVEL_MIN  # that the release that restores it must support
    cut_ms: int  # what was acknowledged before this time is in it
    finished_ms: int
    chosen_topics: tuple[str, ...] | None = None  # None: all
    metadata: MetadataEntry
    topics: tuple[TopicEntry, ...]

    @property
    def size(self) -> int:
        """Return the bytes of all its objects, also of those that other backups share."""
        return self.metadata.size + sum(
            one.size
            for topic in self.topics
            for partition in topic.partitions
            for one in partition.objects
        )


class _Envelope(msgspec.Struct):
    format: str
    version: int
    sha256: str
    content: msgspec.Raw


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode


def encode_manifest(manifest: Manifest) -> bytes:
    content = msgspec.json.encode(manifest)
    envelope = _Envelope(FORMAT, VERSION, sha256(content).hexdigest(), msgspec.Raw(content))
    return msgspec.json.encode(envelope)


def decode_manifest(data: bytes, *, name: str) -> Manifest:
    """Decode a manifest; raise if it is damaged, or of a later version."""
    try:
        envelope = _decode_envelope(data)
        if envelope.format == FORMAT and envelope.version != VERSION:
            raise UnsupportedVersion(
                f"{name} has format version {envelope.version}, and this GoQueue supports version "
                f"{VERSION}; use a later one."
            )
        content = bytes(envelope.content)
        if envelope.format == FORMAT and sha256(content).hexdigest() == envelope.sha256:
            return _decode_manifest(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise CorruptBatch(f"{name} is damaged.")


# Names


def manifest_name(backup_id: str) -> str:
    return f"{MANIFESTS}/{backup_id}{_MANIFEST_SUFFIX}"


def id_in_name(name: str) -> str | None:
    """Return the id of the backup whose manifest has this name; None if it is no manifest."""
    last = name.removeprefix(f"{MANIFESTS}/")
    return last.removesuffix(_MANIFEST_SUFFIX) if last.endswith(_MANIFEST_SUFFIX) else None


def metadata_name(entry: MetadataEntry) -> str:
    return f"metadata/{entry.sha256}.bin"


def partition_prefix(topic_id: str, number: int) -> str:
    return f"data/{topic_id}/{number}"


def object_name(topic_id: str, number: int, entry: ObjectEntry) -> str:
    stem = f"{entry.base:020d}-{entry.end:020d}-{entry.sha256[:32]}"
    return f"{partition_prefix(topic_id, number)}/{stem}.batches"
