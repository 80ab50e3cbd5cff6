"""Messages between the members of the metadata quorum, and their encoding.

A message is one version byte and a msgpack array whose first element names its kind. Bytes that do
not follow this raise `MalformedRequest`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from goqueue.model.errors import MalformedRequest

VERSION = 1
MEMBERS_MAX = 1_000
ENTRIES_MAX = 100_000  # per message
# Terms and indexes count elections and decisions, so no cluster comes near this. What is stored has
# the same bound as what is received, so whatever was accepted can be read back; and no node stands
# for election or adds an entry beyond it.
COUNTER_MAX = 1 << 48
# How far ahead of a node's own term or log a received one may be. A node that was away lacks
# thousands of elections, not billions. A new node has no log and accepts any.
COUNTER_JUMP_MAX = 1 << 32

NodeNumber = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Counter = Annotated[int, Meta(ge=0, le=COUNTER_MAX)]
NodeNumbers = Annotated[tuple[NodeNumber, ...], Meta(max_length=MEMBERS_MAX)]


class EntryKind(IntEnum):
    NOTHING = 0  # the first entry of a term, through which entries of earlier terms are committed
    PAYLOAD = 1
    MEMBERS = 2


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log."""

    index: Counter
    term: Counter
    kind: EntryKind
    payload: bytes


class Members(msgspec.Struct, frozen=True, array_like=True):
    """The members of the quorum: voters decide, learners only receive the log."""

    voters: NodeNumbers
    learners: NodeNumbers = ()

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def all(self) -> tuple[int, ...]:
        return self.voters + self.learners


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An index and a term, which identify one entry."""

    index: Counter
    term: Counter


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Asks whether the receiver would vote in the term after `term`; changes no state."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position


class PreVoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    sender: NodeNumber
    to: NodeNumber
    term: Counter  # of the sender
    asked_term: Counter  # of the request, so that late answers are recognised
    is_granted: bool


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=3):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position
    is_transfer: bool  # requested by the leader itself, so having a leader is no reason to refuse


class VoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    is_granted: bool


class Append(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Entries that follow `previous`; without entries, a heartbeat that checks the match."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter
    previous: Position
    entries: Annotated[list[Entry], Meta(max_length=ENTRIES_MAX)]
    commit_index: Counter
    round: Counter


class AppendAnswer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The index up to which the logs match durably, or where to try next."""

    sender: NodeNumber
    to: NodeNumber
    term: Counter
    round: Counter  # repeated from the request: the sender was followed then
    is_accepted: bool
    match_index: Counter  # if accepted
    refused_index: Counter  # if refused: `previous.index` of the request, and a hint
    hint: Position


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=7):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position  # last entry contained in the snapshot
    members: Members
    total_bytes: Counter
    offset: Counter
    data: bytes


class SnapshotAnswer(msgspec.Struct, frozen=True, array_like=True, tag=8):
    sender: NodeNumber
    to: NodeNumber
    term: Counter
    last: Position
    offset: Counter  # where the next chunk must start


class StandNow(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Requests a fully caught-up follower to take over leadership."""

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
    """Decode a message; raise `MalformedRequest` if that is not possible."""
    if not data or data[0] != VERSION:
        found = f"version {data[0]}" if data else "nothing"
        raise MalformedRequest(
            f"A quorum message must begin with version {VERSION}, found {found}; "
            "run the same release on all nodes."
        )
    try:
        message = _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedRequest(f"A quorum message cannot be decoded: {error}") from error
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
        raise MalformedRequest(f"A list of quorum members cannot be decoded: {error}") from error
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
        raise MalformedRequest("A snapshot chunk extends beyond the end of the snapshot.")
    if message.last.term > message.term:
        raise MalformedRequest("A snapshot is newer than the term of its sender.")
