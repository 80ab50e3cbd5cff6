"""`goqueue serve`, which writes down the functions that it visits between two signals.

SIGUSR1 starts a recording, SIGUSR2 ends it and writes it to the file named by the first argument,
one function per line: file, a tab, its qualified name.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import goqueue

_SOURCE = str(Path(goqueue.__file__).parent) + "/"


class Recorder:
    """Collects the functions of GoQueue that are called while it is on, in any thread."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._is_on = False
        self._seen: dict[CodeType, None] = {}

    def install(self) -> None:
        threading.setprofile(self._called)  # for the threads that the node starts
        sys.setprofile(self._called)
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            self._seen.setdefault(frame.f_code)

    def _begin(self, *_: object) -> None:
        self._seen = {}
        self._is_on = True

    def _end(self, *_: object) -> None:
        self._is_on = False
        lines = [
            f"{code.co_filename.removeprefix(_SOURCE)}\t{code.co_qualname}\n"
            for code in self._seen
            if code.co_filename.startswith(_SOURCE)
        ]
        unfinished = self._target.with_suffix(".new")
        unfinished.write_text("".join(lines))
        unfinished.rename(self._target)


if __name__ == "__main__":
    Recorder(Path(sys.argv.pop(1))).install()
    from goqueue.cli.main import main

    main()
