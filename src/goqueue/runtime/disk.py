"""The data folder on a real disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections import OrderedDict
from contextlib import suppress

from goqueue.model.compression import Buffer

_RESERVE = ".reserve"
_AT_ONCE = getattr(os, "RWF_NOWAIT", 0)  # Linux only; elsewhere reads may block on the disk.


class LocalFile:
    """A file whose descriptor is opened at its first use and closed when others need one.

    The event loop reads it and appends to it, threads sync it; `_pins` keeps the descriptor open
    while a thread or a socket uses it. A retired file keeps its descriptor until it is dropped,
    because its name may refer to another file or to none.
    """

    __slots__ = ("_disk", "_fd", "_is_new", "_is_retired", "_overwriting_fd", "_pins", "path")

    def __init__(self, disk: LocalDisk, path: str, *, is_new: bool) -> None:
        self._disk = disk
        self._fd = -1
        self._overwriting_fd = -1
        self._is_new = is_new
        self._is_retired = False
        self._pins = 0
        self.path = path

    def append(self, data: Buffer) -> None:
        fd = self.fileno()
        piece = self._disk.write_piece_bytes
        size = len(data)
        # Small writes are frequent, so they avoid slices.
        written = os.write(fd, data) if size <= piece else 0
        if written == size:
            return
        view = memoryview(data)
        # Large writes to the page cache are slower per byte than pieces that fit the CPU's cache.
        while written < size:
            written += os.write(fd, view[written : written + piece])

    def read(self, position: int, length: int) -> bytes:
        fd = self.fileno()
        try:
            data = os.pread(fd, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length:
                data = os.pread(fd, length - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
        except OSError as error:
            # Where the disk is broken it must be known which file that concerns.
            raise OSError(error.errno, error.strerror, self.path) from None
        return b"".join(parts)

    def read_at_once(self, position: int, length: int) -> bytes | None:
        buffer = bytearray(length)
        try:
            got = os.preadv(self.fileno(), [buffer], position, _AT_ONCE)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            # Not supported by this file system or operating system, so the read may block.
            data = self.read(position, length)
            return data if len(data) == length else None
        return bytes(buffer) if got == length else None

    def prefetch(self, position: int, length: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fileno(), position, length, os.POSIX_FADV_WILLNEED)

    def overwrite(self, position: int, data: bytes) -> None:
        # The descriptor is in append mode, where positioned writes would land at the end.
        fd = os.open(self._disk.full(self.path), os.O_WRONLY)
        try:
            _write_all(fd, position, data)
        finally:
            os.close(fd)

    def write_durably(self, position: int, data: Buffer) -> None:
        if self._overwriting_fd < 0:
            path = self._disk.full(self.path)
            self._overwriting_fd = os.open(path, os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC)
        _write_all(self._overwriting_fd, position, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def size(self) -> int:
        if self._fd >= 0:
            return os.fstat(self._fd).st_size
        try:
            return os.stat(self._disk.full(self.path)).st_size
        except FileNotFoundError:
            if self._is_new:
                return 0
            raise

    def sync(self) -> None:
        self.pin()
        try:
            os.fdatasync(self.fileno())
        finally:
            self.unpin()
        if self._is_new and not self._is_retired:
            self._disk.sync_names(self.path)
            self._is_new = False

    def fileno(self) -> int:
        fd = self._fd
        return fd if fd >= 0 else self._open()

    def pin(self) -> None:
        with self._disk.lock:
            self._disk.pinned += not self._pins
            self._pins += 1
            try:
                self.fileno()
            except OSError:
                self.unpin()
                raise

    def try_pin(self) -> bool:
        """Pin the descriptor unless too many are pinned; return whether it is pinned."""
        with self._disk.lock:
            if not self._pins and not self._disk.has_room_for_pins:
                return False
            self.pin()
            return True

    def unpin(self) -> None:
        with self._disk.lock:
            self._pins -= 1
            self._disk.pinned -= not self._pins

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    def retire(self) -> None:
        with self._disk.lock:
            self.fileno()
            self._is_retired = True
            self._disk.closed(self)

    def close(self) -> None:
        with self._disk.lock:
            if self._is_retired or self._pins:
                return
            self._disk.closed(self)
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _open(self) -> int:
        # Threads and the event loop may need the same file at once; one of them opens it.
        with self._disk.lock:
            if self._fd < 0:
                self._fd = self._disk.descriptor(self.path, create=self._is_new)
                self._disk.opened(self)
            return self._fd

    def __del__(self) -> None:
        for fd in (self._fd, self._overwriting_fd):
            if fd >= 0:
                os.close(fd)


class LocalDisk:
    """Files below one root folder, with a limit on open descriptors.

    Files belong to the thread that created the disk, that of the event loop. Only this thread
    closes descriptors to stay within the limit, so it never loses one that it is using. Other
    threads pin files that they share with it, and close those that they open themselves.
    """

    def __init__(
        self, root: str, *, open_files_max: int = 2048, write_piece_bytes: int = 256 << 10
    ) -> None:
        self.root = os.path.abspath(root)
        self.write_piece_bytes = write_piece_bytes
        self.lock = threading.RLock()
        self._owner = threading.get_ident()
        self._open_files_max = open_files_max
        self._open: OrderedDict[int, LocalFile] = OrderedDict()
        self.pinned = 0  # files that must stay open
        os.makedirs(self.root, exist_ok=True)

    @property
    def has_room_for_pins(self) -> bool:
        """Whether another file may be pinned; half of the descriptors remain for other files."""
        return self.pinned < self._open_files_max // 2

    def full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def open(self, path: str) -> LocalFile:
        return LocalFile(self, path, is_new=False)

    def create(self, path: str, *, lazily: bool = False) -> LocalFile:
        file = LocalFile(self, path, is_new=True)
        if not lazily:
            file.truncate(0)
        return file

    def descriptor(self, path: str, *, create: bool) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if not create:
            return os.open(self.full(path), flags)
        try:
            return os.open(self.full(path), flags | os.O_CREAT, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.full(path)), exist_ok=True)
            return os.open(self.full(path), flags | os.O_CREAT, 0o600)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.full(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self.full(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(self.full(source), self.full(target))

    def remove(self, path: str) -> None:
        os.unlink(self.full(path))

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(self.full(path), ignore_errors=False)

    def sync_folder(self, path: str) -> None:
        fd = os.open(self.full(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_whole(self, path: str) -> bytes:
        with open(self.full(path), "rb") as file:
            return file.read()

    def replace_whole(self, path: str, data: bytes, *, is_durable: bool = True) -> None:
        full = self.full(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        try:
            with open(full + ".new", "wb") as file:
                file.write(data)
                if is_durable:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            # If it could not be opened, there is nothing to remove.
            with suppress(FileNotFoundError):
                os.unlink(full + ".new")
            raise
        os.replace(full + ".new", full)
        if is_durable:
            self.sync_names(path)

    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def reserve_bytes(self) -> int:
        try:
            return os.stat(self.full(_RESERVE)).st_size
        except FileNotFoundError:
            return 0

    def set_reserve(self, size: int) -> None:
        path = self.full(_RESERVE)
        if not size:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, min(size, os.fstat(fd).st_size))
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.unlink(path)  # A file without reserved blocks must not be taken for a reserve.
            raise
        finally:
            os.close(fd)

    def total_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_blocks * status.f_frsize

    def opened(self, file: LocalFile) -> None:
        """Register an open file; beyond the limit close the one opened longest ago."""
        with self.lock:
            is_owner = threading.get_ident() == self._owner
            if is_owner or file.is_pinned:
                self._open[id(file)] = file
            if not is_owner or len(self._open) <= self._open_files_max:
                return
            unused = (one for one in self._open.values() if one is not file and not one.is_pinned)
            oldest = next(unused, None)
            if oldest is not None:
                oldest.close()

    def closed(self, file: LocalFile) -> None:
        with self.lock:
            self._open.pop(id(file), None)

    def sync_names(self, path: str) -> None:
        """Sync the directory entries of a file and of its parent folders."""
        while path:
            path = os.path.dirname(path)
            self.sync_folder(path)


def _write_all(fd: int, position: int, data: Buffer) -> None:
    view = memoryview(data)
    written = 0
    while written < len(view):
        written += os.pwrite(fd, view[written:], position + written)
