"""The files of certificates: what is wrong with them is said, and new ones are noticed."""

from __future__ import annotations

import logging
import socket
import ssl
from pathlib import Path

import pytest

from goqueue.config import ClusterSettings, load
from goqueue.model.errors import InvalidSettings
from goqueue.runtime.tls.files import reason_of
from goqueue.runtime.tls.nodes import NodeTls
from tests.certificates import Authority, Files


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(files: Files, *, discovered_as: str = "") -> NodeTls:
    return NodeTls(**files._asdict(), discovered_as=discovered_as)


def problems_of(files: Files) -> list[str]:
    with pytest.raises(InvalidSettings) as raised:
        tls_of(files)
    return raised.value.problems


def test_without_settings_there_is_none() -> None:
    assert NodeTls.of(ClusterSettings()) is None


def test_settings_are_all_there_is_to_say(authority: Authority) -> None:
    files = authority.sign("node-1", "127.0.0.1")
    overrides = {name: str(value) for name, value in files.settings.items()}
    assert NodeTls.of(load(overrides=overrides).cluster) is not None


def test_only_the_newest_version_is_spoken_and_everybody_is_checked(authority: Authority) -> None:
    context = tls_of(authority.sign("node-1", "127.0.0.1")).client_context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_every_file_that_cannot_be_read_is_named_at_once(tmp_path: Path) -> None:
    problems = problems_of(Files(tmp_path / "a.pem", tmp_path / "a.key", tmp_path / "b.pem"))
    assert [one.partition(":")[0] for one in problems] == [
        "cluster.tls_certificate",
        "cluster.tls_key",
        "cluster.tls_authorities",
    ]
    assert all("cannot be read: No such file" in one for one in problems)


def test_a_key_of_another_certificate_and_an_empty_list_are_both_told(
    authority: Authority, tmp_path: Path
) -> None:
    one, other = authority.sign("one", "a"), authority.sign("other", "b")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    problems = problems_of(Files(one.certificate, other.key, empty))
    assert len(problems) == 2
    assert "are not a certificate and its key in PEM" in problems[0]
    assert "key values mismatch" in problems[0]
    assert "holds no certificates in PEM" in problems[1]


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(authority: Authority) -> None:
    (problem,) = problems_of(authority.sign("node-1", "127.0.0.1", password=b"secret"))
    assert "without a password" in problem


def test_new_files_count_and_broken_ones_are_told_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = authority.sign("node-1", "127.0.0.1")
    tls = tls_of(files)
    first = tls.client_context()
    assert tls.client_context() is first
    good = files.key.read_bytes()
    files.key.write_text("half of a fi")
    assert tls.client_context() is first
    assert tls.client_context() is first
    assert caplog.text.count("so the old one is kept") == 1
    files.key.unlink()
    assert tls.client_context() is first
    files.key.write_bytes(good)
    second = tls.client_context()
    assert second is not first
    assert tls.client_context() is second
    assert caplog.text.count("new connections use the new one") == 1


def test_what_discovery_found_is_known_by_the_name_that_led_there(authority: Authority) -> None:
    tls = tls_of(authority.sign("node-1", "nodes.example"), discovered_as="nodes.example")
    assert tls.name_of("10.0.0.1") == "nodes.example"
    assert tls.name_of("fe80::1%eth0") == "nodes.example"
    assert tls.name_of("node-1.nodes.example") == "node-1.nodes.example"
    assert tls_of(authority.sign("node-1", "a")).name_of("10.0.0.1") == "10.0.0.1"


def test_a_host_that_no_certificate_can_name_is_an_error_like_others(authority: Authority) -> None:
    tls = tls_of(authority.sign("node-1", "a"))
    here, there = socket.socketpair()
    with here, there, pytest.raises(OSError, match="no certificate can be for the host"):
        tls.dial(here, ".example")


def test_reasons_say_where_to_look() -> None:
    assert "does it use TLS?" in reason_of(ConnectionResetError())
    assert reason_of(TimeoutError()) == "it did not respond in time"
    assert "Connection refused" in reason_of(ConnectionRefusedError(111, "Connection refused"))


def test_nodes_refuse_a_certificate_that_is_revoked(authority: Authority) -> None:
    lists = authority.revoke()
    one, other = (authority.sign(name, "127.0.0.1") for name in ("node-1", "node-2"))
    tls = NodeTls(**one._asdict(), revocation_lists=lists)
    of_other = ssl.PEM_cert_to_DER_cert(other.certificate.read_text())
    assert tls.client_context().verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    assert not tls.revocations().has(of_other)
    before = tls.revocations()
    authority.revoke(other)
    assert tls.revocations() is not before
    assert tls.revocations().has(of_other)
    assert not tls.revocations().has(ssl.PEM_cert_to_DER_cert(one.certificate.read_text()))
    lists.write_text("nothing")
    assert tls.revocations().has(of_other), "the last list that could be used counts"


def test_a_file_without_lists_is_named(authority: Authority) -> None:
    files = authority.sign("node-1", "127.0.0.1")
    with pytest.raises(InvalidSettings, match=r"cluster\.tls_revocation_lists"):
        NodeTls(**files._asdict(), revocation_lists=files.certificate)
