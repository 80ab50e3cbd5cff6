"""`goqueue queue`: receive and settle messages, manage queue groups, redrive dead letters."""

from goqueue.cli.commands.queue.messages import app

__all__ = ["app"]
