"""The place of a connection among those of its user, for the quota `connections`.

A connection counts for one user at a time: the one in whose name it was last used. A Kafka client
keeps its user; the requests of an HTTP connection may come from several, as behind a proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.quotas.meters import CountLimit
from goqueue.model.errors import QuotaReached
from goqueue.model.quotas import CONNECTIONS
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.quotas.quotas import Quotas

_NOBODY = ("", "", "")


class Seat:
    """Counts a connection. Whoever owns the connection leaves the seat when it is closed."""

    __slots__ = ("_counts", "_epoch", "_quotas", "_who")

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._who = _NOBODY  # whom the connection counts for
        self._epoch = 0  # of the quotas under which it was counted
        self._counts: list[CountLimit] = []

    def take(self, session: Session) -> None:
        """Count the connection for the user of a session; raise if that has too many.

        Repeated for the same user, it does nothing until quotas change.
        """
        quotas = self._quotas
        if not quotas.is_active:
            self.leave()
            return
        who = (session.principal, session.client_id, session.tenant)
        if self._epoch == quotas.epoch and self._who == who:
            return
        self.leave()
        counts = quotas.connection_counts(session)
        for count in counts:
            if not count.room:
                quotas.report(session, CONNECTIONS)
                raise QuotaReached(CONNECTIONS, int(count.limit))
        for count in counts:
            count.here += 1
        self._who, self._epoch, self._counts = who, quotas.epoch, counts

    def leave(self) -> None:
        """Count the connection for nobody."""
        for count in self._counts:
            count.here -= 1
        self._who, self._counts = _NOBODY, []
