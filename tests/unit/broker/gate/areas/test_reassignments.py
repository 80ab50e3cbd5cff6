"""How far moves have come, from what each node says of its own replica."""

from __future__ import annotations

from goqueue.broker.gate.areas.reassignments import MoveProgress, PartitionView, ReplicaProgress
from goqueue.broker.gate.operation import OPERATIONS


def view(*in_sync: int) -> PartitionView:
    return PartitionView("orders", 0, 1, 5, (1,), in_sync, (2, 3), (1,), (2, 3))


def merged(*answers: list[MoveProgress]) -> MoveProgress:
    merge = OPERATIONS["reassignments.progress"].merge
    assert merge is not None
    [move] = merge({}, answers)
    assert isinstance(move, MoveProgress)
    return move


def test_a_move_has_come_as_far_as_its_last_new_replica() -> None:
    def seen_by(
        node: int, end_offset: int, *, in_sync: tuple[int, ...] = (1,)
    ) -> list[MoveProgress]:
        return [MoveProgress(view(*in_sync), [ReplicaProgress(node, 100, end_offset, 0, 0)])]

    def progress(*answers: list[MoveProgress]) -> float:
        return merged(*answers).progress

    assert progress(seen_by(2, 300), seen_by(3, 200), seen_by(1, 500)) == 0.25
    assert progress(seen_by(1, 500), seen_by(2, 500), seen_by(3, 500)) == 0.99
    assert progress(seen_by(3, 500), seen_by(2, 500)) == 0.0  # without an answer of the leader
    in_sync = (1, 2, 3)
    assert progress(seen_by(1, 500, in_sync=in_sync), seen_by(3, 500, in_sync=in_sync)) == 1.0


def test_the_time_of_a_move_is_estimated_once_its_pace_is_known() -> None:
    def seen_by(node: int, size: int, *, rate: int = 0, in_sync: int = 1) -> list[MoveProgress]:
        return [MoveProgress(view(1, in_sync), [ReplicaProgress(node, 0, 9, size, rate)])]

    def estimate(*answers: list[MoveProgress]) -> tuple[int, int, int | None]:
        move = merged(*answers)
        return move.bytes_left, move.bytes_per_second, move.remaining_ms

    def slow() -> tuple[list[MoveProgress], ...]:
        return seen_by(2, 1_000, rate=100), seen_by(3, 4_000, rate=500)

    assert estimate(*slow(), seen_by(1, 5_000)) == (5_000, 600, 40_000)
    waiting = seen_by(2, 1_000), seen_by(3, 4_000, rate=500)
    assert estimate(*waiting, seen_by(1, 5_000)) == (5_000, 500, None)
    half = seen_by(2, 5_000, in_sync=2), seen_by(3, 4_000, rate=500, in_sync=2)
    assert estimate(*half, seen_by(1, 5_000, in_sync=2)) == (1_000, 500, 2_000)
    assert estimate(*slow()) == (0, 600, None)  # without an answer of the leader
    assert estimate(seen_by(2, 9_000, rate=1), seen_by(1, 5_000)) == (0, 1, None)  # nor of 3
