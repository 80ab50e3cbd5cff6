"""Reading: from the disk, from the page cache, and behind a running producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import limits
from bench.load import consume, fill, follow, raw_fetch
from bench.plan import PARTITIONS, PAYLOAD_BYTES, PAYLOAD_NAMES
from bench.processes import LoadFailed
from bench.report import MESSAGES, Outcome, Runs, Section, at_least, times_at_least
from bench.session import EVERY, KAFKA, Case, Session
from bench.systems import System
from bench.topics import Topic, create_topic, delete_topic, end_offsets, evict, fresh_topic

SENDFILE = "loopback sendfile"
READERS = ("C", "Python", "raw")
READER_NAMES = {"C": "C client", "Python": "Python client", "raw": "raw fetch, records not decoded"}
SOURCES = ("disk", "page cache")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A filled topic."""

    system: System
    topic: Topic
    ends: list[int]
    message_bytes: float  # on the wire, with its share of the batch header


def measure(session: Session) -> None:
    """Both sizes by each kind of reader, and a consumer close behind a producer."""
    section = session.section("Consume, 6 partitions")
    section.notes += [
        "Loopback sendfile moves the same bytes with no protocol and no client: "
        "its figure is bytes per second over the size of a stored message.",
        "From disk: the topic's files are dropped from the page cache before each run; "
        "the host of a virtual machine may still hold them.",
        "Readers of 100 B have one core: on two the threads of librdkafka slow one another.",
        "Behind a running producer: producer, broker and consumer share the machine's cores.",
    ]
    for size in PAYLOAD_BYTES:
        _measure_size(session, section, size)
        _measure_follow(session, section, size)


def _measure_size(session: Session, section: Section, size: int) -> None:
    topics: dict[str, Loaded] = {}
    names = session.with_peers(EVERY)
    cases: dict[str, Case] = {SENDFILE: lambda: _sendfile(session, topics, size)}
    for name in names:
        for reader in READERS:
            for source in SOURCES:
                cases[f"{name}, {reader}, {source}"] = partial(
                    _read, session, topics, name, reader, source, size
                )
    try:
        runs = session.in_turns(f"consume {PAYLOAD_NAMES[size]}", cases)
    finally:
        for loaded in topics.values():
            delete_topic(loaded.system, loaded.topic)
    for reader in READERS:
        for source in SOURCES:
            row = f"consume {PAYLOAD_NAMES[size]} from {source}, {READER_NAMES[reader]}"
            mine = runs[f"{EVERY}, {reader}, {source}"]
            peer = runs.get(f"{KAFKA}, {reader}, {source}")
            has_floor = reader == "C" and size == 1000
            # Where decoding small records is most of the work, the limit says little.
            has_aim = reader != "Python" and size == 1000
            _add_lines(section, row, mine, runs[SENDFILE], peer, has_floor, has_aim)


def _add_lines(
    section: Section,
    row: str,
    mine: Runs,
    limit: Runs,
    peer: Runs | None,
    has_floor: bool,
    has_aim: bool,
) -> None:
    add: Callable[..., None] = partial(section.add, row, mine, "messages_per_s", MESSAGES)
    if has_floor:
        add(target=at_least(500_000, "500 k msg/s"))
    add(reference=limit, target=times_at_least(0.8, "aim") if has_aim else None)
    if peer is not None:
        add(reference=peer, target=times_at_least(1.0))


def _read(
    session: Session, topics: dict[str, Loaded], name: str, reader: str, source: str, size: int
) -> Outcome:
    system = session.system(name)
    loaded = topics.get(name)
    if loaded is None:
        loaded = topics[name] = _load(session, system, size)
    if source == "disk":
        evict(system, loaded.topic)
    if reader == "raw":
        return raw_fetch(session.tools, system, loaded.topic, loaded.ends)
    count = sum(loaded.ends)
    return consume(session.tools, reader, system, loaded.topic, count=count, size=size)


def _load(session: Session, system: System, size: int) -> Loaded:
    topic = create_topic(system, PARTITIONS)
    count = session.plan.messages("C", size)
    outcome = fill(session.tools, system, topic, count=count, size=size, held=0)
    if outcome.void:
        raise LoadFailed(f"the topic could not be filled: {outcome.void}")
    ends = end_offsets(system, topic)
    read = raw_fetch(session.tools, system, topic, ends)
    if read.void:
        raise LoadFailed(f"the topic could not be read back: {read.void}")
    return Loaded(system, topic, ends, read.values["message_bytes"])


def _sendfile(session: Session, topics: dict[str, Loaded], size: int) -> Outcome:
    speed = limits.loopback_sendfile(session.work, session.plan.limit_bytes)
    loaded = topics.get(EVERY)
    # Before the topic is filled the payload stands in; records add about one hundredth at 1 KB.
    message_bytes = loaded.message_bytes if loaded else size + 10
    return Outcome({"messages_per_s": speed * 1e9 / message_bytes})


def _measure_follow(session: Session, section: Section, size: int) -> None:
    row = f"consume {PAYLOAD_NAMES[size]} behind a running producer, C client"
    cases = {name: partial(_follow, session, name, size) for name in session.with_peers(EVERY)}
    runs = session.in_turns(f"tail {PAYLOAD_NAMES[size]}", cases)
    target = at_least(500_000, "500 k msg/s") if size == 1000 else None
    section.add(row, runs[EVERY], "messages_per_s", MESSAGES, target=target)
    if KAFKA in runs:
        section.add(
            row,
            runs[EVERY],
            "messages_per_s",
            MESSAGES,
            reference=runs[KAFKA],
            target=times_at_least(1.0),
        )


def _follow(session: Session, name: str, size: int) -> Outcome:
    system = session.system(name)
    with fresh_topic(system, PARTITIONS) as topic:
        count = session.plan.messages("C", size)
        return follow(session.tools, system, topic, count=count, size=size)
