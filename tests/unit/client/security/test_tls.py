"""TLS options: files that are wrong, files that change, and errors that name what to change."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from goqueue.client.security import TlsSettings
from goqueue.client.security.tls import context_of, permanent_failure
from goqueue.model.errors import InvalidRequest
from tests.certificates import Authority


def test_files_are_read_again_when_they_have_changed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.sign("client", "client")
    settings = TlsSettings(str(files.authorities), str(files.certificate), str(files.key))
    first = context_of(settings)
    assert context_of(settings) is first
    authority.sign("client", "client")
    assert context_of(settings) is not first


def test_the_name_of_the_broker_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    ca_file = str(Authority(tmp_path).sign("node", "node").authorities)
    strict, lax = TlsSettings(ca_file), TlsSettings(ca_file, checks_host=False)
    assert context_of(strict).check_hostname
    assert not context_of(lax).check_hostname
    assert context_of(lax).verify_mode is ssl.CERT_REQUIRED
    assert context_of(strict).minimum_version is ssl.TLSVersion.TLSv1_2


def test_authorities_may_be_given_as_text(tmp_path: Path) -> None:
    text = Authority(tmp_path).sign("node", "node").authorities.read_text()
    assert len(context_of(TlsSettings(ca_text=text)).get_ca_certs()) == 1


def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, other = authority.sign("a", "a"), authority.sign("b", "b")
    locked = authority.sign("locked", "locked", password=b"opensesame")
    text = tmp_path / "text"
    text.write_text("no certificate")
    ca_file = str(files.authorities)
    wrong = [
        TlsSettings(str(tmp_path / "missing.pem")),
        TlsSettings(str(text)),
        TlsSettings(ca_file, str(text)),
        TlsSettings(ca_file, str(files.certificate), str(other.key)),
        TlsSettings(ca_file, str(locked.certificate), str(locked.key)),
        TlsSettings(ca_file, str(locked.certificate), str(locked.key), "wrong-one"),
        TlsSettings(ca_text="no certificate"),
    ]
    for settings in wrong:
        with pytest.raises(InvalidRequest) as caught:
            context_of(settings)
        assert "wrong-one" not in str(caught.value)
    context_of(TlsSettings(ca_file, str(locked.certificate), str(locked.key), "opensesame"))


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="certificate"):
        TlsSettings(key_file="key.pem")
    with pytest.raises(InvalidRequest, match="not both"):
        TlsSettings("ca.pem", ca_text="text")


def test_passwords_of_keys_are_not_shown() -> None:
    assert "opensesame" not in repr(TlsSettings("a", "b", "c", "opensesame"))


def error(reason: str, kind: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    made = kind(1, f"[SSL: {reason}] text")
    made.reason = reason
    return made


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("WRONG_VERSION_NUMBER", "does not speak TLS"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "certificate of the client"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "certificate of the client"),
        ("TLSV1_ALERT_UNKNOWN_CA", "unknown ca"),
    ],
)
def test_failures_that_stay_are_told_from_those_that_pass(reason: str, hint: str) -> None:
    failed = permanent_failure(error(reason), "queue.example:9093")
    assert failed is not None
    assert not failed.retryable
    assert hint in str(failed)
    assert "queue.example:9093" in str(failed)


@pytest.mark.parametrize(
    "passing",
    [ConnectionResetError(), TimeoutError(), error("UNEXPECTED_EOF", ssl.SSLEOFError)],
)
def test_a_broker_that_hangs_up_may_be_back_soon(passing: OSError) -> None:
    assert permanent_failure(passing, "queue.example:9093") is None
