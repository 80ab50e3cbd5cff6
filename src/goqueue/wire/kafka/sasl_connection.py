"""A Kafka connection whose client must authenticate before anything else (SASL).

Until then only ApiVersions, SaslHandshake and SaslAuthenticate are served, in small frames. Clients
older than SaslAuthenticate send the messages of the mechanism without headers. Afterwards the
connection is like any other; the client may authenticate again on it (KIP-368), and must do so when
its session has a limit.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from goqueue.loop.promise import Promise, start
from goqueue.model.errors import (
    AuthenticationFailed,
    GoQueueError,
    MalformedRequest,
    QuotaReached,
)
from goqueue.model.session import NEVER_MS, ConnectedClient, Session
from goqueue.wire.foreign import FIRST_BYTES, explained, protocol_of
from goqueue.wire.kafka.api import API_VERSIONS_KEY
from goqueue.wire.kafka.connection import NOT_READY, Connection, wrong_length
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from goqueue.wire.kafka.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from goqueue.broker.gate.logins import Login
    from goqueue.wire.kafka.front_end import FrontEnd

FRAME_BYTES_MAX = 512 << 10  # before authentication; the limit of Kafka
REQUESTS_MAX = 32  # before authentication
LOGIN_MS_MAX = 60_000  # for the whole authentication of a new connection
REFUSAL_MS = 100  # before a failure is answered, which slows down guessing; that of Kafka
REFUSALS_MAX = 1_000  # that wait at once; further ones are closed without an answer

SASL_HANDSHAKE_KEY = 17
SASL_AUTHENTICATE_KEY = 36
_HEADER_BYTES_MIN = 8
_LENGTH = Struct(">i")
_KEY = Struct(">h")
_LOGIN_TIMER = "login"
_REFUSAL_TIMER = "refusal"

T = TypeVar("T")


class _Exchange:
    """An authentication that has begun, from the handshake on."""

    __slots__ = ("is_raw", "login", "mechanism", "problem")

    def __init__(self, mechanism: str, login: Login, *, is_raw: bool, problem: str) -> None:
        self.mechanism = mechanism
        self.login = login
        self.is_raw = is_raw  # the client sends messages without headers
        self.problem = problem  # why it will fail, whatever the client sends


class SaslConnection(Connection):
    """The protocol state of a connection that requires authentication."""

    __slots__ = (
        "_exchange",
        "_expires_ms",
        "_has_turn",
        "_is_open",
        "_mechanism",
        "_mechanisms",
        "_requests",
    )

    def __init__(self, front: FrontEnd, client: ConnectedClient, **socket: Any) -> None:
        super().__init__(front, client, **socket)
        self._mechanisms = client.rules.sasl_mechanisms
        self._exchange: _Exchange | None = None
        self._mechanism = ""
        self._requests = 0
        self._has_turn = False
        self._is_open = False  # whether the client has authenticated
        self._expires_ms = NEVER_MS
        timer = front.gate.clock.call_later(LOGIN_MS_MAX, self._too_slow)
        self.cancellations[_LOGIN_TIMER] = timer.cancel

    def receive(self, data: memoryview) -> int:
        """Handle complete requests; before authentication, and after its end, only those of it."""
        if not self._is_closed_to_requests():
            return super().receive(data)
        used = self._receive_sasl(data)
        if used < len(data) and not self._is_closed_to_requests():
            used += super().receive(data[used:])
        return used

    def _is_closed_to_requests(self) -> bool:
        if not self._is_open:
            return True
        return self._expires_ms != NEVER_MS and self._wall_ms() >= self._expires_ms

    def _wall_ms(self) -> int:
        return self._front.gate.clock.wall_ms()

    def _receive_sasl(self, data: memoryview) -> int:
        at, end = 0, len(data)
        while end - at >= 4 and self._is_closed_to_requests():
            if self.is_closed or self.is_blocked:
                break
            exchange = self._exchange
            is_raw = exchange is not None and exchange.is_raw
            (length,) = _LENGTH.unpack_from(data, at)
            if not (0 if is_raw else _HEADER_BYTES_MIN) <= length <= FRAME_BYTES_MAX:
                protocol = protocol_of(bytes(data[at : at + FIRST_BYTES]))
                if protocol in ("TLS", "HTTP"):
                    raise MalformedRequest(explained(protocol, spoken="Kafka"))
                raise wrong_length(length, FRAME_BYTES_MAX)
            stop = at + 4 + length
            if stop > end:
                break
            frame = data[at + 4 : stop]
            if not is_raw and not self._front.is_ready and self._must_wait(frame):
                break
            if not self._has_turn and not self._front.takes_login(self):
                self._held |= NOT_READY
                break
            self._has_turn = False
            if is_raw:
                start(self._authenticate_raw(bytes(frame)), self._raw_done)
            else:
                self._check_legal(frame)
                self._handle(frame)
            at = stop
        return at

    def take_turn(self) -> None:
        """Handle a request that was held, because many clients log in at the same time."""
        self._has_turn = True
        self.release()

    def _check_legal(self, frame: memoryview) -> None:
        """Refuse requests other than those of the authentication, in their order."""
        (key,) = _KEY.unpack_from(frame)
        self._requests += 1
        if self._exchange is None:
            legal: tuple[int, ...] = (API_VERSIONS_KEY, SASL_HANDSHAKE_KEY)
        else:
            legal = (SASL_AUTHENTICATE_KEY,)
        if key not in legal:
            what = "its session has expired" if self._is_open else "it must authenticate first"
            raise MalformedRequest(f"The client has sent a request of API {key}, but {what}.")
        if self._requests > REQUESTS_MAX:
            raise MalformedRequest(f"{REQUESTS_MAX} requests were not enough to authenticate.")

    def closed(self) -> None:
        super().closed()
        self._exchange = None

    # Authentication

    def begin(self, mechanism: str, *, is_raw: bool) -> Any:
        """Answer SaslHandshake: the exchange of this mechanism begins."""
        names = list(self._mechanisms)
        if mechanism not in self._mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._refused(SaslHandshakeResponse(error_code=code, mechanisms=names))
        if self._is_open and is_raw:
            code = ErrorCode.ILLEGAL_SASL_STATE
            return self._refused(SaslHandshakeResponse(error_code=code, mechanisms=names))
        problem = ""
        if self._is_open and mechanism != self._mechanism:
            problem = (
                f"A connection with {self._mechanism} cannot authenticate again with {mechanism}; "
                "open a new one."
            )
        login = self._front.gate.authentication.login(self._unauthenticated(), mechanism)
        self._exchange = _Exchange(mechanism, login, is_raw=is_raw, problem=problem)
        return SaslHandshakeResponse(mechanisms=names)

    def _unauthenticated(self) -> Session:
        """Return the session of the connection without what came with its authentication."""
        session = self.session
        return Session(
            session.listener,
            client_id=session.client_id,
            client_host=session.client_host,
            tls_identity=session.tls_identity,
        )

    async def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        """Answer SaslAuthenticate. Further requests are not read until it is answered."""
        if self._exchange is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="Begin with SaslHandshake to authenticate again.",
            )
        try:
            answer = await self._next_step(message)
        except GoQueueError as error:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_text_of(error)
            )
            return await self._refused(response)
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=answer, session_lifetime_ms=self._lifetime_ms()
        )

    async def _authenticate_raw(self, message: bytes) -> None:
        """Answer a message without a header. A failure has no answer in this protocol."""
        try:
            answer = await self._next_step(message)
        except GoQueueError:
            await self._refused(None)
            return
        self.answer_at_once(_LENGTH.pack(len(answer)) + answer)

    def _raw_done(self, _: None, error: Exception | None) -> None:
        if error is not None:
            self.fail("SASL", error)

    async def _next_step(self, message: bytes) -> bytes:
        exchange = self._exchange
        assert exchange is not None
        self._held |= NOT_READY
        if exchange.problem:
            raise AuthenticationFailed(exchange.problem)
        answer = await exchange.login.answer(message)
        session = exchange.login.session
        if session is not None and not self.is_closed:
            self._open(session, exchange.mechanism)
        self.release()
        return answer

    def _open(self, session: Session, mechanism: str) -> None:
        """Serve the client in the name of its user from now on."""
        if self._is_open and session.principal != self.session.principal:
            raise AuthenticationFailed(
                f"This connection belongs to {self.session.principal}; open a new one."
            )
        self._exchange = None
        self._mechanism = mechanism
        self._requests = 0
        self._is_open = True
        self._expires_ms = self._end_of(session)
        self.identify(msgspec.structs.replace(session, expires_ms=self._expires_ms))
        self._stop_timer(_LOGIN_TIMER)
        self._front.watch(self)
        try:
            self._take_seat()
        except QuotaReached as error:
            self.refuse(str(error))

    def _end_of(self, session: Session) -> int:
        """Return when a session ends: its credentials expire, or it reaches the limit."""
        limit_ms = self._front.limits.session_ms_max
        ends = [session.expires_ms] if session.expires_ms != NEVER_MS else []
        ends += [self._wall_ms() + limit_ms] if limit_ms else []
        return min(ends, default=NEVER_MS)

    def _lifetime_ms(self) -> int:
        """Return for how long the client may go on without authenticating again; 0 is for ever.

        It is 0 too until an exchange is over, as in Kafka. With what is left of the last session,
        librdkafka would begin once more in the middle of the exchange, and crash.
        """
        if self._exchange is not None or self._expires_ms == NEVER_MS:
            return 0
        return max(1, self._expires_ms - self._wall_ms())

    def _take_seat(self) -> None:
        if self._is_open:
            super()._take_seat()

    # Ends

    def _too_slow(self) -> None:
        self.cancellations.pop(_LOGIN_TIMER, None)
        self.refuse(f"it has not authenticated within {LOGIN_MS_MAX // 1000} s")

    def _stop_timer(self, name: str) -> None:
        cancel = self.cancellations.pop(name, None)
        if cancel is not None:
            cancel()

    def _refused(self, response: T) -> Promise[T]:
        """Answer after a delay, then close the connection; nothing more is read from it."""
        self._held |= NOT_READY
        front, answered = self._front, Promise[T]()
        if self.is_closed:
            return answered
        if front.refusals >= REFUSALS_MAX:
            self._close()
            return answered
        front.refusals += 1

        def cancelled() -> None:
            front.refusals -= 1
            timer.cancel()

        def answer() -> None:
            front.refusals -= 1
            self.cancellations.pop(_REFUSAL_TIMER, None)
            answered.resolve(response)
            # The answer is sent at the end of this iteration.
            front.gate.clock.call_soon(lambda: self._close())

        timer = front.gate.clock.call_later(REFUSAL_MS, answer)
        self.cancellations[_REFUSAL_TIMER] = cancelled
        return answered


def _text_of(error: GoQueueError) -> str:
    """Return a text that does not tell a wrong user from a wrong password."""
    return str(error) if isinstance(error, AuthenticationFailed) else "Authentication failed."
