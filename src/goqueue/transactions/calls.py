"""What producers ask of a transaction, where it takes more than a few words."""

from __future__ import annotations

import msgspec

from goqueue.model.names import ProducerIdentity


class Initialise(msgspec.Struct, frozen=True, kw_only=True):
    """Become the producer of a transactional id, or take the next epoch as that producer."""

    transactional_id: str
    timeout_ms: int
    identity: ProducerIdentity | None = None  # what the producer has been so far, if it says so
    new_producer_id: int  # made by the caller; taken when the id has none, or no epoch left


class Prepare(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more is written; what was written waits for the commit of its epoch."""

    transactional_id: str
    identity: ProducerIdentity
    timeout_ms: int


class CommitEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """Commit all these transactions, or find that the epoch is committed already."""

    query_id: str
    run: int
    epoch: int
    prepared: tuple[tuple[str, ProducerIdentity], ...]  # transactional ids, and whose they are
    is_last: bool = False  # the query is over, and may be forgotten soon


class End(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    identity: ProducerIdentity
    is_commit: bool
    bumps_epoch: bool = False  # the producer goes on with the next epoch
    waits: bool = False  # answer when the participants know, not when it is decided
    new_producer_id: int = -1  # needed when epochs are bumped and this one is the last
