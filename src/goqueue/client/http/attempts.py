"""Whether a request is sent again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from goqueue.client.http.failures import Failure
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.settings import RetrySettings

_DOUBLINGS_MAX = 30


@dataclass(slots=True)
class Attempts:
    """The attempts at one request so far."""

    request: Request[Any]
    settings: RetrySettings
    random: Random
    failed: int = 0

    def wait_seconds(self, failure: Failure) -> float:
        """How long to wait before the next attempt; raise when there shall be none.

        The wait is drawn from the whole range up to twice the last bound ("full jitter"), so that
        many clients whose broker came back do not all return in the same moment.
        """
        if not self._may_go_on(failure):
            raise failure.error
        doublings = min(self.failed, _DOUBLINGS_MAX)
        self.failed += 1
        bound_ms = min(self.settings.backoff_ms_max, self.settings.backoff_ms_min << doublings)
        return max(failure.wait_seconds_min, self.random.uniform(0, bound_ms) / 1000)

    def _may_go_on(self, failure: Failure) -> bool:
        if not failure.is_passing or self.failed >= self.settings.retries_max:
            return False
        if not failure.is_uncertain or self.request.repeat is Repeat.HARMLESS:
            return True
        return self.request.repeat is Repeat.PUBLISHES and self.settings.repeats_publishes
