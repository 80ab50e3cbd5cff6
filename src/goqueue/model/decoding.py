"""The record decoder that this process uses: the compiled one if it was built.

If not, numpy if it is installed, as it is with Spark, and plain Python otherwise.
"""

from __future__ import annotations

try:
    from goqueue.model import _decode as decoder

    IS_COMPILED = True
except ImportError:  # There was no compiler where GoQueue was installed.
    IS_COMPILED = False
    try:
        from goqueue.model import decode_vectors as decoder  # type: ignore[no-redef]
    except ImportError:
        from goqueue.model import decode_reference as decoder  # type: ignore[no-redef]

__all__ = ["IS_COMPILED", "decoder"]
