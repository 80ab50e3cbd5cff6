"""The machine itself, measured in the same run as everything else."""

from __future__ import annotations

from bench import limits
from bench.report import GIGABYTES, MILLISECONDS, Outcome
from bench.session import Session


def measure(session: Session) -> None:
    """Page cache, disk, loopback and checksum."""
    plan, work = session.plan, session.work

    def sync() -> Outcome:
        p50, p99 = limits.fdatasync_ms(work, plan.limit_syncs)
        return Outcome({"p50_ms": p50, "p99_ms": p99})

    runs = session.in_turns(
        "limits",
        {
            "write": lambda: _speed(limits.page_cache_write(work, plan.limit_write_bytes)),
            "fdatasync": sync,
            "loopback": lambda: _speed(limits.loopback_send(plan.limit_bytes)),
            "sendfile": lambda: _speed(limits.loopback_sendfile(work, plan.limit_bytes)),
            "crc": lambda: _speed(limits.checksum(plan.limit_bytes)),
        },
    )
    section = session.section("Limits of this machine")
    section.add("page-cache write, 256 KB pieces", runs["write"], "speed", GIGABYTES)
    section.add("fdatasync after 4 KB, p50", runs["fdatasync"], "p50_ms", MILLISECONDS)
    section.add("fdatasync after 4 KB, p99", runs["fdatasync"], "p99_ms", MILLISECONDS)
    section.add("loopback send and receive", runs["loopback"], "speed", GIGABYTES)
    section.add("loopback sendfile", runs["sendfile"], "speed", GIGABYTES)
    section.add("CRC-32C, one thread", runs["crc"], "speed", GIGABYTES)


def _speed(value: float) -> Outcome:
    return Outcome({"speed": value})
