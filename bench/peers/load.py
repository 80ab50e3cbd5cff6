"""Runs of the peers' own clients: a queue is filled, then consumed with acknowledgements."""

from __future__ import annotations

import itertools

from bench.clients.build import Toolbox
from bench.load import RUN_SECONDS_MAX, complaint, run
from bench.peers import Peer
from bench.processes import cpu_seconds
from bench.report import Outcome

_numbers = itertools.count(1)


def consume_from_peer(
    tools: Toolbox, peer: Peer, *, consumers: int, at_once: int, count: int, size: int
) -> Outcome:
    """Fill a new queue and consume it; each message exactly once, each acknowledged."""
    host, port = peer.address.rsplit(":", 1)
    program = peer.client(tools)
    common = [
        *("--host", host, "--port", port, "--queue", f"bench-{next(_numbers)}"),
        *("--count", str(count), "--size", str(size), "--seconds-max", str(RUN_SECONDS_MAX)),
    ]
    filled = run([*program, "fill", *common])
    if complaint(filled):
        return Outcome({}, f"the queue could not be filled: {complaint(filled)}")
    batches = ("--consumers", str(consumers), "--batch", str(at_once))
    before = cpu_seconds(peer.pid)
    result = run([*program, "consume", *common, *batches, "--prefetch", str(2 * at_once)])
    broker_cpu = cpu_seconds(peer.pid) - before
    values = {
        "messages_per_s": result["acked"] / result["seconds"],
        "broker_cpu_us": broker_cpu * 1e6 / max(result["acked"], 1),
        "client_cpu_us": result["cpu_seconds"] * 1e6 / max(result["acked"], 1),
        "publish_per_s": filled["acked"] / filled["seconds"],
    }
    return Outcome(values, complaint(result))
