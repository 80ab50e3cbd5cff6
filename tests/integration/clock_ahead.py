"""`goqueue` with a clock that is some seconds ahead: `python clock_ahead.py 3600 serve …`.

What is due in an hour, or forgotten after five minutes, can so be seen without waiting for it.
"""

from __future__ import annotations

import sys
import time

NANOSECONDS = 1_000_000_000


def put_ahead(seconds: int) -> None:
    """From now on this process believes that it is so much later. Intervals stay as they are."""
    true_ns, true_seconds = time.time_ns, time.time
    time.time_ns = lambda: true_ns() + seconds * NANOSECONDS  # type: ignore[assignment]
    time.time = lambda: true_seconds() + seconds  # type: ignore[assignment]


if __name__ == "__main__":
    put_ahead(int(sys.argv.pop(1)))

    # Loaded later, so that nothing has asked for the time before.
    from goqueue.cli.main import main

    sys.exit(main())
