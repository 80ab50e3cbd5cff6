"""How a command logs in, and whom it trusts: from flags, a context and the environment.

Secrets are read from files, standard input, the environment or the terminal. They are never values
of flags, because the list of processes shows those to everybody.

The client is imported where it is needed, because `goqueue serve` does not use it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import typer

from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from goqueue.client import SaslSettings, TlsSettings
    from goqueue.client.security.http import HttpLogin

MECHANISM_DEFAULT: Final = "SCRAM-SHA-512"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HIDDEN: Final = "(hidden)"
VARIABLES: Final = {
    "user": "GOQUEUE_USER",
    "password": "GOQUEUE_PASSWORD",
    "api_key": "GOQUEUE_API_KEY",
    "sasl_mechanism": "GOQUEUE_SASL_MECHANISM",
    "tls": "GOQUEUE_TLS",
    "ca_file": "GOQUEUE_CA_FILE",
    "client_certificate": "GOQUEUE_CLIENT_CERTIFICATE",
    "client_key": "GOQUEUE_CLIENT_KEY",
}
_SECRETS = ("password", "api_key")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials and certificates; what is empty is not given."""

    user: str = ""
    password: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    sasl_mechanism: str = ""
    tls: bool | None = None  # None: if certificates are given, or the address says https
    ca_file: str = ""
    client_certificate: str = ""
    client_key: str = ""

    def __post_init__(self) -> None:
        if self.api_key and (self.user or self.password):
            raise InvalidRequest("Give a user or an API key, not both.")
        if self.sasl_mechanism and self.sasl_mechanism not in MECHANISMS:
            raise InvalidRequest(
                f"{self.sasl_mechanism!r} is not a mechanism of this command; give one of "
                f"{', '.join(MECHANISMS)}."
            )

    @property
    def has_login(self) -> bool:
        return bool(self.user or self.api_key)

    @property
    def has_secret(self) -> bool:
        return bool(self.password or self.api_key)

    @property
    def is_encrypted(self) -> bool:
        files = self.ca_file or self.client_certificate or self.client_key
        return bool(files) if self.tls is None else self.tls

    def over(self, below: Access) -> Access:
        """Return these values, and those of `below` where there are none.

        A login is taken as a whole: the password of one user is never sent for another.
        """
        if self.has_login:
            below = replace(
                below,
                user="",
                api_key="",
                sasl_mechanism="" if self.api_key else below.sasl_mechanism,
                password=below.password if self.user and below.user in ("", self.user) else "",
            )
        elif self.password:
            below = replace(below, api_key="")
        if self.client_certificate:
            below = replace(below, client_key="")
        return Access(
            **{
                name: getattr(below, name) if value in ("", None) else value
                for name, value in self.values().items()
            }
        )

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in VARIABLES}

    # What the clients take

    def with_password(self) -> Access:
        """Return the same with the password of the user, typed if it is not known."""
        if not self.user or self.password:
            return self
        if not sys.stdin.isatty():
            raise InvalidRequest(
                f"The password of {self.user} is not given; set {VARIABLES['password']}, or name a "
                "file with --login-password."
            )
        typed: str = typer.prompt(f"Password of {self.user}", hide_input=True, err=True)
        return replace(self, password=typed)

    def sasl(self) -> SaslSettings | None:
        """Return the credentials for a Kafka listener."""
        from goqueue.client import SaslSettings, sasl_of_api_key

        if self.api_key:
            return sasl_of_api_key(self.api_key)
        if not self.user:
            return None
        return SaslSettings(self.sasl_mechanism or MECHANISM_DEFAULT, self.user, self.password)

    def http_login(self) -> HttpLogin | None:
        """Return the credentials for an HTTP listener."""
        from goqueue.client.security.http import HttpLogin

        if not self.has_login:
            return None
        return HttpLogin(self.api_key, self.user, self.password)

    def tls_settings(self) -> TlsSettings | None:
        """Return whom to trust; None without TLS."""
        from goqueue.client import TlsSettings

        if not self.is_encrypted:
            return None
        return TlsSettings(self.ca_file, self.client_certificate, self.client_key)


NO_ACCESS: Final = Access()


def access_from(environ: Mapping[str, str]) -> Access:
    """Return what the environment says; certificates there do not turn TLS on by themselves."""
    values: dict[str, Any] = {
        name: environ.get(variable, "") for name, variable in VARIABLES.items()
    }
    values["tls"] = _switch(values["tls"])
    if values["api_key"] and (values["user"] or values["password"]):
        raise InvalidRequest(
            f"{VARIABLES['api_key']} and {VARIABLES['user']} are both set; unset one of them."
        )
    return Access(**values)


def access_of_entry(entry: Mapping[str, Any]) -> Access:
    """Read the part of a context's entry that is about access."""
    values = {name: entry.get(name.replace("_", "-")) for name in VARIABLES}
    tls = values.pop("tls")
    if not isinstance(tls, bool | None):
        raise ValueError("tls is true or false")
    return Access(**{name: str(one or "") for name, one in values.items()}, tls=tls)


def entry_of_access(access: Access, *, is_hidden: bool) -> dict[str, Any]:
    """Return the entries of a context; secrets are hidden when they are shown."""
    given = {name: one for name, one in access.values().items() if one not in ("", None)}
    return {
        name.replace("_", "-"): HIDDEN if is_hidden and name in _SECRETS else one
        for name, one in given.items()
    }


def _switch(text: str) -> bool | None:
    if not text:
        return None
    if text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    raise InvalidRequest(f"{VARIABLES['tls']} is {text!r}; set it to true or false.")
