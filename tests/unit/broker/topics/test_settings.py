"""The settings of a topic: what is allowed, what is refused with which words, what they mean."""

from __future__ import annotations

import pytest

from goqueue.broker.topics.settings import (
    ACCEPTED_SETTINGS,
    TOPIC_SETTINGS,
    TopicDefaults,
    TopicSetting,
    check_settings,
    known_setting,
)
from goqueue.config import CompactionSettings, StorageSettings, TopicSettings
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidTopicSetting

ALL = [*TOPIC_SETTINGS.values(), *ACCEPTED_SETTINGS.values()]
NUMBERS = [one for one in ALL if one.kind in ("int", "long", "double")]
CHOICES = [one for one in ALL if one.choices]
DEFAULTS = TopicDefaults(StorageSettings(), CompactionSettings(), TopicSettings())


def by_name(setting: TopicSetting) -> str:
    return setting.name


@pytest.mark.parametrize("setting", NUMBERS, ids=by_name)
def test_a_number_is_allowed_from_its_least_to_its_most(setting: TopicSetting) -> None:
    for value in (setting.least, setting.most):
        setting.check(str(value))


@pytest.mark.parametrize("setting", NUMBERS, ids=by_name)
@pytest.mark.parametrize("text", ["", "many", "1e3x", "0x10", "nan", "--1"])
def test_what_is_no_number_is_refused_with_the_range(setting: TopicSetting, text: str) -> None:
    with pytest.raises(InvalidTopicSetting) as refusal:
        setting.check(text)
    assert setting.name in str(refusal.value)
    assert f"a number from {setting.least} to {setting.most}" in str(refusal.value)


@pytest.mark.parametrize("setting", NUMBERS, ids=by_name)
def test_a_number_outside_its_range_is_refused_with_the_range(setting: TopicSetting) -> None:
    for value in (setting.least - 1, setting.most + 1 if setting.kind != "double" else 1.5):
        with pytest.raises(InvalidTopicSetting, match=f"{setting.name}.* from {setting.least} to"):
            setting.check(str(value))


@pytest.mark.parametrize("setting", CHOICES, ids=by_name)
def test_a_word_that_is_no_choice_is_refused_with_the_choices(setting: TopicSetting) -> None:
    for word in setting.choices:
        setting.check(word)
    for word in ("", "maybe", setting.choices[0].upper()):
        # A list may be empty.
        if word not in setting.choices and (word or setting.kind != "list"):
            with pytest.raises(InvalidTopicSetting) as refusal:
                setting.check(word)
            assert f"one of {', '.join(setting.choices)}" in str(refusal.value)


@pytest.mark.parametrize("text", ["delete", "compact", "compact,delete", "delete, compact"])
def test_a_list_may_have_several_words(text: str) -> None:
    TOPIC_SETTINGS["cleanup_policy"].check(text)


@pytest.mark.parametrize("text", [",", "delete,", "delete;compact", "delete,burn"])
def test_a_list_has_no_other_words(text: str) -> None:
    with pytest.raises(InvalidTopicSetting, match="cleanup_policy"):
        TOPIC_SETTINGS["cleanup_policy"].check(text)


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(InvalidTopicSetting, match="retention_hours"):
        known_setting("retention_hours")
    with pytest.raises(InvalidTopicSetting, match="retention_hours"):
        check_settings({"retention_ms": "1", "retention_hours": "2"})


def test_a_long_value_is_not_repeated_at_length() -> None:
    with pytest.raises(InvalidTopicSetting) as refusal:
        check_settings({"retention_ms": "9" * 100_000})
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("setting", ALL, ids=by_name)
def test_every_setting_has_a_default_that_is_allowed_and_a_sentence(setting: TopicSetting) -> None:
    setting.check(DEFAULTS.values[setting.name])
    assert setting.about.endswith(".")


def test_there_is_no_default_without_a_setting() -> None:
    assert set(DEFAULTS.values) == {one.name for one in ALL}


def test_a_topic_without_settings_has_those_of_the_node() -> None:
    resolved = DEFAULTS.resolve({})
    storage = StorageSettings()
    assert resolved.log.segment_bytes == storage.segment_bytes
    assert resolved.log.retention_ms == storage.retention_ms
    assert resolved.log.is_deleting
    assert not resolved.log.is_compacting
    assert resolved.compression is None
    assert not resolved.is_append_time


def test_settings_of_its_own_come_first() -> None:
    resolved = DEFAULTS.resolve(
        {
            "cleanup_policy": "compact",
            "compression_type": "zstd",
            "index_interval_bytes": "7",
            "max_message_bytes": "100",
            "message_timestamp_after_max_ms": "5",
            "message_timestamp_before_max_ms": "6",
            "message_timestamp_type": "LogAppendTime",
            "min_cleanable_dirty_ratio": "0.25",
            "retention_bytes": "-1",
            "retention_ms": "-1",
            "segment_bytes": "2048",
            "segment_ms": "9",
        }
    )
    log = resolved.log
    assert (log.is_deleting, log.is_compacting, log.dirty_ratio_min) == (False, True, 0.25)
    assert (log.segment_bytes, log.segment_ms, log.index_interval_bytes) == (2048, 9, 7)
    assert (log.retention_bytes, log.retention_ms) == (-1, -1)
    assert (resolved.message_bytes_max, resolved.is_append_time) == (100, True)
    assert (resolved.timestamp_after_ms_max, resolved.timestamp_before_ms_max) == (5, 6)
    assert resolved.compression is Compression.ZSTD


@pytest.mark.parametrize(
    ("word", "codec"),
    [
        ("producer", None),
        ("uncompressed", Compression.NONE),
        ("gzip", Compression.GZIP),
        ("snappy", Compression.SNAPPY),
        ("lz4", Compression.LZ4),
        ("zstd", Compression.ZSTD),
    ],
)
def test_every_codec_has_a_meaning(word: str, codec: Compression | None) -> None:
    assert word in TOPIC_SETTINGS["compression_type"].choices
    assert DEFAULTS.resolve({"compression_type": word}).compression is codec


def test_a_topic_cannot_be_closed_to_dead_letters_and_may_be_opened_to_them() -> None:
    check_settings({"errors_deadletterqueue_group_enable": "true"})
    with pytest.raises(InvalidTopicSetting, match="true"):
        check_settings({"errors_deadletterqueue_group_enable": "false"})
