"""Recording of journeys on a node: the recorder, and the parts of the journal that it owns."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.broker.journeys.deriving import Names
from goqueue.broker.journeys.notes import Notes
from goqueue.broker.journeys.owners import JournalOwners
from goqueue.broker.journeys.recorder import Recorder
from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.leadership import Leadership
from goqueue.broker.topics.internal_topics import journeys_settings
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.config import JourneySettings
from goqueue.loop.clock import Clock
from goqueue.model.names import DELIVERY_TOPIC, JOURNEYS_TOPIC, OFFSETS_TOPIC, SCHEDULED_TOPIC
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

STOP_MS_MAX = 2_000  # how long a stop waits until everything is written


class Journeys:
    """Records what happens to the messages of a node."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        settings: JourneySettings,
        *,
        disk: Disk,
        new_id: Callable[[], bytes],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._settings = settings
        self.owners = JournalOwners(clock, topics, leaders, partition_count=settings.partitions)
        self.recorder = Recorder(
            clock,
            topics,
            self.owners,
            self._names,
            notes=Notes(disk),
            node_id=leaders.node_id,
            new_id=new_id,
            replica_count=leaders.in_sync_count,
        )

    def follow(self, leadership: Leadership, cluster: Clustering | None) -> None:
        """Follow which partitions this node leads. Call it before other owners do.

        Others may write as soon as they lead, and what they write must be recorded.
        """
        recorder, shards = self.recorder, self.owners.shards
        leadership.register(JOURNEYS_TOPIC, lead=self._lead, resign=shards.resign)
        self.owners.on_unreadable(leadership.hand_over)
        for name in (DELIVERY_TOPIC, SCHEDULED_TOPIC, OFFSETS_TOPIC):
            leadership.register(name, lead=recorder.lead, resign=recorder.resign)
        self._topics.facts.log.on_applied(recorder.decided)
        if cluster is not None:
            cluster.replicas.on_role(self._role_changed)
            return
        for topic in self._topics:
            for partition in () if topic.is_internal else topic.partitions:
                if partition.log.end_offset:
                    recorder.open_topic(topic, partition)

    def start(self) -> None:
        self.recorder.start()

    def stop(self, done: Callable[[], None]) -> None:
        """Write everything, as far as that is possible in a short time; then call `done`."""
        is_done = False

        def finish() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                timer.cancel()
                done()

        timer = self._clock.call_later(STOP_MS_MAX, finish)
        self.recorder.stop(finish)

    def _lead(self, partition: Partition) -> None:
        """Own a partition of the journal. The first one's owner sets how long it is kept."""
        self.owners.shards.lead(partition)
        own = self._topics.get(JOURNEYS_TOPIC).own_settings
        wanted = {**own, **journeys_settings(self._settings)}
        if partition.name.partition == 0 and wanted != own:
            self._topics.configure(JOURNEYS_TOPIC, wanted)

    def _role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        if topic.is_internal:
            return
        if leads:
            self.recorder.open_topic(topic, partition)
        else:
            self.recorder.resign(partition)

    def _names(self) -> Names:
        """Return the names of groups and topics as they are now."""
        groups = {fact.id.hex(): name for name, fact in self._topics.facts.queue_groups().items()}

        def of_topic(topic_id: bytes) -> str:
            topic = self._topics.find_by_id(topic_id)
            return "" if topic is None else topic.name

        return Names(lambda group_id: groups.get(group_id, ""), of_topic)
