"""The compiled service of many sockets; `turn_reference.py` says what each function does."""

from select import epoll
from typing import TypeVar

_Connection = TypeVar("_Connection")

def receive_ready(
    epoll: epoll,
    connections: dict[int, _Connection],
    apart: set[int],
    buffer: memoryview,
    room_min: int,
    /,
) -> list[tuple[_Connection, int, int]]: ...
def send_all(descriptors: list[int], pieces: list[bytes], /) -> list[tuple[int, int]]: ...
