"""Credentials of the listeners, which run in the driver and are not given the options of a reader.

What a reader reports to its listener is shown in Spark's UI, so it says how to log in but not with
what. The secrets come from the session (`goqueue.spark.session(access=...)`), or from the
environment of the driver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goqueue.client import SaslSettings, TlsSettings, sasl_of_api_key
from goqueue.client.security.http import CA_FILE_VARIABLE, HttpLogin, login_from
from goqueue.spark.access import OPEN, Access


@dataclass(frozen=True, slots=True)
class DriverAccess:
    """How the listeners of a session log in."""

    given: Access = OPEN
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def for_report(self, reported: Mapping[str, Any]) -> Access:
        """Return how to log in at the broker of a reader that reports this."""
        if self.given != OPEN:
            return self.given
        tls = TlsSettings(self.environ.get(CA_FILE_VARIABLE, "")) if reported.get("tls") else None
        mechanism = reported.get("mechanism")
        login = login_from(self.environ) if mechanism else None
        return Access(tls, _sasl(login, str(mechanism)), login)


def described(access: Access) -> dict[str, Any]:
    """Return what a reader reports about its login; nothing if there is none."""
    found: dict[str, Any] = {}
    if access.tls is not None:
        found["tls"] = True
    if access.sasl is not None:
        found["mechanism"] = access.sasl.mechanism
    return found


def _sasl(login: HttpLogin | None, mechanism: str) -> SaslSettings | None:
    if login is None:
        return None
    if not login.api_key:
        return SaslSettings(mechanism, login.username, login.password)
    if mechanism == "OAUTHBEARER":
        return SaslSettings(mechanism, token=login.api_key)
    return sasl_of_api_key(str(login.api_key))
