"""Scrapes all nodes of a cluster again and again, through the HTTP API."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TypeVar

from goqueue.cli.access import Access
from goqueue.cli.commands.top.measured import Round, Scrape, scrape_of
from goqueue.cli.connecting import HTTP_SETTINGS, bare, http_client, node_http_addresses
from goqueue.client.http import Client, Node, RetrySettings
from goqueue.model.errors import AccessDenied, GoQueueError, RequestTimedOut

T = TypeVar("T")

ANSWER_SECONDS_MAX = 1.5  # then a round goes on without a node
# The next round asks again.
_SETTINGS = replace(
    HTTP_SETTINGS, connect_ms_max=2_000, answer_ms_max=10_000, retry=RetrySettings(retries_max=0)
)


class Cluster:
    """The nodes of a cluster, as far as their metrics are concerned."""

    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self._access = access
        self._clients: dict[str, Client] = {}
        self._nodes: dict[str, Node] = {}  # by address
        self._cluster_id = ""
        self._running: dict[str, Future[Scrape]] = {}
        self._guides = deque([address])  # whom to ask for the nodes: the first

    def scrape(self) -> Round:
        """Scrape all nodes at the same time.

        A node that takes longer than others wait for it has failed in this round; its answer is
        part of the round in which it comes.
        """
        self._find_nodes()
        addresses = list(self._nodes) or [self.address]
        for address in addresses:
            if address not in self._running:
                self._running[address] = _started(_scrape, self._client(address))
        wait([self._running[address] for address in addresses], ANSWER_SECONDS_MAX)
        done = Round(cluster_id=self._cluster_id)
        done.nodes = {bare(address): node for address, node in self._nodes.items()}
        for address in addresses:
            try:
                done.scrapes[bare(address)] = self._taken(address)
            except GoQueueError as error:
                done.failures[bare(address)] = error
        return done

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _taken(self, address: str) -> Scrape:
        """The answer of a node, if it is there."""
        if not self._running[address].done():
            raise RequestTimedOut(f"{bare(address)} takes longer than {ANSWER_SECONDS_MAX:g} s.")
        return self._running.pop(address).result()

    def _find_nodes(self) -> None:
        """Learn which nodes there are; while none answers, they are those of the round before."""
        for _ in range(len(self._guides)):
            asked = _started(_nodes, self._client(self._guides[0]))
            wait([asked], ANSWER_SECONDS_MAX)
            if asked.done() and (found := asked.result()) is not None:
                self._cluster_id, nodes = found
                self._nodes = node_http_addresses(nodes, self.address, self._access)
                others = [one for one in self._nodes if one != self._guides[0]]
                self._guides = deque([self._guides[0], *others])
                return
            # The next round asks another one, too.
            self._guides.rotate(-1)

    def _client(self, address: str) -> Client:
        found = self._clients.get(address)
        if found is None:
            found = self._clients[address] = http_client(address, self._access, _SETTINGS)
        return found


def _started(call: Callable[[Client], T], client: Client) -> Future[T]:
    """A call in a thread that does not delay the end of the process, as those of a pool would.

    There is at most one scrape of each node at a time, and each call has a time limit.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(client))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name=call.__name__, daemon=True).start()
    return future


def _scrape(client: Client) -> Scrape:
    samples = client.node.metrics()
    return scrape_of(time.monotonic(), samples)


def _nodes(client: Client) -> tuple[str, list[Node]] | None:
    """The id of the cluster and its nodes; None if the node does not answer.

    A user of a tenant may not list nodes, and sees what the one node has done for the tenant.
    """
    try:
        cluster_id = client.node.version().cluster_id
        try:
            return cluster_id, client.cluster.nodes()
        except AccessDenied:
            return cluster_id, []
    except GoQueueError:
        return None


class Watcher:
    """Scrapes in a thread, at an interval, and says when there is a new round."""

    def __init__(
        self, cluster: Cluster, interval_seconds: float, *, on_round: Callable[[], object]
    ) -> None:
        self._cluster = cluster
        self._interval_seconds = interval_seconds
        self._on_round = on_round
        self._latest: Round | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def take(self) -> Round | None:
        """The round that was not yet taken, if there is one; older ones are left out."""
        taken, self._latest = self._latest, None
        return taken

    def _run(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            done = self._cluster.scrape()
            if not self._ended.is_set():
                self._latest = done
                self._on_round()
