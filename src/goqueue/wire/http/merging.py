"""One answer of those of all nodes, each of which knows only what it owns."""

from __future__ import annotations

from goqueue.wire.http.bodies import queues as queue_bodies


def lanes(_: object, answers: list[queue_bodies.Lanes]) -> queue_bodies.Lanes:
    """Every node counts in the copies that it keeps, and knows the groups that it owns."""
    whole = answers[-1]
    for answer in answers[:-1]:
        for mine, other in zip(whole.lanes, answer.lanes, strict=True):
            counts = zip(mine.stored_by_partition, other.stored_by_partition, strict=False)
            mine.stored_by_partition = [max(pair) for pair in counts]
            mine.stored = sum(mine.stored_by_partition)
    groups = {one.group: one for answer in answers for one in answer.groups}
    whole.groups = [groups[name] for name in sorted(groups)]
    return whole
