"""How a client proves who it is, and checks who answers: TLS and SASL.

`settings` has the options, `tls` encrypts a connection, `mechanisms` are the client's sides of SASL
as state machines without connections, and `login` runs one of them over a connection. Secrets are
never part of a `repr`, of an error or of a log line.
"""

from goqueue.client.security.settings import (
    SASL_MECHANISMS,
    SaslSettings,
    Secret,
    TlsSettings,
    sasl_of_api_key,
)

__all__ = ["SASL_MECHANISMS", "SaslSettings", "Secret", "TlsSettings", "sasl_of_api_key"]
