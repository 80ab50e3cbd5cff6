"""Conversion of a single node into the first node of a cluster, with all its data."""

from __future__ import annotations

from goqueue.broker.controller.metadata import LocalLog
from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.topics.partition_files import PartitionFiles
from goqueue.cluster.metadata import Metadata
from goqueue.loop.clock import Clock
from goqueue.storage.commit_journal import CommitJournal
from goqueue.storage.disk import Disk

_LOG_FOLDER = "meta/log"


def facts_of_single_node(
    disk: Disk,
    clock: Clock,
    flusher: Flusher,
    commit_journal: CommitJournal,
    files: PartitionFiles,
) -> Metadata | None:
    """Return the metadata of a former single node; None if this was none or has nothing.

    Its folders are marked with the ids of their topics, as in a cluster: by these the following
    start finds what the commit journal still has for them.
    """
    if not disk.exists(_LOG_FOLDER):
        return None
    log = LocalLog(disk, clock, flusher, commit_journal)
    for partition in log.partitions:
        partition.close()
    for topic in log.metadata.topics():
        files.claim(topic)
    return log.metadata if any(True for _ in log.metadata.facts()) else None
