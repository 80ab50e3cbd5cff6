"""The requests that a client is made of; another protocol has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goqueue.client.http.requests.dead_letters import DeadLetterRequests
from goqueue.client.http.requests.groups import GroupRequests
from goqueue.client.http.requests.messages import MessageRequests
from goqueue.client.http.requests.queues import QueueRequests
from goqueue.client.http.requests.schedules import ScheduleRequests
from goqueue.client.http.requests.topics import TopicRequests
from goqueue.client.http.requests.transactions import TransactionRequests


@dataclass(frozen=True, slots=True)
class Api:
    """Requests by area. Areas that are not here are the same in every protocol."""

    messages: MessageRequests
    topics: TopicRequests
    groups: GroupRequests
    schedules: ScheduleRequests
    transactions: TransactionRequests
    queue: Callable[[str, str, str], QueueRequests]  # topic, group, consumer
    dead_letters: Callable[[str, str | None], DeadLetterRequests]  # topic, dead-letter topic


HTTP = Api(
    MessageRequests(),
    TopicRequests(),
    GroupRequests(),
    ScheduleRequests(),
    TransactionRequests(),
    QueueRequests,
    DeadLetterRequests,
)
