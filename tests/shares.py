"""The order of the tests, if several workers share them.

xdist gives each worker an equal part of the tests, one after the other, and a worker that has done
its part takes from the end of another's. Each part therefore begins with an equal share of the long
tests: otherwise one worker had them all, and at the end the others would wait for its last ones.
"""

from __future__ import annotations

from collections.abc import Sequence

# What a test of a folder takes, measured on average; the others take almost nothing. In this order,
# so that few workers start Spark, or a browser.
SECONDS = {"tests/e2e/test_": 19.4, "tests/e2e/console/": 2.9, "tests/integration/": 1.4}


def in_shares(names: Sequence[str], workers: int) -> list[int]:
    """Return the order in which so many workers are to share the tests of these names."""
    long = [
        (number, seconds)
        for folder, seconds in SECONDS.items()
        for number, name in enumerate(names)
        if name.startswith(folder)
    ]
    total = sum(seconds for _, seconds in long)
    shares: list[list[int]] = [[] for _ in range(workers)]
    before = 0.0
    for number, seconds in long:
        shares[int(before / total * workers)].append(number)
        before += seconds
    short = sorted(set(range(len(names))) - {number for number, _ in long})
    order: list[int] = []
    for done, share in enumerate(shares):
        part = (len(names) - len(order)) // (workers - done)
        room = max(0, part - len(share))
        order += share + short[:room]
        del short[:room]
    return order + short
