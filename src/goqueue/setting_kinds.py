"""How one setting is written: sizes, durations, choices, addresses.

Files, the environment and flags all hand over text, so a kind needs only `read` (text to value),
`show` (value to text that `read` takes back) and `allowed` (what a reader of an error or of the
manual wants to know). Which settings exist is none of its business; `config` says that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Generic, Protocol, TypeVar

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
TiB = 1024 * GiB

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

UNLIMITED = -1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Kind(Protocol[T_co]):
    """Turns the text of a setting into its value and back."""

    @property
    def allowed(self) -> str:
        """What may be written, as the end of the sentence "expected ..."."""

    def read(self, text: str) -> T_co:
        """Return the value, or raise ValueError saying what is wrong with the text."""

    def show(self, value: object) -> str:
        """Return the text that `read` turns into `value` again."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number counts, and the suffixes that people write after it."""

    noun: str
    factors: Mapping[str, int]


COUNT = Unit("a whole number", {})
SIZE = Unit(
    "a size in bytes",
    {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB},
)
DURATION = Unit(
    "a duration in milliseconds",
    {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS},
)

_NUMBER = re.compile(r"([+-]?)([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z]*)")
# Powers of ten are read but never shown: one way of writing is enough for output.
_READ_ONLY_SUFFIXES = {"kB", "MB", "GB"}


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, perhaps with a unit, within a range; some may be unlimited."""

    unit: Unit
    at_least: int
    at_most: int
    has_limit: bool = True

    @property
    def allowed(self) -> str:
        top = "up" if self.at_most == INT64_MAX else f"to {self.show(self.at_most)}"
        unlimited = "" if self.has_limit else ", or -1 for unlimited"
        return f"{self.unit.noun} from {self.show(self.at_least)} {top}{unlimited}"

    def read(self, text: str) -> int:
        word = text.strip()
        if not self.has_limit and word in ("-1", "unlimited"):
            return UNLIMITED
        value = self._count(word)
        if not self.at_least <= value <= self.at_most:
            raise ValueError(f"{word} is out of range; expected {self.allowed}")
        return value

    def show(self, value: object) -> str:
        assert isinstance(value, int)
        if value == UNLIMITED and not self.has_limit:
            return "-1"
        suffix, factor = self._largest_whole_unit(value)
        return f"{value // factor}{suffix}"

    def _count(self, word: str) -> int:
        found = _NUMBER.fullmatch(word)
        suffixes = {suffix.lower(): factor for suffix, factor in self.unit.factors.items()}
        if found is None or (found[3] and found[3].lower() not in suffixes):
            raise ValueError(f"{word!r} is not {self.unit.noun}{self._suffixes()}")
        whole, _, fraction = found[2].replace("_", "").partition(".")
        scaled = int(whole + fraction) * suffixes.get(found[3].lower(), 1)
        value, rest = divmod(scaled, int("1" + "0" * len(fraction)))
        if rest:
            raise ValueError(f"{word!r} is not whole; expected {self.allowed}")
        return -value if found[1] == "-" else value

    def _suffixes(self) -> str:
        return f", plain or with {', '.join(self.unit.factors)}" if self.unit.factors else ""

    def _largest_whole_unit(self, value: int) -> tuple[str, int]:
        fitting = [
            (suffix, factor)
            for suffix, factor in self.unit.factors.items()
            if suffix not in _READ_ONLY_SUFFIXES and factor > 1 and value and value % factor == 0
        ]
        return max(fitting, key=itemgetter(1), default=("", 1))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A share between nothing and everything."""

    @property
    def allowed(self) -> str:
        return "a number from 0 to 1"

    def read(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number; expected {self.allowed}") from None
        if not 0 <= value <= 1:
            raise ValueError(f"{text} is out of range; expected {self.allowed}")
        return value

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, text: str) -> bool:
        word = text.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        raise ValueError(f"{text!r} is not true or false")

    def show(self, value: object) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One word out of a few."""

    words: tuple[T, ...]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(map(str, self.words))

    def read(self, text: str) -> T:
        for word in self.words:
            if str(word).lower() == text.strip().lower():
                return word
        raise ValueError(f"{text!r} is unknown; expected {self.allowed}")

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Word:
    """A name without blanks, or nothing."""

    length_max: int

    @property
    def allowed(self) -> str:
        return f"at most {self.length_max} letters, digits, '.', '_' and '-'"

    def read(self, text: str) -> str:
        if len(text) > self.length_max or not re.fullmatch(r"[A-Za-z0-9._-]*", text):
            raise ValueError(f"{text[:60]!r} is not a name; expected {self.allowed}")
        return text

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Digits:
    """A number that is a name: its leading zeros count."""

    length: int

    @property
    def allowed(self) -> str:
        return f"{self.length} digits"

    def read(self, text: str) -> str:
        if len(text) != self.length or not (text.isascii() and text.isdigit()):
            raise ValueError(f"{text[:60]!r} is not valid; expected {self.allowed}")
        return text

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Folder:
    """A path; `~` stands for the home folder."""

    @property
    def allowed(self) -> str:
        return "a folder"

    def read(self, text: str) -> Path:
        if not text or not text.isprintable():
            raise ValueError(f"{text!r} is not the path of a folder")
        return Path(text).expanduser()

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class File:
    """The path of a file; `~` stands for the home folder."""

    @property
    def allowed(self) -> str:
        return "a file"

    def read(self, text: str) -> Path:
        if not text or not text.isprintable():
            raise ValueError(f"{text!r} is not the path of a file")
        return Path(text).expanduser()

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 asks the system for a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost might be anything."""
        ip = _ip_of(self.host)
        return ip.is_loopback if ip else self.host.lower() == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every address of the machine."""
        ip = _ip_of(self.host)
        return ip is not None and ip.is_unspecified

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostPort:
    """`HOST:PORT`, with an IPv6 host in brackets."""

    port_min: int = 0

    @property
    def allowed(self) -> str:
        return f"HOST:PORT with a port from {self.port_min} to 65535"

    def read(self, text: str) -> Address:
        host, _, port = text.strip().rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        name = host[1:-1] if is_bracketed else host
        if not name or (":" in name and not is_bracketed) or re.search(r"[\s/\[\]]", name):
            raise ValueError(f"{text!r} is not an address; expected {self.allowed}")
        if not re.fullmatch(r"[0-9]{1,5}", port) or not self.port_min <= int(port) <= 65535:
            raise ValueError(f"{text!r} has no usable port; expected {self.allowed}")
        return Address(name, int(port))

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Peers:
    """`ID@HOST:PORT` for each of several nodes, separated by commas, or nothing."""

    @property
    def allowed(self) -> str:
        return "ID@HOST:PORT,ID@HOST:PORT,... with different ids and addresses, or empty"

    def read(self, text: str) -> str:
        peers = [one.strip() for one in text.split(",")] if text.strip() else []
        ids, addresses = set(), set()
        for peer in peers:
            number, _, address = peer.partition("@")
            if not re.fullmatch(r"[0-9]{1,9}", number):
                raise ValueError(f"{peer[:60]!r} names no node; expected {self.allowed}")
            ids.add(int(number))
            addresses.add(str(HostPort(port_min=1).read(address)))
        if not len(ids) == len(addresses) == len(peers):
            raise ValueError(f"{text[:200]!r} names a node or an address twice")
        return ",".join(peers)

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names of hosts, separated by commas, or nothing; `*` is any."""

    @property
    def allowed(self) -> str:
        return "NAME,NAME,... without ports, or * for any, or empty"

    def read(self, text: str) -> str:
        names = [one.strip() for one in text.split(",")] if text.strip() else []
        for name in names:
            if name != "*" and not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", name):
                raise ValueError(
                    f"{name[:60]!r} is not the name of a host; expected {self.allowed}"
                )
        return ",".join(names)

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """`ID:SECRET` for each of several keys, separated by commas, or nothing."""

    @property
    def allowed(self) -> str:
        return "ID:SECRET,ID:SECRET,... with different ids, or empty"

    def read(self, text: str) -> tuple[tuple[str, str], ...]:
        keys = [one.strip().partition(":") for one in text.split(",")] if text.strip() else []
        for name, _, secret in keys:
            is_name = re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name)
            if not is_name or not re.fullmatch(r"[A-Za-z0-9/+=._-]{1,128}", secret):
                # The text may be a secret, so it is not repeated here.
                raise ValueError(f"a key cannot be read; expected {self.allowed}")
        if len({name for name, _, _ in keys}) < len(keys):
            raise ValueError(f"an id stands twice; expected {self.allowed}")
        return tuple((name, secret) for name, _, secret in keys)

    def show(self, value: object) -> str:
        """The ids. What is shown ends up in logs, where no secret may be; so it reads as none."""
        assert isinstance(value, tuple)
        return ",".join(f"{name}:(hidden)" for name, _ in value)


@dataclass(frozen=True, slots=True)
class Secret:
    """Something that two parties know and nobody else, or nothing."""

    least: int = 32
    most: int = 1_024

    @property
    def allowed(self) -> str:
        return f"{self.least} to {self.most} printable characters without spaces, or empty"

    def read(self, text: str) -> str:
        text = text.strip()
        is_long_enough = self.least <= len(text) <= self.most
        if text and not (is_long_enough and text.isprintable() and " " not in text):
            # It is not repeated here, because errors end up in logs.
            raise ValueError(f"this is no secret; expected {self.allowed}")
        return text

    def show(self, value: object) -> str:
        return "(hidden)" if value else ""


@dataclass(frozen=True, slots=True)
class Optional(Generic[T]):
    """Another kind, or nothing at all."""

    kind: Kind[T]

    @property
    def allowed(self) -> str:
        return f"{self.kind.allowed}, or empty"

    def read(self, text: str) -> T | None:
        return self.kind.read(text) if text.strip() else None

    def show(self, value: object) -> str:
        return "" if value is None else self.kind.show(value)


def _ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
