"""One cluster, all kinds of clients, all kinds of trouble: nothing is lost, nothing comes twice."""

from __future__ import annotations

import pytest

from tests.simulation.cluster_everything import Everything


@pytest.mark.seeds(10)
def test_every_promise_is_kept_whatever_happens_to_nodes_disks_and_clocks(seed: int) -> None:
    everything = Everything(seed)
    everything.go_through_trouble()
    everything.recover()
    everything.check_histories()
