"""How long a message waits before it is delivered again."""

from __future__ import annotations

from random import Random

from goqueue.delivery.settings import QueueSettings

_DOUBLINGS_MAX = 64  # more would overflow, and the cap is reached long before


def backoff_ms(settings: QueueSettings, attempts: int, random: Random) -> int:
    """Return the delay after `attempts` deliveries: exponential, with jitter, and capped."""
    exponent = min(attempts - 1, _DOUBLINGS_MAX)
    rest_ms = min(settings.backoff_ms * settings.backoff_factor**exponent, settings.backoff_ms_max)
    spread = settings.backoff_jitter
    return min(round(rest_ms * random.uniform(1 - spread, 1 + spread)), settings.backoff_ms_max)
