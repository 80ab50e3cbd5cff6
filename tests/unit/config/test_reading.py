"""Settings: where they come from, what is refused, and how they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.config import UNLIMITED, Address, Settings, load, render
from goqueue.model.errors import InvalidSettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "goqueue.yaml"


def problems_of(**sources: object) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        load(**sources)  # type: ignore[arg-type]
    return caught.value.problems


def test_without_sources_everything_has_its_default() -> None:
    settings = load()
    assert settings == Settings()
    assert settings.listeners.kafka[0].address == Address("127.0.0.1", 9092)
    assert settings.storage.fsync == "every"
    assert settings.storage.retention_bytes == UNLIMITED


def test_flags_beat_the_environment_which_beats_the_file(file: Path) -> None:
    file.write_text("storage: {fsync: none, segment_ms: 1h, segment_bytes: 1MiB}")
    settings = load(
        file=file,
        environ={"GOQUEUE_STORAGE_FSYNC": "interval", "GOQUEUE_STORAGE_SEGMENT_MS": "2h"},
        overrides={"--fsync": "every"},
    )
    assert settings.storage.fsync == "every"
    assert settings.storage.segment_ms == 7_200_000
    assert settings.storage.segment_bytes == 1_048_576


def test_the_environment_can_name_the_file(file: Path) -> None:
    file.write_text("node:\n  id: 7\n")
    assert load(environ={"GOQUEUE_CONFIG": str(file)}).node.id == 7


def test_a_short_flag_has_a_short_variable() -> None:
    settings = load(environ={"GOQUEUE_LISTEN_KAFKA": "[::1]:0", "GOQUEUE_DATA_DIR": "/srv/queue"})
    assert settings.listeners.kafka[0].address == Address("::1", 0)
    assert settings.node.data_dir == Path("/srv/queue")


def test_an_empty_file_and_an_empty_section_say_nothing(file: Path) -> None:
    for text in ("", "# nothing yet\n", "storage:\n", "listeners:\n  kafka_advertised:\n"):
        file.write_text(text)
        assert load(file=file) == Settings()


def test_every_problem_is_reported_at_once_with_its_source(file: Path) -> None:
    file.write_text("storage:\n  fsynk: every\n  segment_bytes: 3TiB\ntoppics: {}\n")
    problems = problems_of(
        file=file,
        environ={"GOQUEUE_LOG_LEVEL": "loud", "GOQUEUE_STORAGE_FSINC": "none"},
        overrides={"--node-id": "one", "groups.size": "3"},
    )
    assert problems == [
        "groups.size: no such setting; did you mean groups.size_max? (flag --set groups.size)",
        "GOQUEUE_STORAGE_FSINC: no such setting; did you mean GOQUEUE_STORAGE_FSYNC? (environment)",
        f"storage.fsynk: no such setting; did you mean storage.fsync? (file {file} line 2)",
        f"toppics: no such section; did you mean topics? (file {file} line 4)",
        "node.id: 'one' is not a whole number (flag --node-id)",
        "storage.segment_bytes: 3TiB is out of range; expected a size in bytes from 1KiB to "
        f"2147483647 (file {file} line 3)",
        "logging.level: 'loud' is unknown; expected one of debug, info, warning, error "
        "(environment GOQUEUE_LOG_LEVEL)",
    ]


def test_a_variable_that_only_shares_the_prefix_is_left_alone() -> None:
    kubernetes = {"GOQUEUE_PORT": "tcp://10.0.0.1:9092", "GOQUEUE_SERVICE_HOST": "10.0.0.1"}
    assert load(environ={**kubernetes, "GOQUEUE_BOOTSTRAP": "b:1"}) == Settings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a\n- b\n", "the file: expected `name: value` lines"),
        ("storage: 5\n", "section storage: expected `name: value` lines"),
        ("storage: {fsync: [every]}\n", "storage.fsync: expected a single value"),
        ("node: {id: 1}\nnode: {id: 2}\n", "node: given twice in the file"),
        ("{[a]: 1}\n", "the file: a name must be a single word"),
        ("a: b: c\n", "cannot be read: mapping values are not allowed here"),
        ("a: *nobody\n", "cannot be read: found undefined alias"),
    ],
)
def test_a_file_of_another_shape_is_refused(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    assert any(problem in told for told in problems_of(file=file))


def test_a_file_that_is_not_there_or_not_text_is_a_problem(file: Path) -> None:
    assert problems_of(file=file) == [f"file {file}: cannot be read: No such file or directory"]
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in problems_of(file=file)[0]


def test_an_empty_variable_says_nothing() -> None:
    assert load(environ={"GOQUEUE_FSYNC": "", "GOQUEUE_CONFIG": ""}) == Settings()


def test_two_names_of_one_setting_must_agree() -> None:
    environ = {"GOQUEUE_FSYNC": "none", "GOQUEUE_STORAGE_FSYNC": "every"}
    assert "GOQUEUE_FSYNC says 'none'" in problems_of(environ=environ)[0]
    environ["GOQUEUE_STORAGE_FSYNC"] = "none"
    assert load(environ=environ).storage.fsync == "none"


@pytest.mark.parametrize("text", ["me", "me:", ":secret", "me:a b", "me:a,me:b", "me:(hidden)"])
def test_a_key_that_cannot_be_read_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        load(overrides={"sqs.access_keys": text})
    assert "expected ID:SECRET" in str(error.value)
    assert text not in str(error.value)


SECRET = "x" * 32


def test_the_secret_of_nodes_is_never_shown() -> None:
    settings = load(
        overrides={"cluster.secret": SECRET, "cluster.secret_previous": SECRET[:-1] + "y"}
    )
    assert settings.cluster.secret == SECRET
    assert SECRET[:-1] not in render(settings)
    for wrong in ("short", "with a space in it, but long enough"):
        (problem,) = problems_of(overrides={"cluster.secret": wrong})
        assert "32 to 1024 printable characters" in problem
        assert wrong not in problem


def test_printed_settings_say_where_they_come_from_and_can_be_read_back(file: Path) -> None:
    settings = load(
        environ={"GOQUEUE_STORAGE_RETENTION_MS": "-1"},
        overrides={"--data-dir": "it's: a #folder ", "compaction.dirty_ratio_min": "0.25"},
    )
    text = render(settings)
    assert "  retention_ms: -1  # environment GOQUEUE_STORAGE_RETENTION_MS\n" in text
    assert "  dirty_ratio_min: 0.25  # flag --set compaction.dirty_ratio_min\n" in text
    assert "  segment_bytes: 1GiB  # default\n" in text
    file.write_text(text)
    assert load(file=file) == settings
