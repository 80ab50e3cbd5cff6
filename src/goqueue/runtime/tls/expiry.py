"""When certificates expire, and warnings before they do."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

WARNING_DAYS = 30
DAY_SECONDS = 24 * 60 * 60
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# The tags of X.690 that lead to the validity of a certificate.
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18

_log = logging.getLogger(__name__)


def not_after_ms(chain: Path) -> int:
    """Return when the first certificate of a chain to expire does so; raises ValueError.

    Our own files are read here, so the few steps to the date do not need a whole parser.
    """
    found = _PEM.findall(chain.read_text())
    if not found:
        raise ValueError(f"{chain} holds no certificate in PEM")
    return min(_not_after_ms(ssl.PEM_cert_to_DER_cert(one)) for one in found)


def _not_after_ms(certificate: bytes) -> int:
    try:
        _, signed, _ = _element(memoryview(certificate))
        _, fields, _ = _element(signed)
        tag, _, rest = _element(fields)
        if tag == _VERSION:
            _, _, rest = _element(rest)  # the serial number
        for _ in ("algorithm", "issuer"):
            _, _, rest = _element(rest)
        tag, validity, _ = _element(rest)
        _, _, rest = _element(validity)  # not before
        tag, text, _ = _element(rest)
        return _time_ms(tag, bytes(text).decode("ascii"))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a certificate cannot be read: {error}") from error


def _element(data: memoryview) -> tuple[int, memoryview, memoryview]:
    """The tag and the content of the first element of DER, and what follows it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    return tag, data[start : start + length], data[start + length :]


def _time_ms(tag: int, text: str) -> int:
    if tag == _UTC_TIME:  # with two digits for the year, of 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("a certificate has no valid date")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1_000)


class ExpiryWarnings:
    """Logs once a day which certificates expire soon."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        certificates: Mapping[str, Callable[[], int]],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`certificates` return their expiry, in milliseconds of wall time, by name."""
        self._loop = loop
        self._certificates = certificates
        self._now = now
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check now, and then every day."""
        self.check()
        self._timer = self._loop.call_later(DAY_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        for name, expiry_ms in self._certificates.items():
            left_seconds = expiry_ms() / 1_000 - self._now()
            days = int(left_seconds // DAY_SECONDS)
            if left_seconds <= 0:
                _log.error("the certificate of %s has expired; clients refuse it", name)
            elif days < WARNING_DAYS:
                _log.warning(
                    "the certificate of %s expires in %d days; replace its files", name, days
                )
