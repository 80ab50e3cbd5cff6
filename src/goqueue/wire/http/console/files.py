"""The built files of the console: which there are, and how browsers may keep them."""

from __future__ import annotations

import re
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

INDEX = "index.html"
FILE_BYTES_MAX = 4 << 20  # a larger file is not part of the console
FILES_MAX = 200  # in memory; those built before an upgrade are forgotten

IMMUTABLE = b"public, max-age=31536000, immutable"
REVALIDATED = b"no-cache"

# No part begins with a dot, so no path leaves the folder.
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,5}")
# As esbuild writes it: eight characters of base 32; or a hexadecimal hash.
_HASH = re.compile(r"-(?:[A-Z2-7]{8}|[0-9a-f]{8,64})\.")
_MEDIA_TYPES = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "ico": b"image/x-icon",
    "js": b"text/javascript; charset=utf-8",
    "json": b"application/json",
    "map": b"application/json",
    "png": b"image/png",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
    "webmanifest": b"application/manifest+json",
    "woff2": b"font/woff2",
}


class BuiltFile(NamedTuple):
    """A file as it is sent."""

    content: bytes
    compressed: bytes | None  # by gzip, if that was built too
    media_type: bytes
    etag: bytes
    is_immutable: bool  # its name contains a hash of its content
    stamp: tuple[int, int]  # time and size of the file, and so of what was read


class BuiltFiles:
    """The files in a folder, read at their first request, and again when they have changed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._read: dict[str, BuiltFile] = {}

    def find(self, path: str) -> BuiltFile | None:
        """Return a file by its path in the folder; None if the console has none of that name."""
        media_type = _MEDIA_TYPES.get(path.rpartition(".")[2])
        if media_type is None or not _PATH.fullmatch(path):
            return None
        if self._folder is None:
            self._folder = Path(str(files("goqueue").joinpath("console", "static")))
        file = self._folder / path
        try:
            found = file.stat()
        except OSError:
            return None
        stamp = found.st_mtime_ns, found.st_size
        known = self._read.get(path)
        if known is not None and known.stamp == stamp:
            return known
        if not file.is_file() or found.st_size > FILE_BYTES_MAX:
            return None
        if len(self._read) >= FILES_MAX:
            self._read.clear()
        read = self._read[path] = _read(file, media_type, stamp)
        return read


def _read(file: Path, media_type: bytes, stamp: tuple[int, int]) -> BuiltFile:
    content = file.read_bytes()
    packed = file.with_name(f"{file.name}.gz")
    return BuiltFile(
        content,
        packed.read_bytes() if packed.is_file() else None,
        media_type,
        b'"%s"' % blake2b(content, digest_size=12).hexdigest().encode(),
        _HASH.search(file.name) is not None,
        stamp,
    )
