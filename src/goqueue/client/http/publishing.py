"""Publishing a list of messages: in as few requests as they fit into, with one answer for all."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.client.http.batching import split
from goqueue.client.http.messages import Acks, Data, Outgoing, Published, encoded
from goqueue.client.http.requests.messages import MessageRequests, Outcome
from goqueue.client.http.steps import Steps
from goqueue.model.errors import GoQueueError

_requests = MessageRequests()


class PartlyPublished(GoQueueError):
    """Some messages of a list were published and others not.

    `outcomes` has, for each message in the order given, what was published or why it was not.
    """

    code = "partly_published"

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        failed = [one for one in outcomes if isinstance(one, GoQueueError)]
        super().__init__(
            f"{len(failed)} of {len(outcomes)} messages were not published; the first because: "
            f"{failed[0]} Look at .outcomes for each of them."
        )


def publish_all(
    topic: str, messages: Iterable[Outgoing | Data], acks: Acks
) -> Steps[list[Published]]:
    """Publish messages in their order, and stop at the first request that fails as a whole."""
    parts = [encoded(one if isinstance(one, Outgoing) else Outgoing(one)) for one in messages]
    outcomes: list[Outcome] = []
    for chunk in split(parts):
        try:
            outcomes += yield _requests.publish_encoded(topic, chunk, acks=acks)
        except GoQueueError as error:
            if not outcomes:
                raise
            outcomes += [error] * (len(parts) - len(outcomes))
            break
    published = [one for one in outcomes if isinstance(one, Published)]
    if len(published) < len(outcomes):
        if len(outcomes) == 1 and isinstance(outcomes[0], GoQueueError):
            raise outcomes[0]
        raise PartlyPublished(outcomes)
    return published
