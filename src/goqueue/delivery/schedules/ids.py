"""Schedule ids: short, URL-safe, and direct: they contain where the message is stored.

Sixteen characters encode the partition, the number and a checksum. The checksum is salted with the
id of the internal topic, so that an id of another cluster or one with a typing error is not taken
for another message.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable
from itertools import repeat
from zlib import crc32

from goqueue.model.errors import UnknownSchedule

ID_CHARACTERS = 16
NUMBER_MAX = (1 << 48) - 1

_LAYOUT = struct.Struct(">QI")
_PLACE = struct.Struct(">Q")
_CHECK = struct.Struct(">I")
_NUMBER_BITS = 48
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


class ScheduleIds:
    """Writes and reads the ids of one cluster."""

    __slots__ = ("_salt",)

    def __init__(self, topic_id: bytes) -> None:
        self._salt = crc32(topic_id)

    def write(self, partition: int, number: int) -> str:
        place = partition << _NUMBER_BITS | number
        data = _LAYOUT.pack(place, crc32(_PLACE.pack(place), self._salt))
        return binascii.b2a_base64(data, newline=False).translate(_TO_URL).decode()

    def write_many(self, places: Iterable[tuple[int, int]]) -> bytes:
        """Return the ids of many (partition, number) pairs, concatenated."""
        salt, pack = self._salt, _PLACE.pack
        parts: list[bytes] = []
        for partition, number in places:
            place = pack(partition << _NUMBER_BITS | number)
            parts.append(place)
            parts.append(_CHECK.pack(crc32(place, salt)))
        return binascii.b2a_base64(b"".join(parts), newline=False).translate(_TO_URL)

    def write_all(self, partition: int, numbers: Iterable[int]) -> list[str]:
        """Return the ids of many numbers of one partition."""
        text = self.write_many(zip(repeat(partition), numbers, strict=False)).decode()
        return [text[at : at + ID_CHARACTERS] for at in range(0, len(text), ID_CHARACTERS)]

    def read(self, text: str) -> tuple[int, int]:
        """Return partition and number; raise `UnknownSchedule` if `text` is not an id."""
        try:
            data = binascii.a2b_base64(text.encode().translate(_FROM_URL), strict_mode=True)
            place, check = _LAYOUT.unpack(data)
        except (ValueError, struct.error):
            raise UnknownSchedule(text) from None
        if check != crc32(_PLACE.pack(place), self._salt) or len(text) != ID_CHARACTERS:
            raise UnknownSchedule(text)
        return place >> _NUMBER_BITS, place & NUMBER_MAX
