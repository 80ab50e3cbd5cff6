"""Topics for the runs, made and counted through the admin API of a stock client."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from bench.systems import System

ADMIN_SECONDS_MAX = 60
LEADERS_SECONDS_MAX = 1.0
# Thousands of partitions on a busy machine: what a peer takes for that is no part of a figure.
LED_SECONDS_MAX = 240
POLL_SECONDS = 0.02
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of one system."""

    name: str
    partitions: int


@contextlib.contextmanager
def fresh_topic(
    system: System, partitions: int, config: Mapping[str, str] | None = None, *, replicas: int = 1
) -> Iterator[Topic]:
    """A new topic, deleted afterwards so that runs do not fill the disk."""
    topic = create_topic(system, partitions, config, replicas=replicas)
    try:
        yield topic
    finally:
        delete_topic(system, topic)


def create_topic(
    system: System, partitions: int, config: Mapping[str, str] | None = None, *, replicas: int = 1
) -> Topic:
    """A new topic; a sink has every topic already."""
    topic = Topic(f"bench-{next(_numbers)}", partitions)
    if system.is_storing:
        new = NewTopic(topic.name, partitions, replicas, config=dict(config or {}))
        for done in _admin(system).create_topics([new]).values():
            done.result(ADMIN_SECONDS_MAX)
        wait_until_led(system, topic)
    return topic


def wait_until_led(system: System, topic: Topic) -> None:
    """A topic exists before its leaders know that they lead: wait until each has answered."""
    deadline = time.monotonic() + LED_SECONDS_MAX
    while True:
        try:
            end_offsets(system, topic, seconds_max=LEADERS_SECONDS_MAX)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            # A client that has once seen no leader asks again only after a while; a new one asks.
            _admins.pop(system.bootstrap, None)
            time.sleep(POLL_SECONDS)


def delete_topic(system: System, topic: Topic) -> None:
    """Delete a topic. A failure costs disk space and nothing else, so it is not one."""
    if system.is_storing:
        for done in _admin(system).delete_topics([topic.name]).values():
            with contextlib.suppress(Exception):
                done.result(ADMIN_SECONDS_MAX)


def end_offsets(system: System, topic: Topic, seconds_max: float = ADMIN_SECONDS_MAX) -> list[int]:
    """The end offset of every partition, in order."""
    wanted = {
        TopicPartition(topic.name, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for partition in range(topic.partitions)
    }
    found = _admin(system).list_offsets(wanted, request_timeout=seconds_max)
    ends = {key.partition: done.result(ADMIN_SECONDS_MAX).offset for key, done in found.items()}
    return [ends[partition] for partition in range(topic.partitions)]


def miscount(system: System, topic: Topic, acked: int) -> str:
    """Why the stored messages are not those acknowledged; empty when they are."""
    if not system.is_storing:
        return ""
    stored = sum(end_offsets(system, topic))
    return "" if stored == acked else f"acknowledged {acked:,}, stored {stored:,}"


def evict(system: System, topic: Topic) -> None:
    """Drop the topic's files from the page cache, so that the next read comes from the disk."""
    for path in _files(system.data_dir, topic):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # only clean pages can be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _files(data_dir: Path, topic: Topic) -> list[Path]:
    """Segment files, whether the partition is part of the folder's name or a folder of its own."""
    # Deleted topics vanish while one looks, and so do their folders.
    return [
        Path(folder, name)
        for folder, _, names in os.walk(data_dir)
        if Path(folder).name.rpartition("-")[0] == topic.name
        or Path(folder).parent.name == topic.name
        for name in names
        if name.endswith(".log")
    ]


_admins: dict[str, AdminClient] = {}


def _admin(system: System) -> AdminClient:
    admin = _admins.get(system.bootstrap)
    if admin is None:
        admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
        _admins[system.bootstrap] = admin
    return admin
