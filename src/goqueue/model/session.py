"""The identity of a caller, which a front end attaches to every call to the broker."""

from __future__ import annotations

import msgspec

ANONYMOUS = "User:ANONYMOUS"
DEFAULT_TENANT = ""


class Session(msgspec.Struct, frozen=True, array_like=True):
    """One connection's identity. A new one replaces it when the client authenticates again.

    It is forwarded with a call that another node handles.
    """

    listener: str
    principal: str = ANONYMOUS
    tenant: str = DEFAULT_TENANT
    client_id: str = ""
    client_host: str = ""
    tls_identity: str = ""  # the subject of the client's certificate


NOBODY = Session("")  # for what a node does itself
