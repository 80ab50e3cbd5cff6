"""The encoder of columns that this process uses: the compiled one if it was built."""

from __future__ import annotations

try:
    from goqueue.model import _encode as encoder

    IS_COMPILED = True
except ImportError:  # There was no compiler where GoQueue was installed.
    from goqueue.model import encode_reference as encoder  # type: ignore[no-redef]

    IS_COMPILED = False

__all__ = ["IS_COMPILED", "encoder"]
