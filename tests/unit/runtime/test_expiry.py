"""When certificates expire, and who is told before they do."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from goqueue.config import load
from goqueue.runtime.tls.clients import ClientTls
from goqueue.runtime.tls.expiry import ExpiryWarnings, _not_after_ms, _time_ms, not_after_ms
from goqueue.runtime.tls.nodes import NodeTls
from tests.certificates import Authority

DAY_MS = 24 * 3_600_000


def seen_by_cryptography(path: Path) -> int:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return int(certificate.not_valid_after_utc.timestamp() * 1_000)


@pytest.mark.parametrize("days", [-1, 1, 400, 40_000])
def test_the_date_is_that_of_the_certificate(tmp_path: Path, days: int) -> None:
    files = Authority(tmp_path).sign("server", "127.0.0.1", days=days)
    assert not_after_ms(files.certificate) == seen_by_cryptography(files.certificate)


def test_of_a_chain_the_first_to_expire_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, other = authority.sign("server", "a", days=50), authority.sign("other", "b", days=20)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(files.certificate.read_bytes() + other.certificate.read_bytes())
    assert not_after_ms(chain) == seen_by_cryptography(other.certificate)


def test_both_forms_of_a_date_are_read() -> None:
    assert _time_ms(0x17, "491231235959Z") == _time_ms(0x18, "20491231235959Z")
    assert _time_ms(0x17, "500101000000Z") == _time_ms(0x18, "19500101000000Z")
    with pytest.raises(ValueError, match="valid date"):
        _time_ms(0x04, "")


@given(st.binary(max_size=200))
def test_garbage_is_an_error_that_can_be_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        _not_after_ms(data)


def test_new_files_have_a_new_date(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.sign("server", "127.0.0.1", days=10)
    paths = {
        "security.tls_certificate": str(files.certificate),
        "security.tls_key": str(files.key),
    }
    client_tls = ClientTls.of(load(overrides={"--listen-http": "ssl://127.0.0.1:0", **paths}))
    node_tls = NodeTls(**files._asdict())
    assert client_tls is not None
    before = client_tls.not_after_ms()
    assert node_tls.not_after_ms() == before == seen_by_cryptography(files.certificate)
    authority.sign("server", "127.0.0.1", days=30)
    assert node_tls.not_after_ms() == client_tls.not_after_ms() > before
    assert ClientTls.of(load(overrides=paths)) is None, "no listener uses it"


def test_what_expires_soon_is_told_every_day(caplog: pytest.LogCaptureFixture) -> None:
    now = datetime.now(UTC)
    loop = asyncio.new_event_loop()

    def after(**left: float) -> int:
        return int((now + timedelta(**left)).timestamp() * 1_000)

    expiries = {
        "one": lambda: after(days=29, hours=1),
        "two": lambda: after(days=31),
        "three": lambda: after(days=-1),
    }
    warnings = ExpiryWarnings(loop, expiries, now=now.timestamp)
    warnings.start()
    assert [(one.levelno, one.message) for one in caplog.records] == [
        (logging.WARNING, "the certificate of one expires in 29 days; replace its files"),
        (logging.ERROR, "the certificate of three has expired; clients refuse it"),
    ]
    assert warnings._timer is not None
    assert warnings._timer.when() - loop.time() == pytest.approx(24 * 3_600, abs=10)
    warnings.stop()
    loop.close()
