"""Results made by hand, for tests of what is told about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report import MESSAGES, Outcome, Runs, Section, times_at_least
from bench.results import Result
from bench.usage import Usage

EVERY = "GoQueue, fsync every"
KAFKA = "Apache Kafka"


def usage(*, server_s: float, messages: int = 1_000_000, what: str = "produce") -> Usage:
    return Usage(
        what=what,
        messages=messages,
        server_cpu_s=server_s,
        server_peak_bytes=64_000_000,
        client_cpu_s=0.5,
        client_peak_bytes=8_000_000,
    )


def runs(label: str, *speeds: float, server_s: float = 1.0) -> Runs:
    taken = (usage(server_s=server_s),)
    return Runs(label, [Outcome({"messages_per_s": each}, usages=taken) for each in speeds])


def produce_section(
    ours: Sequence[float], theirs: Sequence[float], title: str = "Produce"
) -> Section:
    section = Section(title, row="produce", notes=["One message at a time is not like for like."])
    section.add(
        f"produce 1 KB, {EVERY}",
        runs(EVERY, *ours, server_s=2.0),
        "messages_per_s",
        MESSAGES,
        reference=runs(KAFKA, *theirs, server_s=3.0),
        target=times_at_least(1.0),
    )
    return section


def result(name: str, *sections: dict[str, Any], quick: bool = False) -> Result:
    facts = {
        "commit": "0123456789abcdef",
        "local_changes": False,
        "processor": "a processor",
        "cores": 2,
        "settings": {"repeat": 3, "quick": quick},
        "versions": {"apache_kafka": "4.3.1"},
    }
    return Result(name, facts, sections)
