"""A disk in memory that loses what was not synced, fills up, fails and flips bits on demand.

Contents and names each exist twice: as programs see them, and as they would be found after a
power cut. `sync` and `sync_folder` carry the one over to the other. `crash` decides by a seed what
else happened to have reached the disk: each unsynced page on its own, the file's size anywhere in
the unsynced part, each unsynced change of a name on its own.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from dataclasses import dataclass, field

from goqueue.model.compression import Buffer

PAGE_BYTES = 4096


class PowerLost(BaseException):
    """The machine stopped in the middle of a disk operation. Nobody is meant to catch it."""


@dataclass(slots=True, eq=False)
class _Inode:
    """A file's contents, seen and durable."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    size_min: int = 0  # the smallest size since the last sync
    unreadable: set[int] = field(default_factory=set)  # pages on bad sectors

    def mark(self, start: int, end: int) -> None:
        pages = range(start // PAGE_BYTES, (end + PAGE_BYTES - 1) // PAGE_BYTES)
        self.dirty.update(pages)
        self.unreadable.difference_update(pages)  # A disk puts what is written elsewhere.

    def read(self, position: int, length: int) -> bytes:
        data = bytes(self.data[position : position + length])
        first, last = position // PAGE_BYTES, (position + len(data) - 1) // PAGE_BYTES
        if data and any(first <= page <= last for page in self.unreadable):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    def sync(self) -> None:
        del self.durable[min(self.size_min, len(self.data)) :]
        self.durable.extend(bytes(len(self.data) - len(self.durable)))
        for page in self.dirty:
            start = page * PAGE_BYTES
            self.durable[start : start + PAGE_BYTES] = self.data[start : start + PAGE_BYTES]
        self.dirty.clear()
        self.size_min = len(self.data)

    def lose_unsynced(self, chance: random.Random, *, survival: float) -> None:
        """Become what a power cut leaves behind."""
        kept = self.size_min
        is_untouched = kept < len(self.durable) and chance.random() >= survival
        if not is_untouched:
            size = chance.choice((kept, len(self.data), chance.randint(kept, len(self.data))))
            left = bytearray(self.durable[:kept])
            left.extend(bytes(size - len(left)))
            for page in sorted(self.dirty):
                if chance.random() < survival:
                    start = page * PAGE_BYTES
                    end = min(size, start + PAGE_BYTES)
                    # A page that is being written when the power goes is torn.
                    if chance.random() < 0.1:
                        end = chance.randint(start, max(start, end))
                    if end > start:
                        left[start:end] = self.data[start:end]
            self.durable = left
        self.data = bytearray(self.durable)
        self.dirty.clear()
        self.size_min = len(self.data)


@dataclass(slots=True)
class _NameChange:
    """One change of names that is not durable yet: `path` means `inode` now, or nothing."""

    path: str
    inode: _Inode | None
    source: str | None = None  # the name that a rename took away


class SimulatedFile:
    """An open file. It keeps its contents when its name is removed or taken over."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode | None, *, is_new: bool):
        self.path = path
        self._disk = disk
        self._inode = inode
        self._is_new = is_new
        self._life = disk.life

    def append(self, data: Buffer) -> None:
        self._disk.operation("append", self.path)
        inode = self._opened()
        self._disk.write(inode, len(inode.data), bytes(data))

    def read(self, position: int, length: int) -> bytes:
        data = self._opened().read(position, length)
        self._disk.bytes_read[self.path] += len(data)
        return data

    def read_at_once(self, position: int, length: int) -> bytes | None:
        cold_chance = self._disk.cold_chance
        if cold_chance and self._disk.random.random() < cold_chance:
            return None
        data = self.read(position, length)
        return data if len(data) == length else None

    def prefetch(self, position: int, length: int) -> None:
        self._opened()

    def overwrite(self, position: int, data: Buffer) -> None:
        self._disk.operation("overwrite", self.path)
        inode = self._opened()
        if self._disk.is_spoiled_for_good:
            inode.read(position, len(data))
        assert position + len(data) <= len(inode.data)
        inode.data[position : position + len(data)] = data
        inode.mark(position, position + len(data))

    def write_durably(self, position: int, data: Buffer) -> None:
        self.overwrite(position, data)
        self.sync()

    def truncate(self, size: int) -> None:
        self._disk.operation("truncate", self.path)
        inode = self._opened()
        assert size <= len(inode.data)
        del inode.data[size:]
        inode.size_min = min(inode.size_min, size)
        inode.unreadable = {page for page in inode.unreadable if page * PAGE_BYTES < size}

    def size(self) -> int:
        if self._inode is None and self._is_new and not self._disk.exists(self.path):
            return 0
        return len(self._opened().data)

    def sync(self) -> None:
        self._disk.operation("sync", self.path)
        self._disk.delay_sync()
        inode = self._opened()
        self._disk.fail_sync(inode)
        inode.sync()
        if self._is_new:
            self._disk.sync_names(self.path)
            self._is_new = False

    def pin(self) -> None:
        self._opened()

    def unpin(self) -> None:
        pass

    def retire(self) -> None:
        self._opened()

    def close(self) -> None:
        pass

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "A simulated file has no descriptor; read it instead.")

    def _opened(self) -> _Inode:
        assert self._life == self._disk.life, f"{self.path} is used after the crash of its disk"
        if self._inode is None:
            self._inode = self._disk.inode(self.path, create=self._is_new)
        return self._inode


class SimulatedDisk:
    """The `Disk` protocol in memory, with its faults as plain methods and fields."""

    def __init__(self, seed: int | random.Random = 0, *, survival: float = 0.5) -> None:
        self.random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self.survival = survival  # how likely an unsynced page or name survives a crash
        self.cold_chance = 0.0  # how likely bytes are not in memory
        self.life = 0
        self.bytes_read: Counter[str] = Counter()
        self.operations = 0
        self.operation_names: list[str] = []
        self.sync_delay_ms = 0.0
        self.is_spoiled_for_good = False  # what is unreadable cannot be replaced either
        self._delay_ms = 0.0
        self._syncs_to_fail = 0
        self._crash_at: int | None = None
        self._capacity_bytes: int | None = None
        self._reserve_bytes = 0
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._folders: set[str] = {""}
        self._durable_folders: set[str] = {""}
        self._changes: list[_NameChange] = []

    # Faults

    def crash(self) -> None:
        """Cut the power: whatever was not synced is there or not, as the seed decides."""
        for change in self._changes:
            if self.random.random() < self.survival:
                self._make_durable(change)
        inodes = dict.fromkeys(self._durable_names.values())
        for inode in inodes:
            inode.lose_unsynced(self.random, survival=self.survival)
        self._durable_names = {
            path: inode
            for path, inode in self._durable_names.items()
            if all(folder in self._durable_folders for folder in _parents(path))
        }
        self._names = dict(self._durable_names)
        # A folder is found only if all that lead to it are.
        self._durable_folders = {
            one for one in self._durable_folders if self._durable_folders.issuperset(_parents(one))
        }
        self._folders = set(self._durable_folders)
        self._changes.clear()
        self._crash_at = None
        self._syncs_to_fail = 0
        self.life += 1

    def crash_at(self, operation: int | None) -> None:
        """Raise `PowerLost` instead of the operation with this number, counted from now."""
        self._crash_at = None if operation is None else self.operations + operation

    def fill_after(self, bytes_left: int) -> None:
        """Be full after so many more bytes; the write that fills it is done in part."""
        self._capacity_bytes = self._used_bytes() + bytes_left

    def make_room(self) -> None:
        self._capacity_bytes = None

    def fail_syncs(self, count: int = 1) -> None:
        """Let the next syncs fail with EIO. What they were to sync never becomes durable."""
        self._syncs_to_fail = count

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage one bit of a file, as seen and as stored."""
        inode = self._names[path]
        for content in (inode.data, inode.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << (bit % 8)

    def spoil(self, path: str, position: int) -> None:
        """Make the page at a position unreadable, as a bad sector does, until it is written."""
        self._names[path].unreadable.add(position // PAGE_BYTES)

    def take_delay_ms(self) -> float:
        """How long the syncs since the last call were slowed down, for the clock to wait."""
        delay, self._delay_ms = self._delay_ms, 0.0
        return delay

    # The Disk protocol

    def open(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, path, None, is_new=False)

    def create(self, path: str, *, lazily: bool = False) -> SimulatedFile:
        if lazily:
            return SimulatedFile(self, path, None, is_new=True)
        self.operation("create", path)
        inode = self.inode(path, create=True)
        del inode.data[:]
        inode.size_min = 0
        return SimulatedFile(self, path, inode, is_new=True)

    def list(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        names = {
            name[len(prefix) :].split("/")[0]
            for name in (*self._names, *self._folders)
            if name.startswith(prefix) and name != path
        }
        return sorted(names - {""})

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._folders

    def rename(self, source: str, target: str) -> None:
        self.operation("rename", target)
        if source in self._folders:
            self._rename_folder(source, target)
            return
        inode = self._named(source)
        del self._names[source]
        self._change(_NameChange(target, inode, source))

    def remove(self, path: str) -> None:
        self.operation("remove", path)
        self._named(path)
        self._change(_NameChange(path, None))

    def remove_tree(self, path: str) -> None:
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inside = [name for name in self._names if name.startswith(f"{path}/")]
        for name in sorted(inside):
            self.remove(name)
        gone = {one for one in self._folders if one == path or one.startswith(f"{path}/")}
        self._folders -= gone
        self._durable_folders -= gone

    def sync_folder(self, path: str) -> None:
        self.operation("sync_folder", path)
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        for change in [one for one in self._changes if _folder(one.path) == path]:
            self._make_durable(change)
            self._changes.remove(change)
        self._durable_folders |= {one for one in self._folders if one and _folder(one) == path}

    def read_whole(self, path: str) -> bytes:
        inode = self._named(path)
        data = inode.read(0, len(inode.data))
        self.bytes_read[path] += len(data)
        return data

    def replace_whole(self, path: str, data: bytes, *, is_durable: bool = True) -> None:
        file = self.create(path + ".new")
        try:
            file.append(data)
        except OSError:
            self.remove(path + ".new")
            raise
        if is_durable:
            self.operation("sync", path + ".new")
            inode = self._named(path + ".new")
            self.fail_sync(inode)
            inode.sync()
        self.rename(path + ".new", path)
        if is_durable:
            self.sync_names(path)

    def total_bytes(self) -> int:
        return 1 << 41 if self._capacity_bytes is None else self._capacity_bytes

    def free_bytes(self) -> int:
        if self._capacity_bytes is None:
            return 1 << 40
        return max(0, self._capacity_bytes - self._used_bytes())

    def reserve_bytes(self) -> int:
        return self._reserve_bytes

    def set_reserve(self, size: int) -> None:
        if size - self._reserve_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._reserve_bytes = size

    # What the files ask of their disk

    def operation(self, kind: str, path: str) -> None:
        if self._crash_at is not None and self.operations >= self._crash_at:
            raise PowerLost(f"before {kind} {path}")
        self.operations += 1
        self.operation_names.append(f"{kind} {path}")

    def inode(self, path: str, *, create: bool) -> _Inode:
        if create and path not in self._names:
            self._folders.update(_parents(path))
            self._change(_NameChange(path, _Inode()))
        return self._named(path)

    def write(self, inode: _Inode, position: int, data: bytes) -> None:
        room = len(data) if self._capacity_bytes is None else self.free_bytes()
        inode.data[position:] = data[:room]
        inode.mark(position, position + min(room, len(data)))
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def delay_sync(self) -> None:
        self._delay_ms += self.sync_delay_ms

    def fail_sync(self, inode: _Inode) -> None:
        if self._syncs_to_fail:
            self._syncs_to_fail -= 1
            # As on Linux: the pages count as clean now, so a later sync does not write them.
            inode.dirty.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync_names(self, path: str) -> None:
        while path:
            path = _folder(path)
            self.sync_folder(path)

    def _rename_folder(self, source: str, target: str) -> None:
        """Move a folder with all that is in it; the move is durable at once."""

        def moved(path: str) -> str:
            is_inside = path == source or path.startswith(f"{source}/")
            return target + path[len(source) :] if is_inside else path

        self._names = {moved(path): inode for path, inode in self._names.items()}
        self._durable_names = {moved(path): inode for path, inode in self._durable_names.items()}
        self._folders = {moved(path) for path in self._folders}
        self._durable_folders = {moved(path) for path in self._durable_folders}
        for change in self._changes:
            change.path = moved(change.path)
            change.source = moved(change.source) if change.source is not None else None

    def _named(self, path: str) -> _Inode:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def _change(self, change: _NameChange) -> None:
        if change.inode is None:
            del self._names[change.path]
        else:
            self._names[change.path] = change.inode
        self._changes.append(change)

    def _make_durable(self, change: _NameChange) -> None:
        if change.source is not None:
            self._durable_names.pop(change.source, None)
        if change.inode is None:
            self._durable_names.pop(change.path, None)
        else:
            self._durable_names[change.path] = change.inode

    def _used_bytes(self) -> int:
        return self._reserve_bytes + sum(len(inode.data) for inode in self._names.values())


def _folder(path: str) -> str:
    return os.path.dirname(path)


def _parents(path: str) -> list[str]:
    """The folders that lead to a file, the root left out."""
    parents = []
    while path := _folder(path):
        parents.append(path)
    return parents
