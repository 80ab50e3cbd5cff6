"""Consensus of the metadata quorum: one log, replicated to a majority.

This package decides who may write, what is committed and who belongs to the quorum. Entries are
opaque here. It opens no connection and reads no clock; `broker` runs it.
"""

from goqueue.cluster.raft.core import Raft, Role
from goqueue.cluster.raft.frames import DamagedQuorumFile
from goqueue.cluster.raft.members import MemberChange
from goqueue.cluster.raft.messages import (
    Entry,
    EntryKind,
    Members,
    Message,
    Position,
    decode,
    encode,
)
from goqueue.cluster.raft.ready import (
    HardState,
    NotLeader,
    Proposal,
    RaftState,
    ReadDone,
    Ready,
    Refused,
    Snapshot,
)
from goqueue.cluster.raft.settings import RaftSettings
from goqueue.cluster.raft.storage import RaftStorage

__all__ = [
    "DamagedQuorumFile",
    "Entry",
    "EntryKind",
    "HardState",
    "MemberChange",
    "Members",
    "Message",
    "NotLeader",
    "Position",
    "Proposal",
    "Raft",
    "RaftSettings",
    "RaftState",
    "RaftStorage",
    "ReadDone",
    "Ready",
    "Refused",
    "Role",
    "Snapshot",
    "decode",
    "encode",
]
