"""Lines of `goqueue audit tail`."""

from __future__ import annotations

import json

from goqueue.cli.commands.audit import row_of
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session
from goqueue.tenancy.audit import events
from goqueue.tenancy.audit.merging import Merged
from goqueue.tenancy.audit.ocsf import Reporter, encode

REPORTER = Reporter(1, "cluster", "1.0")


def test_a_line_says_who_what_and_how_often() -> None:
    session = Session("kafka", "User:mallory\x1b[2J", client_host="10.0.0.7")
    resource = Resource(ResourceKind.TOPIC, "orders")
    denied = events.denied(session, Action.READ, resource, operation="partitions")
    event = json.loads(encode(Merged(denied, 3, 0, 0), REPORTER, "1"))
    assert row_of(event) == {
        "time": "1970-01-01T00:00:00.000Z",
        "user": "mallory�[2J",  # A terminal must not obey what a client has chosen.
        "from": "10.0.0.7",
        "operation": "partitions",
        "resources": "topic orders",
        "outcome": "denied",
        "times": 3,
    }


def test_events_of_the_node_have_a_line_too() -> None:
    started = events.of_node(events.START, serial=1)
    event = json.loads(encode(Merged(started, 1, 0, 0), REPORTER, "1"))
    row = row_of(event)
    assert (row["operation"], row["outcome"], row["user"]) == ("start", "success", "")
