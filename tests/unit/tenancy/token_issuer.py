"""An issuer of tokens, with keys of every kind."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

NOW_MS = 1_800_000_000_000
ISSUER = "https://login.example"
AUDIENCE = "goqueue"


@cache
def key(kind: str) -> Any:
    """A private key; the kinds are the names of algorithms, with a suffix for other ones."""
    options = {"kid": kind, "use": "sig"}
    if kind.startswith(("RS", "PS")):
        return RSAKey.generate_key(2_048, options)
    if kind.startswith("ES256"):
        return ECKey.generate_key("P-256", options)
    if kind.startswith("Ed"):
        return OKPKey.generate_key("Ed25519", options)
    assert kind.startswith("HS")
    return OctKey.generate_key(256, options)


def key_set(*kinds: str) -> bytes:
    """The public keys, as an issuer publishes them."""
    return json.dumps(KeySet([key(kind) for kind in kinds]).as_dict(private=False)).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """What a valid token says; None removes a claim."""
    seconds = NOW_MS // 1000
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "iat": seconds,
        "exp": seconds + 600,
        "scope": "read write",
        **changes,
    }
    return {name: value for name, value in given.items() if value is not None}


def token(kind: str = "ES256", *, alg: str = "", header: Any = None, **changes: Any) -> str:
    """A token signed with the key of a kind."""
    algorithm = alg or kind.partition("-")[0]
    head = {"alg": algorithm, "kid": kind, "typ": "JWT", **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    payload = json.dumps(claims(**changes)).encode()
    return jws.serialize_compact(head, payload, key(kind), algorithms=[algorithm])


def unsigned(header: dict[str, Any], signature: str = "", **changes: Any) -> str:
    """A token that nobody has signed."""
    return f"{encoded(header)}.{encoded(claims(**changes))}.{signature}"


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
