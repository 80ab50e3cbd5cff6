"""Signature Version 4: verifies that the sender of a request has the secret of the key it names.

The signature covers the request in a canonical form, the time, and the scope of the key. It is in a
header, or in the query of a presigned URL.
"""

from __future__ import annotations

import hmac
import re
from calendar import timegm
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from time import strptime
from urllib.parse import parse_qsl, quote, unquote

from goqueue.wire.carrier.calls import Request
from goqueue.wire.sqs.errors import (
    IncompleteSignature,
    SignatureDoesNotMatch,
    SignatureNotCurrent,
)

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
SKEW_SECONDS_MAX = 15 * 60  # between the client's clock and ours
EXPIRY_SECONDS_MAX = 7 * 24 * 3600  # of a presigned URL
QUERY_FIELDS_MAX = 1000
IN_QUERY = b"X-Amz-Signature="  # of a presigned address
_TERMINATOR = "aws4_request"
_PART = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]*)")
_AMAZON = b"x-amz-"
_PAYLOAD_DIGEST = b"x-amz-content-sha256"
_SIGNATURE = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Claim:
    """The credential, scope and time that a request claims to be signed with."""

    key_id: str
    day: str
    region: str
    service: str
    headers: tuple[str, ...]
    signature: str
    time: str
    expires_seconds: int | None = None  # of a presigned URL

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/{_TERMINATOR}"


def claim_of(request: Request) -> Claim | None:
    """The claim of a request; None if it is not signed."""
    header = request.header(b"authorization").decode("latin-1")
    if header:
        if not header.startswith(ALGORITHM):
            raise IncompleteSignature(f"Only signatures by {ALGORITHM} are understood.")
        parts = dict(_PART.findall(header))
        # A request without `X-Amz-Date` has the time in the Date header, which hardly any client
        # uses.
        return _claim(
            parts.get("Credential", ""),
            parts.get("SignedHeaders", ""),
            parts.get("Signature", ""),
            request.header(b"x-amz-date").decode("latin-1"),
        )
    if IN_QUERY not in request.query:
        return None
    query = dict(_query(request))
    return _claim(
        query.get("X-Amz-Credential", ""),
        query.get("X-Amz-SignedHeaders", ""),
        query.get("X-Amz-Signature", ""),
        query.get("X-Amz-Date", ""),
        query.get("X-Amz-Expires", ""),
    )


def region_of(request: Request) -> str:
    """The region that a client addresses; empty if it does not say."""
    found = re.search(
        rb"Credential=[^/,]*/\d{8}/([a-z0-9-]{1,50})/", request.header(b"authorization")
    )
    return found[1].decode("ascii") if found else ""


