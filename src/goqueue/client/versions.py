"""Chooses the version of each API to use with a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from goqueue.model.errors import UnsupportedVersion
from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.messages import API_BY_NAME


class VersionRange(NamedTuple):
    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


# APIs of which this client supports fewer versions than the codecs: it uses topic names, so it
# stops before the versions that use topic ids, and starts where the request has the fields it sets.
NARROWED: Final[Mapping[str, VersionRange]] = {
    "Produce": VersionRange(3, 12),
    "Fetch": VersionRange(4, 12),
    "Metadata": VersionRange(4, 13),
    "OffsetCommit": VersionRange(2, 9),
    "OffsetFetch": VersionRange(8, 9),
    "FindCoordinator": VersionRange(4, 6),
    "DeleteTopics": VersionRange(6, 6),
    "SaslHandshake": VersionRange(1, 1),  # after version 0, messages have no request header
}


def spoken(api: Api) -> VersionRange:
    """The versions of `api` that this client supports."""
    return NARROWED.get(api.name) or VersionRange(api.version_min, api.version_stable_max)


def choose_version(api: Api, offered: VersionRange | None) -> int:
    """The newest version that both sides support."""
    ours = spoken(api)
    if offered is None:
        raise UnsupportedVersion(f"The broker does not offer {api.name}.")
    best = min(ours.most, offered.most)
    if best < max(ours.least, offered.least):
        raise UnsupportedVersion(
            f"The broker speaks versions {offered} of {api.name}; this client speaks {ours}."
        )
    return best


API_BY_MODULE: Final[Mapping[str, Api]] = {api.module: api for api in API_BY_NAME.values()}
