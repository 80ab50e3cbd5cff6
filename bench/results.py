"""Results as they are kept: written by a run, read by the page and the pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What others are called where GoQueue is compared with them. All else it is compared with is a
# limit of the machine or of the client, or GoQueue itself under other circumstances.
PEER_NAMES = (
    *("Apache Kafka", "three Apache Kafka brokers", "RabbitMQ", "NATS", "Redis"),
    *("moto's server", "ElasticMQ"),
)
# Results of before knew sections by their titles alone.
_ROWS_BY_TITLE = (
    ("Limits", "limits"),
    ("Produce, acks", "produce"),
    ("Produce, fsync", "durable"),
    ("Produce with schemas", "schemas"),
    ("Consume", "consume"),
    ("One record", "single"),
    ("One outstanding", "publish"),
    ("End to end", "endtoend"),
    ("HTTP publish", "http"),
    ("Queue groups", "queues"),
    ("Queue group end", "receive"),
    ("SQS", "sqs"),
    ("Schedules", "schedules"),
    ("Spark", "spark"),
    ("Cluster", "cluster"),
    ("Growth", "growth"),
    ("Memory", "memory"),
    ("Start-up", "startup"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One run of the benchmark."""

    name: str
    facts: Mapping[str, Any]
    sections: Sequence[Mapping[str, Any]]

    @property
    def commit(self) -> str:
        return str(self.facts["commit"])[:10]

    @property
    def date(self) -> str:
        """The day and time in the name of the file, which is UTC."""
        found = re.match(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)", self.name)
        return "{}-{}-{} {}:{}".format(*found.groups()) if found else self.name

    @property
    def is_quick(self) -> bool:
        return bool(self.facts["settings"].get("quick"))


def write(path: Path, facts: Mapping[str, Any], sections: Sequence[Mapping[str, Any]]) -> None:
    """Keep a run as JSON."""
    text = json.dumps({**facts, "sections": list(sections)}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n")


def read(path: Path) -> Result:
    """A run that was kept, in the form of now or of before."""
    facts = json.loads(path.read_text())
    sections = facts.pop("sections")
    if isinstance(sections, dict):
        sections = [_from_before(title, lines) for title, lines in sections.items()]
    return Result(path.stem, facts, sections)


def is_peer(name: str | None) -> bool:
    """Whether this is another product."""
    return name is not None and name.startswith(PEER_NAMES)


def slug(text: str) -> str:
    """A title as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("µ", "u")).strip("-")


def _from_before(title: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row = next((row for start, row in _ROWS_BY_TITLE if title.startswith(start)), slug(title))
    added = {"reference": None, "server_us": None, "client_us": None, "point": None}
    return {
        "row": row,
        "title": title,
        "notes": [],
        "lines": [{**added, **line} for line in lines],
        "usage": [],
    }
