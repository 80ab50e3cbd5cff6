"""Replacing segments by rewritten ones so that a crash at any moment leaves one set or the other.

The new files are written and synced under a `.cleaned` name. A small `swap` file then says which
segments go and which come; from the moment it is durable the swap will happen, now or at the
next start, and every step of it can be done twice.
"""

from __future__ import annotations

import msgspec

from goqueue.storage.disk import Disk
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_name

CLEANED_SUFFIX = ".cleaned"
_SWAP_FILE = "swap"
_MAGIC = b"GQSW"
_VERSION = 1


class _Swap(msgspec.Struct, frozen=True, array_like=True):
    removed: list[int]
    added: list[int]


def begin_swap(disk: Disk, folder: str, *, removed: list[int], added: list[int]) -> None:
    """Decide the swap: the synced `.cleaned` files of `added` take the place of `removed`."""
    body = _Swap(removed, added)
    write_framed(disk, f"{folder}/{_SWAP_FILE}", magic=_MAGIC, version=_VERSION, body=body)


def finish_swap(disk: Disk, folder: str) -> None:
    """Carry out a swap that was decided, and drop what an undecided one left behind."""
    path = f"{folder}/{_SWAP_FILE}"
    swap = read_framed(disk, path, magic=_MAGIC, version=_VERSION, body=_Swap)
    if swap is not None:
        for base in swap.removed:
            _remove_files(disk, f"{folder}/{segment_name(base)}", with_log=base not in swap.added)
        for base in swap.added:
            log = f"{folder}/{segment_name(base)}{LOG_SUFFIX}"
            if disk.exists(log + CLEANED_SUFFIX):
                disk.rename(log + CLEANED_SUFFIX, log)
        disk.sync_folder(folder)
    if disk.exists(path):
        disk.remove(path)
    for name in disk.list(folder):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{folder}/{name}")


def _remove_files(disk: Disk, stem: str, *, with_log: bool) -> None:
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, *([LOG_SUFFIX] if with_log else [])):
        if disk.exists(stem + suffix):
            disk.remove(stem + suffix)
