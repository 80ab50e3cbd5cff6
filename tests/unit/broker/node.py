"""A world whose disk also forgets the moves of folders that were not synced."""

from __future__ import annotations

import os
import random

from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import start
from goqueue.model.errors import GoQueueError
from tests.simulation.disk import SimulatedDisk
from tests.simulation.world import World


class ForgetfulDisk(SimulatedDisk):
    """A moved folder is back under its old name after a crash, unless its parent was synced."""

    def __init__(self, seed: int | random.Random = 0) -> None:
        super().__init__(seed)
        self._moves: list[tuple[str, str]] = []

    def crash(self) -> None:
        moves, self._moves = self._moves, []
        super().crash()
        for source, target in reversed(moves):
            if target in self._folders:
                # What took the old name meanwhile was not synced either.
                self._forget(source)
                super()._rename_folder(target, source)

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self._moves = [one for one in self._moves if os.path.dirname(one[1]) != path]

    def total_bytes(self) -> int:
        return 1 << 41

    def _rename_folder(self, source: str, target: str) -> None:
        super()._rename_folder(source, target)
        self._moves.append((source, target))

    def _forget(self, folder: str) -> None:
        for names in (self._names, self._durable_names):
            for name in [one for one in names if one.startswith(f"{folder}/")]:
                del names[name]


class Node(World):
    """One node on a forgetful disk, and what its clients do."""

    disk: ForgetfulDisk

    def start(self) -> None:
        if not isinstance(self.disk, ForgetfulDisk):
            self.disk = ForgetfulDisk(self.random)
        super().start()

    def restart_after_crash(self) -> None:
        self.crash()
        self.start()

    def values(self, topic: str, *, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.consume(topic, partition=partition)]

    def host_groups(self) -> None:
        """Have the internal topic made, as the first group does."""
        outcome: list[object] = []
        start(self.broker.groups.ensure_topic(), lambda _, error: outcome.append(error))
        self.run_until(lambda: bool(outcome))
        assert outcome == [None]

    def commit(self, group: str, offset: int, *, topic: str = "orders") -> GoQueueError | None:
        """Commit an offset; the error, if there was one."""
        call = CommitOffsets(
            group_id=group, offsets=[OffsetToCommit(topic=topic, partition=0, offset=offset)]
        )
        try:
            self.wait(self.broker.groups.commit_offsets(call))
        except GoQueueError as error:
            return error
        return None

    def committed(self, group: str, *, topic: str = "orders") -> int | None:
        found = self.broker.groups.fetch_offsets(group, {topic: [0]})
        committed = found.get(topic, {}).get(0)
        return None if committed is None else committed.offset
