"""Memory of answers is used again, and never while somebody looks at what is in it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.client.buffers import BYTES_MAX, BYTES_MIN, ReceiveBuffers


def filled(buffers: ReceiveBuffers, size: int, content: int) -> memoryview:
    view = buffers.take(size)
    assert len(view) == size
    view[:] = bytes([content]) * size
    return view


def test_memory_is_used_again_when_no_view_is_left() -> None:
    buffers = ReceiveBuffers(1)
    first = filled(buffers, BYTES_MIN, 1)
    memory = first.obj
    part = first[10:20]
    del first
    assert filled(buffers, BYTES_MIN, 2).obj is not memory  # A part of it is still looked at.
    assert part == bytes([1]) * 10
    del part
    again = filled(buffers, BYTES_MIN + 5, 3)  # Sizes differ a little from answer to answer.
    assert again.obj is memory
    assert again == bytes([3]) * (BYTES_MIN + 5)


def test_memory_does_not_wear_off() -> None:
    buffers = ReceiveBuffers(1)
    memory = filled(buffers, 1 << 20, 1).obj
    assert all(filled(buffers, 1 << 20, turn).obj is memory for turn in range(5))


def test_one_that_has_become_too_small_makes_room_for_a_larger_one() -> None:
    buffers = ReceiveBuffers(1)
    filled(buffers, BYTES_MIN, 1)
    large = filled(buffers, 3 << 20, 2)
    memory = large.obj
    del large
    assert filled(buffers, BYTES_MIN, 3).obj is memory


def test_small_and_huge_ones_are_not_kept_and_neither_are_too_many() -> None:
    for kept_max, size in ((1, BYTES_MIN - 1), (1, BYTES_MAX + 1), (0, BYTES_MIN), (1, 0)):
        buffers = ReceiveBuffers(kept_max)
        filled(buffers, size, 1)
        assert not buffers._kept
    buffers = ReceiveBuffers(2)
    held = [filled(buffers, BYTES_MIN, number) for number in range(5)]
    assert len(buffers._kept) == 2
    assert [view[0] for view in held] == [0, 1, 2, 3, 4]


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([10, 65_536, 70_000, 1_100_000])), max_size=20
    )
)
def test_what_is_held_never_changes(steps: list[tuple[int, int]]) -> None:
    """One of four places at a time lets go of its answer and gets another."""
    buffers = ReceiveBuffers(2)
    held: dict[int, tuple[int, memoryview]] = {}
    for number, (place, size) in enumerate(steps):
        held.pop(place, None)
        content = number % 251
        held[place] = content, filled(buffers, size, content)[size // 3 :]
        for expected, view in held.values():
            assert view[0] == view[len(view) // 2] == view[-1] == expected
