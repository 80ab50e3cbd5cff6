"""The terminal of the live view: keys without waiting, frames without flicker.

It takes over the terminal and gives it back as it was, also when the process is suspended.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from goqueue.cli.commands.top.screen import Line, Size, Style

_ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
# Terminals that know of synchronized output show a frame only when it is whole.
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"
_END_OF_LINE = "\x1b[K"
_KEYS = {
    b"\t": "tab",
    b"\x03": "ctrl-c",
    b"\x04": "ctrl-d",
    b"\x1b[Z": "shift-tab",
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
    b"\x1b[H": "home",
    b"\x1b[1~": "home",
}
_READ_BYTES = 256


def keys_of(data: bytes) -> Iterator[str]:
    """Yield the names of the keys that a terminal has sent; unknown ones are left out."""
    place = 0
    while place < len(data):
        found = next((code for code in _KEYS if data.startswith(code, place)), None)
        if found is not None:
            yield _KEYS[found]
            place += len(found)
        elif data[place] == 0x1B:
            place = _end_of_sequence(data, place)
        else:
            if 0x20 <= data[place] < 0x7F:
                yield chr(data[place])
            place += 1


def _end_of_sequence(data: bytes, place: int) -> int:
    """Where an escape sequence ends whose meaning is not known."""
    place += 1
    if data[place : place + 1] not in (b"[", b"O"):
        return place
    place += 1
    while place < len(data) and not 0x40 <= data[place] <= 0x7E:
        place += 1
    return place + 1


def text_of(lines: Sequence[Line], *, is_colored: bool = True) -> str:
    """A frame as it is sent to the terminal."""
    return _BEGIN + "\r\n".join(_styled(line, is_colored) for line in lines) + _END


def _styled(line: Line, is_colored: bool) -> str:
    style = line.style
    if style is Style.BAD and not is_colored:
        style = Style.HEAD
    if style is Style.PLAIN or not line.text:
        return line.text + _END_OF_LINE
    return f"\x1b[{style.value}m{line.text}\x1b[0m{_END_OF_LINE}"


class Terminal:
    """The terminal of this process."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._is_colored = "NO_COLOR" not in os.environ
        self._woken, self._wake = os.pipe()
        self._last = ""

    @property
    def size(self) -> Size:
        """The size now. COLUMNS and LINES are that of the shell, and do not follow changes."""
        try:
            found = Size(*os.get_terminal_size(self._output))
        except OSError:
            found = Size(0, 0)
        return found if all(found) else Size(*shutil.get_terminal_size())

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys or `wake`, at most so long; return the keys."""
        ready, _, _ = select.select([self._input, self._woken], [], [], max(0.0, seconds))
        if self._woken in ready:
            os.read(self._woken, _READ_BYTES)
        if self._input not in ready:
            return []
        data = os.read(self._input, _READ_BYTES)
        return list(keys_of(data)) if data else ["ctrl-d"]

    def wake(self) -> None:
        """End the wait, from any thread."""
        os.write(self._wake, b"\0")

    def show(self, lines: Sequence[Line]) -> None:
        """Show a frame, in one write, unless it is shown already."""
        text = text_of(lines, is_colored=self._is_colored)
        if text != self._last:
            self._last = text
            self._write(text)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the terminal over, and give it back."""
        import termios

        before = termios.tcgetattr(self._input)
        handlers = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._resized),
            signal.SIGCONT: signal.signal(signal.SIGCONT, self._resumed),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._suspended(before)),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _end),
            signal.SIGHUP: signal.signal(signal.SIGHUP, _end),
        }
        try:
            self._enter()
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._give_back(before)
            os.close(self._woken)
            os.close(self._wake)

    def _enter(self) -> None:
        import tty

        tty.setcbreak(self._input)
        self._last = ""
        self._write(_ENTER)

    def _give_back(self, before: list[Any]) -> None:
        import termios

        self._write(_LEAVE)
        termios.tcsetattr(self._input, termios.TCSADRAIN, before)

    def _suspended(self, before: list[Any]) -> Any:
        def suspend(_number: int, _frame: FrameType | None) -> None:
            self._give_back(before)
            os.kill(os.getpid(), signal.SIGSTOP)

        return suspend

    def _resumed(self, _number: int, _frame: FrameType | None) -> None:
        self._enter()
        self.wake()

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        self._last = ""
        self.wake()

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._output, data) :]


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
