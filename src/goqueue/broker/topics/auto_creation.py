"""Topics that are created when they are first used."""

from __future__ import annotations

from functools import partial

from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import TopicSettings
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import TopicExists, UnknownTopic
from goqueue.model.names import INTERNAL_TOPICS

# Waiting time for a topic that this node has not applied yet: two seconds in all.
_KNOWN_CHECK_MS = 50
_KNOWN_CHECKS_MAX = 40


class AutoCreation:
    """Creates missing topics, if settings allow that."""

    def __init__(self, clock: Clock, topics: Topics, settings: TopicSettings) -> None:
        self._clock = clock
        self._topics = topics
        self._settings = settings

    async def create(self, name: str, *, may_create: bool) -> Topic:
        """Create a missing topic on demand, if that is allowed."""
        self._topics.check_name(name)
        if not may_create or not self._settings.auto_create or name in INTERNAL_TOPICS:
            raise UnknownTopic(name)
        try:
            return await self._topics.create(name, partition_count=self._settings.partitions)
        except TopicExists:
            # Another client has created it meanwhile, maybe on another node.
            return await self._when_known(name)

    async def _when_known(self, name: str) -> Topic:
        """Return a topic of the cluster as soon as this node has it too."""
        for _ in range(_KNOWN_CHECKS_MAX):
            found = self._topics.find(name)
            if found is not None:
                return found
            pause: Promise[None] = Promise()
            self._clock.call_later(_KNOWN_CHECK_MS, partial(pause.resolve, None))
            await pause
        raise UnknownTopic(name)
