"""Where the secret of a cluster comes from."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from goqueue.config import ClusterSettings, load
from goqueue.model.errors import InvalidSettings
from goqueue.runtime.cluster_secret import (
    credentials_of,
    has_credentials,
    make_secret_file,
    new_secret,
)
from goqueue.runtime.shards import SECRET_FILE, _share_secret, plan
from tests.credentials import OTHER_SECRET, SECRET, new_credentials


def settings(**values: object) -> ClusterSettings:
    return ClusterSettings(**values)  # type: ignore[arg-type]


def test_a_new_secret_is_unlike_any_other_and_fits_into_a_setting() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert len(secret) == 43
        assert load(overrides={"cluster.secret": secret}).cluster.secret == secret


def test_a_file_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert make_secret_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    assert not make_secret_file(path)
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["secret"], "nothing else is left behind"
    credentials = credentials_of(settings(secret_file=path))
    assert credentials is not None
    assert credentials.key_ids == new_credentials(before.strip()).key_ids


def test_a_file_may_have_the_old_secret_after_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"# changed on Monday\n{OTHER_SECRET}\n\n{SECRET}\n")
    path.chmod(0o600)
    credentials = credentials_of(settings(secret_file=path))
    assert credentials is not None
    assert credentials.key_ids == new_credentials(OTHER_SECRET, SECRET).key_ids
    by_setting = credentials_of(settings(secret=OTHER_SECRET, secret_previous=SECRET))
    assert by_setting is not None
    assert by_setting.key_ids == credentials.key_ids


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must have one line"),
        (f"{SECRET}\n" * 3, "must have one line"),
        ("short\n", "32 to 1024"),
        ("x" * 10_000, "must have one line"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_not_repeated(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(InvalidSettings, match=reason) as error:
        credentials_of(settings(secret_file=path))
    assert SECRET not in str(error.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read: No such file"):
        credentials_of(settings(secret_file=tmp_path / "secret"))
    (tmp_path / "secret").write_bytes(b"\xff" * 40)
    with pytest.raises(InvalidSettings, match="not text"):
        credentials_of(settings(secret_file=tmp_path / "secret"))


def test_a_file_that_others_may_read_is_complained_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o644)
    assert credentials_of(settings(secret_file=path)) is not None
    assert "chmod 600" in caplog.text


def test_without_secret_and_certificates_nothing_starts() -> None:
    with pytest.raises(InvalidSettings, match="goqueue cluster secret --file FILE"):
        credentials_of(settings())


def test_certificates_are_enough(tmp_path: Path) -> None:
    with_tls = settings(tls_certificate=tmp_path, tls_key=tmp_path, tls_authorities=tmp_path)
    assert has_credentials(with_tls)
    assert credentials_of(with_tls) is None


def test_shards_share_a_secret_that_is_made_with_their_data(tmp_path: Path) -> None:
    alone = load(overrides={"--data-dir": str(tmp_path)})
    path = tmp_path / SECRET_FILE
    assert {one.settings["cluster.secret_file"] for one in plan(alone, 3)} == {str(path)}
    _share_secret(alone, path)
    before = path.read_text()
    _share_secret(alone, path)
    assert path.read_text() == before


def test_shards_that_join_others_must_be_given_their_secret(tmp_path: Path) -> None:
    path = tmp_path / SECRET_FILE
    joining = {"--data-dir": str(tmp_path), "--peers": "9@10.0.0.9:7000"}
    with pytest.raises(InvalidSettings, match="goqueue cluster secret"):
        _share_secret(load(overrides=joining), path)
    assert not path.exists()
    given = load(overrides={**joining, "cluster.secret": SECRET})
    _share_secret(given, path)
    assert not path.exists()
    assert all("cluster.secret_file" not in one.settings for one in plan(given, 2))
