"""Pipelines on a real session of Spark against a real broker: what goes in comes out, once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from goqueue import Client
from goqueue.cli.main import main
from goqueue.client import (
    LogClient,
    Position,
    ReaderSettings,
    ReadRecord,
    partition_of_key,
)
from goqueue.spark import pipelines
from goqueue.spark.pipelines.manifests import load_archive
from tests.e2e.conftest import NewTopic, write
from tests.integration.process import END_WITH_US, Broker
from tests.integration.waiting import eventually

HOUR_MS = 3_600_000
BASE_MS = 1_767_225_600_000
Cli = Callable[..., Any]


@pytest.fixture
def new_topic(client: LogClient, unique: str) -> NewTopic:
    """Topics that keep records of any age: those of these tests are months old."""
    made: list[str] = []

    def create(partitions: int = 1) -> str:
        made.append(f"{unique}-{len(made)}")
        settings = {"retention.ms": "-1"}
        client.topics.create(made[-1], partition_count=partitions, settings=settings)
        return made[-1]

    return create


@pytest.fixture
def cli(
    spark: SparkSession,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    """Run `goqueue pipeline ...` in this process, with the session that is there."""

    def run(*words: str) -> Any:
        argv = ["goqueue", "pipeline", *words, "-b", broker.bootstrap, "-o", "json"]
        argv += ["--http", broker.http]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        if caught.value.code:
            return captured.err
        return json.loads(captured.out)

    return run


def test_an_archive_replayed_is_the_topic_that_was_archived(
    spark: SparkSession, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(3)
    write_all_kinds(client, source, 3000)
    done = pipelines.archive(
        spark, broker.bootstrap, [source], tmp_path, records_per_task_max=700
    ).manifest
    assert done is not None
    assert done.digest.records == 3000
    assert sorted(path_of_hour(file.path) for file in done.files)[0] == "date=2026-01-01/hour=00"
    frame = pipelines.read_archive(spark, tmp_path)
    assert frame.select("partition", "offset").distinct().count() == 3000
    assert pipelines.verify_archive(spark, tmp_path).digest == done.digest

    first = pipelines.replay(spark, broker.bootstrap, target, run_id="one", archive=tmp_path)
    assert (first.copied, first.present, first.verified) == (3000, 0, 3000)
    assert first.digest == done.digest
    again = pipelines.replay(spark, broker.bootstrap, target, run_id="one", archive=tmp_path)
    assert (again.copied, again.present, again.verified) == (0, 3000, 3000)
    assert contents(read(client, target)) == contents(read(client, source))
    for key, values in by_key(read(client, source)).items():
        assert by_key(read(client, target))[key] == values


def test_an_archive_goes_on_where_it_ended(
    cli: Cli, client: LogClient, new_topic: NewTopic, spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic()
    write(client, topic, [b"%d" % number for number in range(100)])
    words = ("run", "archive", topic, "--to", str(tmp_path), "--layout", "partition", "--verify")
    assert cli(*words)["records"] == 100
    assert cli(*words)["manifest"] is None
    write(client, topic, [b"%d" % number for number in range(100, 150)])
    done = cli(*words)
    assert (done["manifest"], done["records"], done["losses"]) == (2, 50, [])
    rows = pipelines.read_archive(spark, tmp_path).select("value").collect()
    assert sorted(int(row["value"]) for row in rows) == list(range(150))
    window = pipelines.read_archive(spark, tmp_path, from_ms=0, until_ms=1)
    assert window.count() == 0


def test_records_that_are_gone_before_they_are_archived_are_named(
    cli: Cli, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    write(client, topic, [b"old"] * 10)
    assert cli("run", "archive", topic, "--to", str(tmp_path))["records"] == 10
    write(client, topic, [b"lost"] * 10)
    client.topics.delete_records({client.partitions([topic])[0]: 15})
    refused = cli("run", "archive", topic, "--to", str(tmp_path))
    assert "Offsets 10 to 14" in refused
    accepted = cli("run", "archive", topic, "--to", str(tmp_path), "--accept-loss")
    assert accepted["records"] == 5
    assert "Offsets 10 to 14" in accepted["losses"][0]


def test_a_changed_byte_of_an_archive_is_noticed(
    spark: SparkSession, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    write(client, topic, [b"value"] * 10)
    done = pipelines.archive(spark, broker.bootstrap, [topic], tmp_path).manifest
    assert done is not None
    file = tmp_path / done.files[0].path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(pipelines.jobs.PipelineFailed, match="other bytes"):
        pipelines.verify_archive(spark, tmp_path)


@pytest.mark.slow
def test_an_archive_that_is_killed_loses_nothing_and_repeats_nothing(
    spark: SparkSession, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, folder = new_topic(2), tmp_path / "archive"
    count = 40_000
    write_all_kinds(client, topic, count)
    # So many tasks that the run takes half a minute: it is killed long before its end.
    words = ["run", "archive", topic, "--to", str(folder), "--task-records", "50"]
    process = start_cli(broker, tmp_path, [*words, "--master", "local[1]"])
    eventually(
        lambda: len(list(folder.glob("data/**/*.parquet"))) > 5 or process.poll() is not None,
        because="the archive has written some files",
        within=120,
    )
    kill_all(process)
    assert load_archive(folder).manifests == (), "the run was over before it was killed"
    done = pipelines.archive(spark, broker.bootstrap, [topic], folder, records_per_task_max=5000)
    assert done.manifest is not None
    assert done.strays_removed > 0
    assert done.manifest.digest.records == count
    rows = pipelines.read_archive(spark, folder)
    assert rows.select("partition", "offset").distinct().count() == rows.count() == count
    named = {file.path for file in done.manifest.files}
    there = {str(file.relative_to(folder)) for file in folder.glob("data/**/*.parquet")}
    assert there == named
    assert pipelines.verify_archive(spark, folder).digest == done.manifest.digest


@pytest.mark.slow
@pytest.mark.parametrize("is_machine", [True, False], ids=["machine", "driver"])
def test_a_replay_that_is_killed_writes_each_record_once(
    spark: SparkSession,
    broker: Broker,
    client: LogClient,
    new_topic: NewTopic,
    tmp_path: Path,
    is_machine: bool,
) -> None:
    source, target, folder = new_topic(2), new_topic(3), tmp_path / "archive"
    count = 200_000
    write_all_kinds(client, source, count)
    done = pipelines.archive(spark, broker.bootstrap, [source], folder).manifest
    assert done is not None
    words = ["run", "replay", "--archive", str(folder), "--to", target, "--run", "r"]
    process = start_cli(broker, tmp_path, [*words, "--master", "local[1]"])
    eventually(
        lambda: steps_noted(folder / "replays" / "r") >= 2 or process.poll() is not None,
        because="the replay has written some records",
        within=120,
    )
    (kill_all if is_machine else kill_driver)(process)
    before = len(read_committed(client, target))
    assert before < count, "the run was over before it was killed"
    again = pipelines.replay(spark, broker.bootstrap, target, run_id="r", archive=folder)
    assert again.present >= before
    assert again.present > 0
    assert again.verified == count
    assert again.digest == done.digest
    found = read_committed(client, target)
    assert contents(found) == contents(read(client, source))
    assert not client.transactions.open_in(client.partitions([target]))


def test_a_replay_takes_only_what_is_selected(
    cli: Cli, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    source = new_topic(2)
    write_all_kinds(client, source, 1000)
    records = read(client, source)
    state = ("--state", str(tmp_path))
    cases: dict[str, tuple[list[str], Callable[[ReadRecord], bool]]] = {
        "key": (["--key", "k7", "-k", "k8"], lambda one: one.key in (b"k7", b"k8")),
        "header": (["--header", "n=2"], lambda one: ("n", b"2") in one.headers),
        "where": (["--where", "offset % 10 = 3"], lambda one: one.offset % 10 == 3),
        "time": (
            ["--from", "2026-01-01T01:00:00Z", "--until", "2026-01-01T02:00:00Z"],
            lambda one: HOUR_MS <= one.timestamp_ms - BASE_MS < 2 * HOUR_MS,
        ),
    }
    for name, (words, is_wanted) in cases.items():
        target = new_topic(2)
        same = ("--partitioning", "same")
        done = cli(
            "run", "replay", "--topic", source, "--to", target, "--run", name, *state, *words, *same
        )
        wanted = [one for one in records if is_wanted(one)]
        assert wanted, name
        assert contents(read(client, target)) == contents(wanted), name
        assert done["verified"] == len(wanted)


def test_bad_orders_are_answered_with_what_to_do(
    cli: Cli, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target, folder = new_topic(2), new_topic(1), str(tmp_path / "archive")
    write(client, source, [b"value"], partition=1)
    state = ("--state", str(tmp_path))
    replay = ("run", "replay", "--to", target, "--run", "r")
    whole = (*replay, "--topic", source, *state)
    elsewhere = ("run", "replay", "--to", "nope", "--run", "r", "--topic", source, *state)
    assert "one of them" in cli(*replay)
    assert "holds no archive" in cli(*replay, "--archive", folder)
    assert "into itself" in cli(*replay, "--topic", target, *state)
    assert "There is no topic 'nope'" in cli(*elsewhere)
    assert "'nope > 3' is not understood" in cli(*whole, "--where", "nope > 3")
    assert "has 1 partitions" in cli(*whole, "--run", "s", "--partitioning", "same")
    assert cli(*whole)["copied"] == 1
    assert "another selection" in cli(*whole, "--where", "offset > 3")
    assert "cannot be written to" in cli("run", "archive", source, "--to", "s3://bucket/a")
    assert "NAME=VALUE" in cli("run", "archive", source, "--to", folder, "--conf", "memory=1g")
    assert "does not exist" in cli("run", "archive", "no-such-topic", "--to", folder)
    assert "cannot be counted by 'colour'" in cli("run", "deadletters", source, "--by", "colour")


def test_compaction_keeps_the_latest_record_of_each_key(
    cli: Cli, client: LogClient, new_topic: NewTopic, spark: SparkSession, tmp_path: Path
) -> None:
    topic, folder = new_topic(2), tmp_path / "latest"
    send(client, topic, [(b"k%d" % (number % 50), b"%d" % number) for number in range(1000)])
    send(client, topic, [(None, b"keyless"), (b"k3", None)])
    words = ("run", "compact", "--topic", topic, "--to", str(folder), "--drop-tombstones")
    assert cli(*words)["records"] == 49
    assert latest(spark, folder) == {b"k%d" % n: b"%d" % (950 + n) for n in range(50) if n != 3}
    assert cli(*words)["manifest"] is None

    send(client, topic, [(b"k3", b"back"), (b"k4", None), (b"new", b"new")])
    assert cli(*words)["manifest"] == 2
    expected = {b"k%d" % n: b"%d" % (950 + n) for n in range(50) if n not in (3, 4)}
    assert latest(spark, folder) == expected | {b"k3": b"back", b"new": b"new"}
    assert pipelines.verify_archive(spark, folder).digest.records == 50

    whole, target = tmp_path / "whole", new_topic(2)
    cli("run", "archive", topic, "--to", str(whole))
    done = cli("run", "compact", "--archive", str(whole), "--to", str(tmp_path / "other"))
    assert done["records"] == 51  # With the tombstone of k4.
    done = cli("run", "replay", "--archive", str(folder), "--to", target, "--run", "latest")
    assert done["verified"] == 50


@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_compaction_step_by_step_gives_what_compaction_at_once_gives(
    client: LogClient,
    broker: Broker,
    new_topic: NewTopic,
    spark: SparkSession,
    tmp_path: Path,
    keeps_tombstones: bool,
) -> None:
    """A key lies in two partitions, and the clock of one producer is behind."""
    topic, folder = new_topic(2), tmp_path / "steps"
    steps: list[tuple[int, int, bytes | None]] = [
        (0, 100, b"a"),
        (1, 90, b"b"),  # superseded by partition 0
        (0, 80, b"c"),  # newer than a in its partition, and older than b
        (1, 70, None),
        (0, 60, b"d"),
    ]

    def snapshot(place: Path) -> dict[bytes, bytes | None]:
        compacted = pipelines.compact(
            spark,
            place,
            bootstrap=broker.bootstrap,
            topic=topic,
            keeps_tombstones=keeps_tombstones,
        )
        assert compacted.manifest is not None
        assert pipelines.verify_archive(spark, place)
        return latest(spark, place)

    for number, (partition, timestamp_ms, value) in enumerate(steps):
        with client.producer() as producer:
            producer.send(topic, value, key=b"k", partition=partition, timestamp_ms=timestamp_ms)
        at_once = snapshot(tmp_path / f"at-once-{number}")
        assert snapshot(folder) == at_once, number


def test_redistribution_sends_keys_where_clients_look_for_them(
    cli: Cli, client: LogClient, new_topic: NewTopic, unique: str, tmp_path: Path
) -> None:
    source, target = new_topic(2), f"{unique}-wide"
    write_all_kinds(client, source, 2000)
    words = ("run", "redistribute", source, target, "--state", str(tmp_path / "state"))
    done = cli(*words, "--partitions", "5")
    assert (done["copied"], done["verified"], done["partitions"]) == (2000, 2000, 5)
    for record in read(client, target):
        if record.key is not None:
            assert record.partition == partition_of_key(record.key, 5)
    write_all_kinds(client, source, 500)
    assert cli(*words)["copied"] == 500
    assert cli(*words)["copied"] == 0
    assert contents(read(client, target)) == contents(read(client, source))
    assert by_key(read(client, target)) == by_key(read(client, source))


def test_dead_letters_are_counted_and_brought_back_once(
    cli: Cli, broker: Broker, client: LogClient, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    with Client(broker.http) as http:
        for number in range(6):
            http.publish(topic, f"message {number}", key=f"k{number % 2}")
        queue = http.queue(topic, group="billing")
        for message in queue.receive(max_messages=6, wait=10):
            queue.reject(message.receipt, reason="bad" if message.offset < 4 else "ugly")
    found = cli("run", "deadletters", topic, "--save", str(tmp_path))
    assert {row["reason"]: row["letters"] for row in found["reason"]} == {"bad": 4, "ugly": 2}
    assert {row["key"]: row["letters"] for row in found["key"]} == {"k0": 3, "k1": 3}
    assert [row["source"] for row in found["source"]] == [f"{topic}/0"]
    assert sum(row["letters"] for row in found["hour"]) == 6

    words = ("run", "deadletters", topic, "--where", "reason = 'ugly'", "--redrive")
    assert cli(*words)["redrive"] == {"selected": 2, "moved": 2, "passed_over": 0}
    assert cli(*words)["redrive"]["moved"] == 0
    values = Counter(record.value for record in read(client, topic))
    assert values == Counter({b"message %d" % n: 1 + (n >= 4) for n in range(6)})


def test_the_report_shows_archive_latency_lag_and_dead_letters(
    cli: Cli,
    broker: Broker,
    client: LogClient,
    new_topic: NewTopic,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    topic = new_topic()
    write(client, topic, [b"value"] * 20)
    partition = client.partitions([topic])[0]
    lag, archive = str(tmp_path / "lag"), str(tmp_path / "archive")
    cli("run", "archive", topic, "--to", archive)
    for committed in (5, 12):
        client.groups.commit(f"group-{topic}", {partition: committed})
        rows = cli("run", "lag", "--to", lag, "-g", f"group-{topic}", "--bound", "100")
    assert [(row["lag"], row["samples"]) for row in rows] == [(8, 2)]
    assert rows[0]["consumed_per_s"] > 0
    assert rows[0]["gone_at"] is not None
    assert pipelines.lag_history(spark, lag).count() == 2

    page = tmp_path / "report.html"
    done = cli("report", "--to", str(page), "--archive", archive, "--lag", lag)
    text = page.read_text()
    assert done["bytes"] == len(text.encode())
    for shown in (topic, "20 records", "From timestamp to archive", f"group-{topic}", "<svg"):
        assert shown in text
    assert "http://" not in text
    assert "https://" not in text


# What tests write, and what they find


def write_all_kinds(client: LogClient, topic: str, count: int) -> None:
    """Keys, no keys, tombstones, headers with and without values, over three hours."""
    with client.producer() as producer:
        for number in range(count):
            producer.send(
                topic,
                None if number % 101 == 100 else b"value %d" % number,
                key=None if number % 20 == 19 else b"k%d" % (number % 40),
                headers=[("n", b"%d" % (number % 5)), ("empty", b""), ("none", None)]
                if number % 3 == 0
                else (),
                timestamp_ms=BASE_MS + 3 * HOUR_MS * number // count,
            )


def send(client: LogClient, topic: str, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    with client.producer() as producer:
        for key, value in pairs:
            producer.send(topic, value, key=key)


def read(client: LogClient, topic: str) -> list[ReadRecord]:
    reader = client.reader([topic], Position.earliest(), until=Position.latest())
    return list(reader.records())


def read_committed(client: LogClient, topic: str) -> list[ReadRecord]:
    settings = ReaderSettings(is_committed_only=True)
    reader = client.reader([topic], Position.earliest(), until=Position.latest(), settings=settings)
    return list(reader.records())


def steps_noted(folder: Path) -> int:
    """How many steps a copy has noted; each file begins with a line about itself."""
    return sum(max(file.read_bytes().count(b"\n") - 1, 0) for file in folder.glob("*.steps"))


def contents(records: Iterable[ReadRecord]) -> Counter[Any]:
    return Counter((one.key, one.value, one.headers, one.timestamp_ms) for one in records)


def by_key(records: Iterable[ReadRecord]) -> dict[bytes, list[bytes | None]]:
    found: dict[bytes, list[bytes | None]] = {}
    for one in records:
        if one.key is not None:
            found.setdefault(one.key, []).append(one.value)
    return found


def latest(spark: SparkSession, folder: Path) -> dict[bytes, bytes | None]:
    rows = pipelines.read_archive(spark, folder).collect()
    assert len({bytes(row["key"]) for row in rows}) == len(rows)
    return {bytes(row["key"]): row["value"] and bytes(row["value"]) for row in rows}


def stored(client: LogClient, topic: str) -> int:
    ranges = client.offsets.ranges(client.partitions([topic]))
    return sum(one.end - one.start for one in ranges.values())


def path_of_hour(path: str) -> str:
    return "/".join(Path(path).parts[2:4])


def start_cli(broker: Broker, folder: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """`goqueue pipeline` as a process of its own, with all that it starts in one group."""
    command = [*END_WITH_US, sys.executable, "-m", "goqueue", "pipeline", *words]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [*command, "-b", broker.bootstrap],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_driver(process: subprocess.Popen[bytes]) -> None:
    """The Python driver alone; its JVM and its workers notice that in their own time."""
    assert process.poll() is None, "the process has ended by itself"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its workers, as a machine that loses power ends them."""
    assert process.poll() is None, "the process has ended by itself"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_the_page_about_pipelines_does_what_it_says(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark-pipelines.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
    assert "pipelines.write_report" in code
    node = Broker(tmp_path_factory.mktemp("page"), {})
    try:
        node.start()
        code = code.replace("127.0.0.1:9092", node.bootstrap).replace("/archive", str(tmp_path))
        code = code.replace("http://127.0.0.1:8080", node.http)
        code = code.replace("http://127.0.0.1:8081", node.registry)
        exec(compile(code, str(page), "exec"), {})
    finally:
        node.close()
    assert (tmp_path / "report.html").stat().st_size > 1000
