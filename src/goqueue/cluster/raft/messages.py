"""What the voters of the metadata quorum tell each other, as bytes and as values.

A message is one version byte and a msgpack array whose first element names its kind. Who sends
bytes that do not follow this gets `MalformedRequest`, whatever the bytes are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from goqueue.model.errors import MalformedRequest

VERSION = 1
MEMBERS_MAX = 1_000
ENTRIES_MAX = 100_000  # of one message
# Terms and indexes count elections and decisions, so no cluster comes near this. What is stored has
# the same bound as what is received, so whatever was accepted can be read back; and nobody stands
# for election or adds an entry beyond it.
COUNTER_MAX = 1 << 48
# How far ahead of a node's own term or log the word of another may be. A node that was away lacks
# thousands of elections, not thousands of millions. A new one knows nothing, and believes any.
COUNTER_JUMP_MAX = 1 << 32

NodeNumber = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Counter = Annotated[int, Meta(ge=0, le=COUNTER_MAX)]
NodeNumbers = Annotated[tuple[NodeNumber, ...], Meta(max_length=MEMBERS_MAX)]


class EntryKind(IntEnum):
    NOTHING = 0  # the first entry of a term, by which earlier terms' entries are committed
    PAYLOAD = 1
    MEMBERS = 2


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One place in the log."""

    index: Counter
    term: Counter
    kind: EntryKind
    payload: bytes


class Members(msgspec.Struct, frozen=True, array_like=True):
    """Who belongs to the quorum: voters decide, learners only receive the log."""

    voters: NodeNumbers
    learners: NodeNumbers = ()

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def all(self) -> tuple[int, ...]:
        return self.voters + self.learners


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A place in the log, which only one entry can ever have."""

    index: Counter
    term: Counter


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Would you vote for me in the term after `term`? Nobody's state is changed by the question."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position


class PreVoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    sender: NodeNumber
    to: NodeNumber
    term: Counter  # of the one who answers
    asked_term: Counter  # of the one who asked, so that late answers are told apart
    is_granted: bool


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=3):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position
    is_transfer: bool  # the leader itself wishes it, so having a leader is no reason to refuse


class VoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    is_granted: bool


class Append(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Entries that follow `previous`; without entries, a sign of life and a question."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter
    previous: Position
    entries: Annotated[list[Entry], Meta(max_length=ENTRIES_MAX)]
    commit_index: Counter
    round: Counter


class AppendAnswer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Up to which index the logs agree durably, or where to try next."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter
    round: Counter  # repeated from the question: the sender was followed then
    is_accepted: bool
    match_index: Counter  # when accepted
    refused_index: Counter  # when not: `previous.index` of the question, and a hint
    hint: Position


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=7):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position  # of what the snapshot stands for
    members: Members
    total_bytes: Counter
    offset: Counter
    data: bytes


class SnapshotAnswer(msgspec.Struct, frozen=True, array_like=True, tag=8):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position
    offset: Counter  # where the next chunk has to begin


class StandNow(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The leader asks a follower that has everything to take over."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter


Message: TypeAlias = (
    PreVote
    | PreVoteAnswer
    | Vote
    | VoteAnswer
    | Append
    | AppendAnswer
    | SnapshotChunk
    | SnapshotAnswer
    | StandNow
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_members_decoder = msgspec.msgpack.Decoder(Members)
_VERSION_BYTE = bytes([VERSION])


def encode(message: Message) -> bytes:
    return _VERSION_BYTE + _encoder.encode(message)


def decode(data: bytes | memoryview) -> Message:
    """The message in `data`; `MalformedRequest` when there is none."""
    if not data or data[0] != VERSION:
        found = f"version {data[0]}" if data else "nothing"
        raise MalformedRequest(
            f"A quorum message must begin with version {VERSION}, found {found}; "
            "run the same release on all nodes."
        )
    try:
        message = _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedRequest(f"A quorum message cannot be read: {error}") from error
    if isinstance(message, Append):
        _check_entries(message)
    elif isinstance(message, SnapshotChunk):
        _check_chunk(message)
    return message


def encode_members(members: Members) -> bytes:
    return _encoder.encode(members)


def decode_members(data: bytes) -> Members:
    try:
        members = _members_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedRequest(f"A list of quorum members cannot be read: {error}") from error
    if len(set(members.all)) != len(members.all):
        raise MalformedRequest(f"A list of quorum members names a node twice: {members}.")
    return members


def _check_entries(message: Append) -> None:
    last = message.previous
    for entry in message.entries:
        if entry.index != last.index + 1 or not last.term <= entry.term <= message.term:
            raise MalformedRequest(
                f"Entry {entry.index} of term {entry.term} cannot follow entry {last.index} of "
                f"term {last.term} in term {message.term}."
            )
        if entry.kind is EntryKind.MEMBERS:
            decode_members(entry.payload)
        last = Position(entry.index, entry.term)


def _check_chunk(message: SnapshotChunk) -> None:
    if message.offset + len(message.data) > message.total_bytes:
        raise MalformedRequest("A chunk of a snapshot reaches beyond the end of the snapshot.")
    if message.last.term > message.term:
        raise MalformedRequest("A snapshot is newer than the term of its sender.")
