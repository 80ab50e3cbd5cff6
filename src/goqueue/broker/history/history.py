"""The recorder of a node with what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from goqueue.broker.history.figures import Figures, NodeParts
from goqueue.broker.history.recorder import Recorder

if TYPE_CHECKING:
    from goqueue.broker.metrics.lag import GroupLag
    from goqueue.metrics import Registry


class History:
    """The recent past of a node, and the figures of what it has now."""

    def __init__(self, parts: NodeParts, registry: Registry, lag: Callable[[], GroupLag]) -> None:
        self.figures = Figures(parts, lag)
        self.recorder = Recorder(
            parts.clock,
            registry,
            has_groups=self.figures.has_groups,
            look_at_groups=self.figures.of_all,
        )
