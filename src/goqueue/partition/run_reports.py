"""Reports what was appended together, batches or records, that of each sender by itself."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer, Range
from goqueue.model.runs import Piece
from goqueue.model.session import Senders, Session

_SPAN_BYTES = 8  # of a batch, in a piece of a run
_OFFSET_BYTES = 8  # of a batch, in the offsets of a run


def report_run(
    observer: Observer,
    partition: TopicPartition,
    offsets: Range,
    packed: bytes,
    pieces: Sequence[Piece],
    senders: Sequence[Session],
    *,
    size: int,
) -> None:
    """Report a run; its size is divided by the number of batches.

    The first offsets of its batches are `packed` by `gather_run`. There is a sender for each piece,
    or none at all.
    """
    if not senders or senders.count(senders[0]) == len(senders):
        # The usual case, in compiled code: most clients differ in nothing that a session has.
        sender, batches = senders[0] if senders else None, len(packed) // _OFFSET_BYTES
        observer.stored(partition, offsets, size=size, session=sender, batches=batches)
        return
    numbers = memoryview(packed).cast("q")
    count = len(numbers)
    start = at = 0
    for place, (spans, _) in enumerate(pieces):
        at += len(spans) // _SPAN_BYTES
        sender = senders[place]
        if at < count and _is_same(sender, senders[place + 1]):
            continue
        end = numbers[at] if at < count else offsets[1]
        if at > start:
            # The shares add up to the whole.
            share = size * at // count - size * start // count
            observer.stored(
                partition, (numbers[start], end), size=share, session=sender, batches=at - start
            )
        start = at


def report_batch(
    observer: Observer, partition: TopicPartition, offsets: Range, senders: Senders, *, size: int
) -> None:
    """Report a batch with records of several senders; its size is divided by their numbers."""
    start, end = offsets
    count, batches = end - start, 1
    first = start
    for number, sender in senders:
        until = min(first + number, end)
        if until > first:
            share = size * (until - start) // count - size * (first - start) // count
            observer.stored(partition, (first, until), size=share, session=sender, batches=batches)
            first, batches = until, 0
    if first < end:
        share = size - size * (first - start) // count
        observer.stored(partition, (first, end), size=share, session=None, batches=batches)


def _is_same(session: Session | None, other: Session) -> bool:
    """Whether two connections have the same client, as far as their sessions tell."""
    return session is other or session == other
