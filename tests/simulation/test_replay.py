"""A seed replays exactly, in another process too, where sets of names have another order."""

from __future__ import annotations

import os
import subprocess
import sys

# A story of each kind of world, and a seed of it.
STORIES = (
    "test_cluster:test_nothing_that_all_have_acknowledged_is_lost:5",
    "test_cluster_everything:"
    "test_every_promise_is_kept_whatever_happens_to_nodes_disks_and_clocks:1",
    "test_cluster_formation:test_a_voter_with_a_new_disk_is_taken_in_again_and_nothing_is_lost:1",
    "test_cluster_publishing:test_published_messages_are_stored_once_whatever_happens:1",
    "test_cluster_schemas:test_an_id_never_means_two_schemas:1",
    "test_quorum:test_facts_survive_whatever_happens_to_nodes_and_network:1",
    "test_replication:test_without_syncs_nothing_is_lost_as_long_as_no_machine_dies:1",
)
SALTS = ("1", "2")

# What was sent and when is in the digest of a network; how often chance was asked, and how much
# was done, is in the clock.
REPLAY = """
import hashlib, importlib, sys
from tests.simulation.clock import VirtualClock
from tests.simulation.network import Network

made = []

def note_all(kind):
    begin = kind.__init__
    def noted(self, *how, **else_how):
        begin(self, *how, **else_how)
        made.append(self)
    kind.__init__ = noted

note_all(VirtualClock)
note_all(Network)
for story in sys.argv[1:]:
    module, test, seed = story.split(":")
    made.clear()
    getattr(importlib.import_module(f"tests.simulation.{module}"), test)(seed=int(seed))
    for one in made:
        if isinstance(one, Network):
            print(story, "sent", one.sent, one.digest)
        else:
            state = hashlib.sha256(repr(one.random.getstate()).encode()).hexdigest()
            print(story, "did", one.steps, one.now_ms(), state)
"""


def test_a_seed_replays_exactly() -> None:
    replays = [
        subprocess.Popen(
            [sys.executable, "-c", REPLAY, *STORIES],
            env={**os.environ, "PYTHONHASHSEED": salt},
            stdout=subprocess.PIPE,
            text=True,
        )
        for salt in SALTS
    ]
    told = [replay.communicate()[0].splitlines() for replay in replays]
    assert [replay.returncode for replay in replays] == [0] * len(SALTS)
    assert told[0] == told[1]
    assert len(told[0]) > len(STORIES)
