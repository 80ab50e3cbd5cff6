"""The record decoder and the byte search that this process uses: compiled if they were built.

If not, records are decoded with numpy if it is installed, as it is with Spark, and in plain Python
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from goqueue.model.compression import Buffer

try:
    from goqueue.model import _decode as decoder

    IS_COMPILED = True
except ImportError:  # There was no compiler where GoQueue was installed.
    IS_COMPILED = False
    try:
        from goqueue.model import decode_vectors as decoder  # type: ignore[no-redef]
    except ImportError:
        from goqueue.model import decode_reference as decoder  # type: ignore[no-redef]

__all__ = ["IS_COMPILED", "Search", "compiled_searcher", "decoder", "plain_searcher", "searcher"]

Search = Callable[[Buffer, int], bool]


def searcher(needle: bytes) -> Search:
    """A function that returns whether a buffer has these bytes at or after a position.

    Every batch that is produced is searched. The compiled decoder compares 32 positions at once,
    which takes at most a tenth of the time of Python's own searches.
    """
    return compiled_searcher(needle) if IS_COMPILED else plain_searcher(needle)


def compiled_searcher(needle: bytes) -> Search:
    from goqueue.model._decode import contains

    return partial(contains, needle)


def plain_searcher(needle: bytes) -> Search:
    search = re.compile(re.escape(needle)).search
    return lambda data, start: search(data, start) is not None
