"""Small files with magic, version, checksum, and a body in msgpack."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgspec
from crc32c import crc32c

from goqueue.model.errors import StorageFailed
from goqueue.storage.disk import Disk

_HEADER = struct.Struct(">4sHI")

Body = TypeVar("Body")


def write_framed(
    disk: Disk, path: str, *, magic: bytes, version: int, body: Any, is_durable: bool = True
) -> None:
    """Replace the file as a whole: a crash of the process leaves the old one or the new one.

    The same holds for a crash of the machine if `is_durable`; otherwise the file may then be
    damaged, which the checksum detects, and counts as missing.
    """
    data = msgspec.msgpack.encode(body)
    framed = _HEADER.pack(magic, version, crc32c(data)) + data
    disk.replace_whole(path, framed, is_durable=is_durable)


def read_framed(
    disk: Disk, path: str, *, magic: bytes, version: int, body: type[Body]
) -> Body | None:
    """Read the file's body; None if it is missing, damaged or of another version.

    For files that hold only what can be rebuilt from the log, so that none of those is an error.
    """
    data = _content(disk, path)
    return None if data is None else _decode(data, magic=magic, version=version, body=body)


def read_framed_or_refuse(
    disk: Disk, path: str, *, magic: bytes, version: int, body: type[Body], remedy: str
) -> Body | None:
    """Read the file's body; None only if it is missing.

    For files that cannot be rebuilt, such as identities: one that is damaged or of another version
    must not be taken for a missing one. `remedy` is the sentence that says what to do then.
    """
    data = _content(disk, path)
    if data is None:
        return None
    found = _decode(data, magic=magic, version=version, body=body)
    if found is None:
        raise StorageFailed(f"{path} {_why_unreadable(data, magic, version)}. {remedy}")
    return found


def _content(disk: Disk, path: str) -> bytes | None:
    try:
        return disk.read_whole(path)
    except FileNotFoundError:
        return None


def _decode(data: bytes, *, magic: bytes, version: int, body: type[Body]) -> Body | None:
    if len(data) < _HEADER.size:
        return None
    found_magic, found_version, checksum = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    if (found_magic, found_version) != (magic, version) or crc32c(content) != checksum:
        return None
    try:
        return msgspec.msgpack.decode(content, type=body)
    except msgspec.DecodeError:
        return None


def _why_unreadable(data: bytes, magic: bytes, version: int) -> str:
    if len(data) >= _HEADER.size:
        found_magic, found_version, _ = _HEADER.unpack_from(data)
        if found_magic == magic and found_version != version:
            return (
                f"has format version {found_version}, and this GoQueue reads version {version}; "
                "run the release that has written it. If none has, the file is damaged"
            )
    return "is damaged"
