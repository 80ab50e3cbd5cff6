"""`goqueue cluster`: nodes and their health, reassignment of partitions, quorum voters."""

from goqueue.cli.commands.cluster.nodes import app

__all__ = ["app"]
