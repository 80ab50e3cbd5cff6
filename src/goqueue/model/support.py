"""Which release this is, and what it supports: the feature levels of a cluster.

A feature level says what the logs of a cluster may contain. While the nodes of a rolling upgrade
run two releases, the level stays that of the older one; an operator raises it when all nodes run
the newer one. `UNKNOWN` stands for a release from before nodes reported what they support.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Annotated

import msgspec
from msgspec import Meta

from goqueue.model.errors import UnsupportedVersion
from goqueue.model.tenants import Text

# Builds write the commit here (see setup.py); a work tree that is installed as it is has none.
COMMIT = ""

# Level 3: settings of queue groups for share groups, `by_duration:` starts, leases of more than
# 1000 messages, and the topic of journeys.
LEVEL_MIN = 2
LEVEL_MAX = 3

Level = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class Support(msgspec.Struct, frozen=True, omit_defaults=True):
    """The feature levels that a node supports, and its release."""

    level_min: Level = LEVEL_MIN
    level_max: Level = LEVEL_MIN
    release: Annotated[Text, Meta(max_length=100)] = ""

    def has_level(self, level: int) -> bool:
        return self.level_min <= level <= self.level_max

    @property
    def levels(self) -> str:
        """The supported levels as a text."""
        if self.level_min == self.level_max:
            return f"level {self.level_max}"
        return f"levels {self.level_min} to {self.level_max}"


UNKNOWN = Support()
SUPPORT = Support(LEVEL_MIN, LEVEL_MAX)


def release() -> str:
    """Return the version; between two releases with the commit: 0.2.0.dev0+g1a2b3c4d5e6f."""
    number = version("goqueue")
    return f"{number}+g{COMMIT}" if COMMIT and ".dev" in number else number


def check_level(level: int, support: Support) -> None:
    """Raise if a node with this support cannot use data of a cluster of this level."""
    if level > support.level_max:
        raise UnsupportedVersion(
            f"The cluster uses feature level {level}, and this node supports {support.levels}; "
            "upgrade this node."
        )
    if level < support.level_min:
        raise UnsupportedVersion(
            f"The cluster uses feature level {level}, and this node supports {support.levels}. "
            "Run the release before this one on all nodes, raise the level with `goqueue cluster "
            "upgrade --finalize`, and then upgrade this node."
        )


def common_level(nodes: Iterable[Support]) -> int:
    """Return the newest level that all nodes support."""
    return min((one.level_max for one in nodes), default=LEVEL_MAX)
