"""Creates and locks the data directory of a node, and explains why it cannot be used."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.model.errors import InvalidSettings

FOLDER_MODE = 0o700
RESTORING = "restoring"  # a file that exists while a backup is restored into the folder
_log = logging.getLogger(__name__)

_ELSEWHERE = "choose another directory with --data-dir"
_REMEDIES = {
    errno.EACCES: f"let the user that runs the node own it (chown), or {_ELSEWHERE}",
    errno.EPERM: f"let the user that runs the node own it (chown), or {_ELSEWHERE}",
    errno.EROFS: f"mount the file system for writing, or {_ELSEWHERE}",
    errno.ENOSPC: f"free space on the disk, or {_ELSEWHERE}",
    errno.EDQUOT: f"free space on the disk, or {_ELSEWHERE}",
    errno.EIO: (
        "the disk may be broken, see the kernel's log (dmesg). Copy the directory to another disk, "
        "and restore from a backup what cannot be copied. To start without a partition that cannot "
        "be read, move its folder away; without the commit journal, its file. Records that only "
        "these have are then lost"
    ),
}


@contextmanager
def data_folder(folder: Path, *, is_restoring: bool = False) -> Iterator[None]:
    """Create and lock the data directory; a second node on it is refused."""
    with explained(folder):
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _close_to_others(folder)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(fd, folder)
        if not is_restoring and (folder / RESTORING).exists():
            raise InvalidSettings(
                [
                    f"node.data_dir: the restore of a backup into {folder} was interrupted; run it "
                    "again"
                ]
            )
        yield
    finally:
        os.close(fd)


def _close_to_others(folder: Path) -> None:
    """Deny access to other users of the machine, also to files created from now on."""
    os.umask(0o077)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & 0o077:
        return
    try:
        folder.chmod(FOLDER_MODE)
    except PermissionError:
        # A mounted folder may belong to another user, who sets its permissions.
        _log.warning("%s belongs to another user and is open to others (%03o)", folder, mode)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an error of the operating system about the data directory into advice."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        blocking = next(one for one in (folder, *folder.parents) if one.exists())
        raise InvalidSettings(
            [f"node.data_dir: {blocking} is a file, not a directory; {_ELSEWHERE}"]
        ) from None
    except OSError as error:
        raise InvalidSettings([_reason(folder, error)]) from error


def _reason(folder: Path, error: OSError) -> str:
    about = error.filename
    place = f" ({about})" if about is not None and str(about) != str(folder) else ""
    remedy = _REMEDIES.get(error.errno or 0, _ELSEWHERE)
    return f"node.data_dir: {folder} cannot be used: {error.strerror}{place}; {remedy}"


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidSettings(
            [
                f"node.data_dir: {folder} is in use by another node; stop that one, or choose "
                "another directory with --data-dir."
            ]
        ) from None
