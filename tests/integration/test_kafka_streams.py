"""Kafka Streams: it works with the classic protocol, and is told that there is no other."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.judge.streams_clients import word_count

from .conftest import NewTopicName
from .process import END_WITH_US
from .sharing import fill
from .waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-kafka` runs this program, which Maven fetches",
    ),
]
LINES = ["to be or not to be", "that is the question", "whether it is nobler to suffer"]
WORDS = Counter(" ".join(LINES).split())
SECONDS_MAX = 90


def running(
    bootstrap: str, application: str, topics: tuple[str, str], protocol: str, folder: Path
) -> subprocess.Popen[str]:
    arguments = (bootstrap, application, *topics, protocol, str(folder))
    return subprocess.Popen(
        [*END_WITH_US, *word_count(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(3 * SECONDS_MAX)
def test_words_are_counted_exactly_once_also_after_a_kill(
    bootstrap: str, new_topic: NewTopicName, unique: str, tmp_path: Path
) -> None:
    topics = (new_topic(), new_topic())
    fill(bootstrap, topics[0], LINES)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{unique}-reader",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    counted: dict[str, list[int]] = {}

    def read(reader: Consumer) -> None:
        for one in reader.consume(100, 0.2):
            key, value = one.key(), one.value()
            assert one.error() is None
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            counted.setdefault(key.decode(), []).append(int.from_bytes(value, "big"))

    def is_done(times: int) -> bool:
        read(reader)
        return {word: len(found) for word, found in counted.items()} == {
            word: count * times for word, count in WORDS.items()
        }

    reader = Consumer(settings)
    try:
        reader.subscribe([topics[1]])
        first = running(bootstrap, unique, topics, "classic", tmp_path)
        eventually(lambda: is_done(1), within=SECONDS_MAX)
        first.kill()
        first.wait()
        fill(bootstrap, topics[0], LINES)
        second = running(bootstrap, unique, topics, "classic", tmp_path)
        eventually(lambda: is_done(2), within=SECONDS_MAX)
        _, errors = second.communicate(timeout=SECONDS_MAX)
        assert second.returncode == 0, errors[-4000:]
    finally:
        reader.close()
    # Each word was counted up from one, without a gap or a repetition.
    assert counted == {word: list(range(1, 2 * count + 1)) for word, count in WORDS.items()}


def test_the_streams_protocol_is_refused_with_a_reason(
    bootstrap: str, new_topic: NewTopicName, unique: str, tmp_path: Path
) -> None:
    topics = (new_topic(), new_topic())
    program = running(bootstrap, unique, topics, "streams", tmp_path)
    try:
        program.wait(SECONDS_MAX)
        assert program.stdout is not None
        text = program.stdout.read()
    finally:
        program.kill()
    assert "UnsupportedVersionException" in text, text
    assert "streams" in text.lower()
