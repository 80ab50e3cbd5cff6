"""Outgoing messages, in two queues."""

from __future__ import annotations

from goqueue.cluster.raft.messages import Message


class Outbox:
    """Messages that make a promise wait until it is on disk; the others are sent at once."""

    def __init__(self) -> None:
        self._now: list[Message] = []
        self._after_saving: list[Message] = []

    def send_now(self, message: Message) -> None:
        self._now.append(message)

    def send_after_saving(self, message: Message) -> None:
        self._after_saving.append(message)

    def take(self) -> tuple[list[Message], list[Message]]:
        """Return the messages to send now, and those to send after saving."""
        taken = self._now, self._after_saving
        self._now, self._after_saving = [], []
        return taken
