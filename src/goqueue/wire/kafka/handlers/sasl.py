"""SaslHandshake and SaslAuthenticate: the connection has the state of the exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from goqueue.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from goqueue.wire.kafka.sasl_connection import SaslConnection

if TYPE_CHECKING:
    from goqueue.wire.kafka.connection import Call
    from goqueue.wire.kafka.front_end import FrontEnd

_NO_SASL = "This listener does not use SASL; connect without it."


def sasl_handshake(front: FrontEnd, call: Call, request: SaslHandshakeRequest) -> Any:
    connection = call.connection
    if not isinstance(connection, SaslConnection):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    # With version 0, the messages of the mechanism follow without headers.
    return connection.begin(request.mechanism, is_raw=call.version == 0)


async def sasl_authenticate(
    front: FrontEnd, call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    connection = call.connection
    if not isinstance(connection, SaslConnection):
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL
        )
    return await connection.authenticate(bytes(request.auth_bytes))
