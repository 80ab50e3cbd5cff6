"""The classes that all errors derive from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self


class GoQueueError(Exception):
    """Anything a caller can act on. The text is written for that caller."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    @classmethod
    def kinds(cls) -> Iterator[type[Self]]:
        """Yield this class and those below it, as far as they are loaded."""
        yield cls
        for kind in cls.__subclasses__():
            yield from kind.kinds()

    @classmethod
    def with_text(cls, text: str) -> Self:
        """Return an error whose text was written elsewhere, such as by another node.

        The arguments from which the class makes its text are not known.
        """
        error = cls.__new__(cls, text)
        Exception.__init__(error, text)
        return error


class RecordFaults(Exception):
    """Part of an error about a batch: `faults` has what is wrong with some of its records."""

    def __init__(self, text: str, faults: Mapping[int, str] | None = None) -> None:
        self.faults = dict(faults or {})
        super().__init__(text)
