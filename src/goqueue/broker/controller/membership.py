"""This node's membership of its cluster: registration and heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.broker.controller.node import NodeIdentity
from goqueue.broker.controller.quorum import Quorum
from goqueue.cluster.commands import CopyClaim, Heartbeat, Leave, RegisterNode
from goqueue.config import ClusterSettings
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, StaleIncarnation, UnknownNode

PAUSE_MS_MIN = 20  # between two calls to the controller, however long the first took
RETRY_MS = 100  # after a failed call, or until this node is unfenced

_log = logging.getLogger(__name__)


class Membership:
    """Keeps this incarnation of the node registered while it runs."""

    def __init__(
        self,
        quorum: Quorum,
        clock: Clock,
        settings: ClusterSettings,
        *,
        identity: NodeIdentity,
        addresses: Callable[[], dict[str, str]],
    ) -> None:
        self._quorum = quorum
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._addresses = addresses
        # Whether this node should lead nothing until it restarts.
        self.is_ill: Callable[[], bool] = lambda: False
        # In-sync replicas that may have lost records.
        self.integrity: Callable[[], tuple[CopyClaim, ...]] = tuple
        self._wants_drain = False
        self._is_registered = False
        self._is_stopped = False
        self._next: Handle | None = None  # None while a call to the controller is in flight

    @property
    def is_trusted(self) -> bool:
        """Return whether this node is registered and not fenced, by its own metadata."""
        return self._identity.is_trusted(self._quorum.metadata)

    def start(self) -> None:
        self._beat()

    def drain(self) -> None:
        """Request that leaders move away, so that stopping this node interrupts no client."""
        self._wants_drain = True
        if self._next is not None:
            self._next.cancel()
            self._beat()

    @property
    def is_drained(self) -> bool:
        return not self._quorum.metadata.partitions.led_by(self._identity.id)

    def leave(self) -> Promise[None]:
        """Leave the cluster before stopping, so that no session has to expire."""
        self._is_stopped = True
        me = self._identity
        return self._quorum.ask_once(
            Leave(me.id, me.incarnation), timeout_ms=self._settings.session_ms
        )

    def stop(self) -> None:
        self._is_stopped = True

    def _beat(self) -> None:
        """Register if needed, otherwise send a heartbeat; one call at a time."""
        # A node that cannot apply the cluster's decisions must not be relied on.
        if self._is_stopped or self._quorum.failure is not None:
            return
        self._next = None
        command = self._heartbeat() if self._is_registered else self._registration()
        asked_ms = self._clock.now_ms()

        def answered(_: None, error: Exception | None) -> None:
            self._answered(command, error)
            took_ms = self._clock.now_ms() - asked_ms
            pause_ms = self._pause_ms(command, error, took_ms)
            self._next = self._clock.call_later(pause_ms, self._beat)

        timeout_ms = self._settings.session_ms // 2
        self._quorum.ask_once(command, timeout_ms=timeout_ms).then(answered)

    def _pause_ms(
        self, command: RegisterNode | Heartbeat, error: Exception | None, took_ms: int
    ) -> int:
        """Return the pause before the next call."""
        if error is None and isinstance(command, RegisterNode):
            return 0  # A newly registered node is unfenced at its first heartbeat.
        if error is None and isinstance(command, Heartbeat) and not command.wants_drain:
            if self._wants_drain:
                return 0  # A drain was requested meanwhile.
            is_waiting = not self.is_trusted
        else:
            is_waiting = isinstance(error, GoQueueError) and error.retryable
        heartbeat_ms = self._settings.heartbeat_ms
        whole_ms = min(heartbeat_ms, RETRY_MS) if is_waiting else heartbeat_ms
        return max(PAUSE_MS_MIN, whole_ms - took_ms)

    def _answered(self, command: RegisterNode | Heartbeat, error: Exception | None) -> None:
        if error is None:
            self._is_registered = True
        elif isinstance(error, StaleIncarnation | UnknownNode):
            self._is_registered = False
        elif not isinstance(error, GoQueueError):
            raise error
        elif isinstance(command, RegisterNode) and not error.retryable:
            _log.error("this node cannot join its cluster, retrying: %s", error)

    def _registration(self) -> RegisterNode:
        me, cluster = self._identity, self._quorum.metadata.cluster
        return RegisterNode(
            me.id,
            me.incarnation,
            self._addresses(),
            rack=self._settings.rack,
            disk=me.disk,
            cluster_id="" if cluster is None else cluster.cluster_id,
            support=self._quorum.support,
        )

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._identity.id,
            self._identity.incarnation,
            self._quorum.applied_index,
            wants_drain=self._wants_drain or self.is_ill(),
            integrity=() if self.is_trusted else self.integrity(),
            support=self._quorum.support,
        )
