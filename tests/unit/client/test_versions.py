"""Which version of an API a client speaks."""

from __future__ import annotations

import pytest

from goqueue.client.versions import NARROWED, VersionRange, choose_version, spoken
from goqueue.model.errors import UnsupportedVersion
from goqueue.wire.kafka.messages import API_BY_NAME

METADATA = API_BY_NAME["Metadata"]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (VersionRange(0, 99), 13),
        (VersionRange(0, 9), 9),
        (VersionRange(4, 4), 4),
        (VersionRange(13, 20), 13),
    ],
)
def test_the_newest_common_version_is_chosen(offered: VersionRange, chosen: int) -> None:
    assert choose_version(METADATA, offered) == chosen


@pytest.mark.parametrize("offered", [VersionRange(0, 3), VersionRange(14, 15)])
def test_without_a_common_version_both_ranges_are_named(offered: VersionRange) -> None:
    with pytest.raises(UnsupportedVersion, match=rf"{offered} of Metadata.*4 to 13"):
        choose_version(METADATA, offered)


def test_an_api_that_a_broker_lacks_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match="does not offer Metadata"):
        choose_version(METADATA, None)


def test_versions_that_kafka_may_still_change_are_not_spoken() -> None:
    api = API_BY_NAME["InitProducerId"]
    assert choose_version(api, VersionRange(0, 99)) == api.version_max - 1


def test_narrowed_ranges_lie_within_what_the_codecs_speak() -> None:
    for name in NARROWED:
        api = API_BY_NAME[name]
        assert api.version_min <= spoken(api).least <= spoken(api).most <= api.version_max
