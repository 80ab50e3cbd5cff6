"""The store of backups: what a folder or an object store must offer, and the backups in it.

Files have names with slashes, are written once and as a whole, and never change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from goqueue.backups.manifest import (
    MANIFESTS,
    Manifest,
    decode_manifest,
    encode_manifest,
    id_in_name,
    manifest_name,
)
from goqueue.model.errors import GoQueueError, InvalidRequest


class Part(Protocol):
    """A file that has no name yet."""

    def append(self, data: bytes) -> None: ...

    def finish(self, name: str) -> None:
        """Make the content durable, then the name."""


class Store(ABC):
    """Files by name, and the backups that they are. Messages of errors name it by `str()`."""

    @abstractmethod
    def open_for_writing(self) -> AbstractContextManager[None]:
        """Create the store if missing, and keep others from writing to it meanwhile."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Part]:
        """Write a file whose name is known at its end; without a name nothing stays of it."""

    @abstractmethod
    def read(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file; raise FileNotFoundError if there is none."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of a file; None if there is none."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """Return the sorted names of the files directly below `prefix`."""

    def write(self, name: str, data: Iterable[bytes]) -> None:
        """Write a file under its final name only when all of it is durable."""
        with self.writing() as part:
            for some in data:
                part.append(some)
            part.finish(name)

    # Backups

    def ids(self) -> list[str]:
        """Return the ids of all backups, the oldest first."""
        found = (id_in_name(name) for name in self.names(MANIFESTS))
        return sorted(one for one in found if one is not None)

    def load(self, backup_id: str) -> Manifest:
        """Return a backup; raise if there is none, or its manifest is damaged."""
        name = manifest_name(backup_id)
        try:
            data = b"".join(self.read(name))
        except FileNotFoundError:
            known = ", ".join(self.ids()) or "none"
            raise InvalidRequest(
                f"There is no backup {backup_id} in {self}; known: {known}."
            ) from None
        return decode_manifest(data, name=f"{self}/{name}")

    def usable(self) -> list[Manifest]:
        """Return the backups whose manifests can be read, the newest first."""
        found = []
        for backup_id in reversed(self.ids()):
            try:
                found.append(self.load(backup_id))
            except GoQueueError:
                continue  # `list` and `verify` report it.
        return found

    def add(self, manifest: Manifest) -> None:
        """Record a backup whose objects are all stored. It exists from then on."""
        self.write(manifest_name(manifest.id), [encode_manifest(manifest)])
