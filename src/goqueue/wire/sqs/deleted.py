"""Receipts of messages that were deleted lately, to know a call that is made once more."""

from __future__ import annotations

RECEIPTS_MAX = 10_000  # the oldest go first


class Deleted:
    """The last receipts that messages were deleted by."""

    def __init__(self) -> None:
        self._receipts: dict[str, None] = {}

    def __contains__(self, receipt: str) -> bool:
        return receipt in self._receipts

    def add(self, receipt: str) -> None:
        if len(self._receipts) >= RECEIPTS_MAX:
            del self._receipts[next(iter(self._receipts))]
        self._receipts[receipt] = None
