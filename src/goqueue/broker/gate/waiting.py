"""Calls that wait, such as long polls: they end when their sessions lose the right to the answer.

A call is authorised when it begins. Rules, roles and tenants may change before it is answered, and
what arrives after that must not reach a client that may not have it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.broker.gate.authoriser import Authoriser
    from goqueue.broker.gate.operation import Arguments, Operation
    from goqueue.model.session import Session

CANCELLATION = "cancellation"  # the argument that operations which may wait have
SWEEP_MIN = 100  # calls; fewer are not worth a search for those that nobody waits for


class WaitingCalls:
    """The calls that have not been answered yet, checked again when access changes."""

    def __init__(self, authoriser: Authoriser) -> None:
        self._authoriser = authoriser
        # A call that is cancelled may never be answered; its promise then drops it.
        self._calls: set[ref[_WaitingCall]] = set()
        self._sweep_at = SWEEP_MIN
        authoriser.on_change(self._changed)

    def watch(
        self, session: Session, operation: Operation, arguments: Arguments, answer: Promise[Any]
    ) -> Promise[Any]:
        """Return the answer of an authorised call, or an error if access ends before it."""
        cancellation = arguments.get(CANCELLATION)
        if cancellation is None or answer.is_done:
            return answer
        call = _WaitingCall(session, operation, arguments, cancellation)
        known = ref(call)
        self._calls.add(known)
        if len(self._calls) >= self._sweep_at:
            self._sweep()

        def answered(value: Any, error: Exception | None) -> None:
            self._calls.discard(known)
            call.answered(value, error)

        answer.then(answered)
        return call.shown

    def _sweep(self) -> None:
        """Forget the calls that were dropped without an answer."""
        self._calls = {one for one in self._calls if one() is not None}
        self._sweep_at = max(SWEEP_MIN, 2 * len(self._calls))

    def _changed(self) -> None:
        for known in list(self._calls):
            call = known()
            if call is not None:
                call.check(self._authoriser)


class _WaitingCall:
    """One call, and what its caller waits for."""

    __slots__ = ("__weakref__", "_arguments", "_cancellation", "_operation", "_session", "shown")

    def __init__(
        self,
        session: Session,
        operation: Operation,
        arguments: Arguments,
        cancellation: Cancellation,
    ) -> None:
        self._session = session
        self._operation = operation
        self._arguments = arguments
        self._cancellation = cancellation
        self.shown: Promise[Any] = Promise()

    def answered(self, value: Any, error: Exception | None) -> None:
        if not self.shown.is_done:
            self.shown.settle(value, error)

    def check(self, authoriser: Authoriser) -> None:
        """End the wait unless the session may still access what the call is about."""
        if self.shown.is_done or self._cancellation.is_cancelled or authoriser.policy is None:
            return
        try:
            authoriser.authorise(self._session, self._operation, self._arguments)
        except GoQueueError as error:
            self.shown.reject(error)  # first, because some calls end with an answer
            self._cancellation.cancel()
