"""All that clients do to a cluster at once, and all that can happen to it, on one clock.

What each kind of client does, remembers and demands is told in the files about it; here they share
the nodes, and so their crashes, cuts, clocks and rotten disks.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.model.names import DELIVERY_TOPIC, OFFSETS_TOPIC, SCHEDULED_TOPIC, TRANSACTION_TOPIC
from tests.simulation import cluster_queues, cluster_schedules
from tests.simulation.cluster_queues import History, consumers_of, create_groups, drain
from tests.simulation.cluster_streams import Streams
from tests.simulation.cluster_transactions import ClusterStage
from tests.simulation.cluster_trouble import Trouble
from tests.simulation.cluster_watch import Place
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.transactions_model import INPUT, OUTPUTS, TIMEOUT_MS, Application

EVENTS = "events"  # for streams
EVENTS_LATER = "events-later"  # for idempotent producers that delay some of their records
TASKS = "tasks"  # for queues; delayed messages come to it as well
PARTITIONS = 2
SKEW_MS_MAX = 3_000  # of a node that has just started
ENDLESS = 10_000  # more positions than any application gets to while there is trouble
STEPS = 24
CALM_CHANCE = 0.15  # how often trouble ends for a while: where nothing is done, nothing goes wrong
CALM_MS = 1_500
SETTINGS = {
    "delivery__snapshot_bytes": "4KiB",
    "delivery__lanes_save_ms": "500ms",
    "schedules__checkpoint_ms": "400",
    "storage__segment_bytes": "8KiB",
}


class Everything:
    """A cluster of three or five nodes, its clients of every kind, and its troubles."""

    def __init__(self, seed: int) -> None:
        self.world = world = ClusterWorld(seed, node_count=5 if seed % 2 else 3, **SETTINGS)
        world.heal()
        topics = {EVENTS: PARTITIONS, EVENTS_LATER: PARTITIONS, TASKS: PARTITIONS, INPUT: 1}
        topics |= dict.fromkeys((name.topic for name in OUTPUTS), 2)
        for name, count in topics.items():
            world.create(name, partitions=count, min_insync_replicas="2")
        world.run_until(lambda: all(map(self._knows_all(topics), world.nodes)))
        create_groups(world)
        places = [(name, number) for name, count in topics.items() for number in range(count)]
        self.trouble = Trouble(world, places + self._internal_places())
        if seed % 3 == 2:
            self._aim_at_coordinators()
        self.streams = Streams(world, EVENTS, partitions=PARTITIONS)
        self.history = History(world, TASKS)
        self.tasks = cluster_queues.Writer(world, TASKS)
        self.consumers = consumers_of(world, self.history)
        self.delays = cluster_schedules.Client(world, TASKS)
        self.delaying = [
            cluster_schedules.DelayingWriter(
                world, EVENTS_LATER, number, producer_id=200 + number, in_flight=5
            )
            for number in range(PARTITIONS)
        ]
        self.stage = Stage(world, self.trouble)
        self.applications = [
            Application(self.stage, f"app{number}", bumps_epoch=number == 1, positions=ENDLESS)
            for number in range(2)
        ]
        self.is_working = True
        self._skew_ms = SKEW_MS_MAX
        self._again(self.streams.work, 5, 120)
        self._again(self._work_queues, 40, 250)
        self._again(self._work_schedules, 60, 600)
        self._again(self._work_transactions, 50, 500)

    def _knows_all(self, topics: dict[str, int]) -> Callable[[int], bool]:
        def knows(number: int) -> bool:
            broker = self.world.nodes[number].broker
            return all(broker.topics.find(name) is not None for name in topics)

        return knows

    def _internal_places(self) -> list[Place]:
        """What coordinators stand on, as far as it was made by now."""
        topics = self.world.up()[0].broker.topics
        found = [
            topics.find(name)
            for name in (DELIVERY_TOPIC, OFFSETS_TOPIC, SCHEDULED_TOPIC, TRANSACTION_TOPIC)
        ]
        return [(one.name, number) for one in found if one for number in range(len(one.partitions))]

    def _aim_at_coordinators(self) -> None:
        """What they stand on rots, and again and again another one has to go on with it."""
        trouble = self.trouble
        trouble.places = self._internal_places()
        trouble.deeds += 8 * [trouble.rot] + 8 * [trouble.kill_the_leader] + 6 * [trouble.restart]

    # Work

    def _again(self, deed: Callable[[], None], ms_min: float, ms_max: float) -> None:
        def turn() -> None:
            if self.is_working:
                self.world.clock.call_later(self.world.random.uniform(ms_min, ms_max), turn)
                deed()

        turn()

    def _work_queues(self) -> None:
        if self.world.random.random() < 0.5:
            self.tasks.step()
        for consumer in self.consumers:
            consumer.step(is_kind=False)

    def _work_schedules(self) -> None:
        delays, writer = self.delays, self.world.random.choice(self.delaying)
        deeds = [delays.schedule, delays.schedule, delays.cancel, delays.move, writer.write]
        self.world.random.choice(deeds)()

    def _work_transactions(self) -> None:
        for application in self.applications:
            if not application.alive or self.world.random.random() < 0.03:
                application.start_instance()

    # Trouble

    def go_through_trouble(self) -> None:
        chance = self.world.random
        for _ in range(STEPS):
            self.trouble.strike()
            skews_ms = [node.clock.skew_ms for node in self.world.nodes.values()]
            self._skew_ms = max(self._skew_ms, *skews_ms)
            if chance.random() < 0.5:
                self.stage.lose_connections()
            self._run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 2_000)]))
            if chance.random() < CALM_CHANCE:
                self.trouble.good_network()
                self.stage.mend()
                self._run_for(CALM_MS)

    def _run_for(self, ms: float) -> None:
        self.world.run_for(ms)
        self.stage.check()

    def recover(self) -> None:
        """All trouble ends, work goes on for a little, and everybody gets what was promised."""
        self.stage.is_quiet = True
        self._stop_applications_soon()
        self.trouble.end()
        # Clocks are right again, and none is set back: what one of them said was soon is soon.
        for node in self.world.nodes.values():
            node.clock.skew_ms = self._skew_ms
        self._limit_transactions()
        self._run_for(500)
        self.is_working = False
        self.streams.settle()
        self.world.run_until(lambda: all(one.is_done for one in self.delaying), ms_max=60_000)
        self._finish_transactions()
        self.delays.until_released()

    def _stop_applications_soon(self) -> None:
        """Without trouble they would get far, for nothing."""
        for application in self.applications:
            attempts = (one.split(":") for one in self.stage.committable)
            positions = [int(number) for name, number, _ in attempts if name == application.name]
            application.positions = max(positions, default=0) + 2

    def _limit_transactions(self) -> None:
        for application in self.applications:
            application.positions = application.committed_offset() + 2

    def _finish_transactions(self) -> None:
        for _ in range(300):
            undone = [one for one in self.applications if not one.is_done]
            if not undone:
                break
            for application in undone:
                if not application.alive:
                    application.start_instance()
            self._run_for(200)
        self.world.run_for(2 * TIMEOUT_MS)
        self.world.heal()
        self.world.run_for(1_000)

    def check_histories(self) -> None:
        self.streams.check_histories()
        self.stage.check_settled(self.applications)
        for application in self.applications:
            assert application.committed_offset() == application.positions
        self.delays.check_complete()
        for writer in self.delaying:
            writer.check_complete()
        drain(self.world, self.consumers, self.history)
        self.world.watch.check_whole()


class Stage(ClusterStage):
    """Applications whose coordinators fail just when they have answered."""

    def __init__(self, world: ClusterWorld, trouble: Trouble) -> None:
        super().__init__(world)
        self.strikes = True
        self._trouble = trouble

    def mend(self) -> None:
        self._trouble.join_up()
        self._trouble.restart()