def verify(request: Request, claim: Claim, secret: str, *, now_ms: int) -> None:
    """Raise unless a request was signed with a secret, recently, and all of it was signed."""
    _check_time(claim, now_ms // 1000)
    if claim.service != SERVICE:
        raise SignatureDoesNotMatch(f"Credential should be scoped to correct service: '{SERVICE}'.")
    if "host" not in claim.headers:
        raise SignatureDoesNotMatch("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    _check_signed(request, claim)
    wanted = sign(canonical_request(request, claim), claim, secret)
    if not hmac.compare_digest(wanted, claim.signature):
        raise SignatureDoesNotMatch(
            "The request signature we calculated does not match the signature you provided. Check "
            "your AWS Secret Access Key and signing method. Consult the service documentation for "
            "details."
        )


def _check_signed(request: Request, claim: Claim) -> None:
    """Raise if a header that decides what a request does is not signed, or the body is not."""
    for name in request.headers:
        if name.startswith(_AMAZON) and name.decode("latin-1") not in claim.headers:
            raise SignatureDoesNotMatch(
                f"'{name.decode('latin-1')[:100]}' must be a 'SignedHeader' in the AWS "
                "Authorization."
            )
    stated = request.headers.get(_PAYLOAD_DIGEST)
    if stated is not None and stated != sha256(request.body).hexdigest().encode("ascii"):
        raise SignatureDoesNotMatch(
            "The value of X-Amz-Content-SHA256 is not the hash of the body; UNSIGNED-PAYLOAD is "
            "not accepted."
        )


def canonical_request(request: Request, claim: Claim) -> str:
    """A request in the canonical form that both sides sign."""
    is_presigned = claim.expires_seconds is not None
    pairs = [pair for pair in _query(request) if pair[0] != "X-Amz-Signature" or not is_presigned]
    query = "&".join(f"{name}={value}" for name, value in sorted(map(_escaped, pairs)))
    headers = "".join(f"{name}:{_header(request, name)}\n" for name in claim.headers)
    names = ";".join(claim.headers)
    digest = sha256(request.body).hexdigest()
    return f"{request.method}\n{_path(request.path)}\n{query}\n{headers}\n{names}\n{digest}"


def sign(canonical: str, claim: Claim, secret: str) -> str:
    digest = sha256(canonical.encode("latin-1")).hexdigest()
    text = f"{ALGORITHM}\n{claim.time}\n{claim.scope}\n{digest}"
    key = _signing_key(secret, claim.day, claim.region, claim.service)
    return hmac.new(key, text.encode(), sha256).hexdigest()


@lru_cache(maxsize=1024)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    """Return the derived key of one day, region and service, which many requests share."""
    key = f"AWS4{secret}".encode()
    for word in (day, region, service, _TERMINATOR):
        key = hmac.new(key, word.encode(), sha256).digest()
    return key


def _claim(credential: str, headers: str, signature: str, time: str, expires: str = "") -> Claim:
    words = unquote(credential).split("/")
    is_whole = len(words) == 5 and words[-1] == _TERMINATOR and bool(headers) and bool(time)
    if not is_whole or not _SIGNATURE.fullmatch(signature):
        raise IncompleteSignature(
            "Authorization needs Credential=KEY/DATE/REGION/SERVICE/aws4_request, SignedHeaders "
            "and a Signature of 64 hexadecimal digits, and the request a header X-Amz-Date."
        )
    key_id, day, region, service, _ = words
    seconds = int(expires) if expires.isdigit() and len(expires) < 10 else None
    names = tuple(headers.lower().split(";"))
    return Claim(key_id, day, region, service, names, signature, time, seconds)


@lru_cache(maxsize=1024)
def _seconds(text: str) -> int:
    """Read a time; requests of the same second share it."""
    return timegm(strptime(text, "%Y%m%dT%H%M%SZ"))


def _check_time(claim: Claim, now_seconds: int) -> None:
    try:
        at = _seconds(claim.time)
    except ValueError:
        raise IncompleteSignature(
            f"Date must be in ISO-8601 'basic format'. Got '{claim.time[:40]}'."
        ) from None
    if claim.time[:8] != claim.day:
        raise SignatureDoesNotMatch("Date in Credential scope does not match YYYYMMDD of the date.")
    valid = SKEW_SECONDS_MAX
    if claim.expires_seconds is not None:
        valid = min(claim.expires_seconds, EXPIRY_SECONDS_MAX)
    if now_seconds > at + valid:
        raise SignatureNotCurrent(f"Signature expired: {claim.time} is too long ago.")
    if at > now_seconds + SKEW_SECONDS_MAX:
        raise SignatureNotCurrent(f"Signature not yet current: {claim.time} is still to come.")


def _query(request: Request) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            request.query.decode("latin-1"),
            keep_blank_values=True,
            encoding="latin-1",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError:
        raise IncompleteSignature("The query of the address cannot be read.") from None


def _escaped(pair: tuple[str, str]) -> tuple[str, str]:
    name, value = pair
    return (
        quote(name, safe="-_.~", encoding="latin-1"),
        quote(value, safe="-_.~", encoding="latin-1"),
    )


def _header(request: Request, name: str) -> str:
    text = request.header(name.encode("latin-1", "replace")).decode("latin-1")
    return " ".join(text.split())


@lru_cache(maxsize=1024)
def _path(path: str) -> str:
    """Escape a path once more than received, as SDKs do for all services except S3."""
    return quote(_normal_path(path), safe="/-_.~", encoding="latin-1")


def _normal_path(path: str) -> str:
    """A path without empty and dot segments."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept.append(segment)
    tail = "/" if path.endswith("/") and kept else ""
    return "/" + "/".join(kept) + tail
