"""Objects that are sent to Spark workers, and fail with a clear error if a worker cannot load them.

A worker may run a different Python than the driver, without this package. Spark then reports a
`ModuleNotFoundError` from inside its own code. So these objects are pickled as bytes, together with
the code of `opened`, which runs anywhere and names the setting that is wrong.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any


class Portable:
    """Pickles itself so that a worker without the package raises an error that says what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        from pyspark import cloudpickle

        # By value: the worker may not have this module.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        return opened, (pickle.dumps((type(self), self.__getstate__())),)


def opened(pickled: bytes) -> Any:
    """Rebuild the object. Runs on workers; everything it needs is imported inside."""
    import pickle
    import sys

    try:
        kind, state = pickle.loads(pickled)
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"A worker of Spark runs {sys.executable}, which has no module {error.name!r}. Set "
            "PYSPARK_PYTHON (or spark.pyspark.python) to a Python with goqueue[spark] on every "
            "node, or install the package there."
        ) from None
    made = kind.__new__(kind)
    made.__dict__.update(state or {})
    return made
