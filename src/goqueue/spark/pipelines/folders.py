"""Crash-safe folders: files are complete or absent, and one run works at a time.

Drivers and workers use the same folder, so on a cluster it is on a file system that all machines
mount. A file exists from the moment its name appears; its bytes are on disk before that.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.model.errors import GoQueueError, InvalidRequest

_LOCK = ".lock"
_START_WRITING = 2  # flag of sync_file_range: start writing, do not wait
_FRESH = ".fresh"  # suffix of an incomplete file


class FolderBusy(GoQueueError):
    """Another run works in this folder."""

    code = "folder_busy"
    retryable = True

    def __init__(self, folder: Path) -> None:
        super().__init__(f"Another run works in {folder}; wait for its end and start again.")


class FileTaken(GoQueueError):
    """A file of this name already exists."""

    code = "file_taken"

    def __init__(self, file: Path) -> None:
        super().__init__(f"{file} is there already: another run was faster. Start again.")


def folder_of(path: str | Path) -> Path:
    """Parse a folder given by a user: a path, or a file URI."""
    text = str(path)
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    scheme, colon, _ = text.partition("://")
    if colon:
        raise InvalidRequest(
            f"{scheme}:// cannot be written to; give a folder, on a cluster one that all of its "
            "machines have mounted."
        )
    if not text.strip():
        raise InvalidRequest("Name a folder.")
    folder = Path(text).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"{folder} is a file; name a folder.")
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other runs. The kernel releases the lock when its holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderBusy(folder) from None
        yield


def write_new(file: Path, data: bytes) -> None:
    """Create a file that must not exist yet; it appears complete or not at all."""
    fresh = _write_fresh(file, data)
    try:
        os.link(fresh, file)
    except FileExistsError:
        raise FileTaken(file) from None
    finally:
        fresh.unlink()
    sync_folder(file.parent)


def write_over(file: Path, data: bytes) -> None:
    """Create or replace a file; readers see the old one or the new one."""
    fresh = _write_fresh(file, data)
    fresh.replace(file)
    sync_folder(file.parent)


def begin_sync(file: Path) -> None:
    """Start writing a file's bytes to disk in the background, so that `sync_file` waits less.

    Guarantees nothing, and does nothing if the system lacks the call.
    """
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is None:
        return
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    with file.open("rb") as opened:
        call(opened.fileno(), 0, 0, _START_WRITING)  # Zero means up to the end.


def sync_file(file: Path) -> None:
    """Sync the bytes of a closed file to disk."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_fresh(file: Path) -> bool:
    """Return whether a file is an incomplete one left by a crash."""
    return file.name.endswith(_FRESH)


def _write_fresh(file: Path, data: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}{_FRESH}")
    with fresh.open("wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    return fresh
