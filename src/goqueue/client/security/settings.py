"""Options for TLS and SASL. What is secret is left out of `repr`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from goqueue.model.errors import InvalidRequest

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
SASL_MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
API_KEY_PREFIX: Final = "gqk_"

# A function is called at each authentication, so that a rotated secret is used from then on.
Secret = str | Callable[[], str]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom a client trusts, and the certificate that it shows.

    Files are in PEM. They are read again for new connections when they have changed.
    """

    ca_file: str = ""  # certificates of authorities; empty: those of the system
    certificate_file: str = ""  # of the client, with intermediate ones; empty: none
    key_file: str = ""  # empty: the key is in `certificate_file`
    key_password: str = field(default="", repr=False)
    checks_host: bool = True  # that the certificate of the broker is for its address
    # The same themselves, instead of files; the key of a client is in the text of its certificate.
    ca_text: str = field(default="", repr=False)
    certificate_text: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.key_file and not self.certificate_file:
            raise InvalidRequest("A client key needs its certificate; give both.")
        if self.ca_file and self.ca_text:
            raise InvalidRequest("Give the authorities as a file or as text, not both.")
        if self.certificate_file and self.certificate_text:
            raise InvalidRequest("Give the client certificate as a file or as text, not both.")


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Credentials for a Kafka listener.

    `username` and `password` are for PLAIN and SCRAM, `token` for OAUTHBEARER.
    """

    mechanism: str = SCRAM_SHA_512
    username: str = ""
    password: Secret = field(default="", repr=False)
    token: Secret = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in SASL_MECHANISMS:
            known = ", ".join(SASL_MECHANISMS)
            raise InvalidRequest(f"{self.mechanism!r} is no SASL mechanism; give one of {known}.")
        if self.mechanism == OAUTHBEARER:
            if not self.token:
                raise InvalidRequest("OAUTHBEARER needs a token.")
        elif not self.username or not self.password:
            raise InvalidRequest(f"{self.mechanism} needs a user and a password.")


def sasl_of_api_key(api_key: str) -> SaslSettings:
    """Return the settings for an API key, which is sent with PLAIN: its id is the user."""
    parts = api_key.split("_", 2)
    name = parts[1] if api_key.startswith(API_KEY_PREFIX) and len(parts) > 1 else ""
    return SaslSettings(PLAIN, name or "api-key", api_key)


def reveal(secret: Secret) -> str:
    """Return the current value of a secret."""
    return secret() if callable(secret) else secret
