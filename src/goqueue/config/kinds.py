"""The kinds of settings, such as sizes, durations, choices and addresses.

Files, the environment and flags all provide text, so a kind has only `read` (text to value), `show`
(value to text that `read` accepts) and `allowed` (a description for errors and the manual). A kind
does not depend on which settings exist.
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

# Without a user before the host: it would be a secret in a setting, or hide the host.
_WEB_ADDRESS = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://(\[[0-9A-Fa-f:.]*\]|[^/:?#@\[\]]*)(?::[0-9]{1,5})?(?=[/?#]|$)"
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Kind(Protocol[T_co]):
    """Converts the text of a setting to its value and back."""

    @property
    def allowed(self) -> str:
        """A description of valid texts that completes the sentence "expected ..."."""

    def read(self, text: str) -> T_co:
        """Return the value, or raise a ValueError that describes the problem."""

    def show(self, value: object) -> str:
        """Return the text that `read` converts back to `value`."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a number, and the suffixes that may follow it."""

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
# Powers of ten are accepted but never shown, so that output has one notation.
_READ_ONLY_SUFFIXES = {"kB", "MB", "GB"}


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number within a range, optionally with a unit; may allow -1 for unlimited."""

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


class Ratio:
    """A ratio between 0 and 1."""

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
    """One word of a fixed list."""

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
    """A name without spaces, or empty."""

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
    """An identifier made of digits, whose leading zeros are significant."""

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
    """A host and a port; port 0 requests a free one from the system."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; names other than localhost count as remote."""
        ip = _ip_of(self.host)
        return ip.is_loopback if ip else self.host.lower() == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for all addresses of the machine."""
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
        if not name or (":" in name and not is_bracketed) or re.search(r"[\s/\[\]=,]", name):
            raise ValueError(f"{text!r} is not an address; expected {self.allowed}")
        if not re.fullmatch(r"[0-9]{1,5}", port) or not self.port_min <= int(port) <= 65535:
            raise ValueError(f"{text!r} has no usable port; expected {self.allowed}")
        return Address(name, int(port))

    def show(self, value: object) -> str:
        return str(value)


class Peers:
    """`ID@HOST:PORT` of several nodes, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return "ID@HOST:PORT,ID@HOST:PORT,... with different ids and addresses, or empty"

    def read(self, text: str) -> str:
        peers = [one.strip() for one in text.split(",")] if text.strip() else []
        ids, addresses = set(), set()
        for peer in peers:
            number, _, address = peer.partition("@")
            if not re.fullmatch(r"[0-9]{1,9}", number):
                raise ValueError(f"{peer[:60]!r} has no node id; expected {self.allowed}")
            ids.add(int(number))
            addresses.add(str(HostPort(port_min=1).read(address)))
        if not len(ids) == len(addresses) == len(peers):
            raise ValueError(f"{text[:200]!r} contains a node or an address twice")
        return ",".join(peers)

    def show(self, value: object) -> str:
        return str(value)


class HostNames:
    """Host names, separated by commas, or empty; `*` stands for any."""

    @property
    def allowed(self) -> str:
        return "NAME,NAME,... without ports, or * for any, or empty"

    def read(self, text: str) -> str:
        names = [one.strip() for one in text.split(",")] if text.strip() else []
        for name in names:
            if name != "*" and not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", name):
                raise ValueError(f"{name[:60]!r} is not a host name; expected {self.allowed}")
        return ",".join(names)

    def show(self, value: object) -> str:
        return str(value)


class AccessKeys:
    """`ID:SECRET` of several keys, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return "ID:SECRET,ID:SECRET,... with different ids, or empty"

    def read(self, text: str) -> tuple[tuple[str, str], ...]:
        keys = [one.strip().partition(":") for one in text.split(",")] if text.strip() else []
        for name, _, secret in keys:
            is_name = re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name)
            if not is_name or not re.fullmatch(r"[A-Za-z0-9/+=._-]{1,128}", secret):
                # The text may contain a secret, so the error does not repeat it.
                raise ValueError(f"a key cannot be read; expected {self.allowed}")
        if len({name for name, _, _ in keys}) < len(keys):
            raise ValueError(f"an id is given twice; expected {self.allowed}")
        return tuple((name, secret) for name, _, secret in keys)

    def show(self, value: object) -> str:
        """Return the ids without the secrets, because the text may end up in logs.

        It is the one kind, besides `Secret`, whose `show` cannot be read back.
        """
        assert isinstance(value, tuple)
        return ",".join(f"{name}:(hidden)" for name, _ in value)


@dataclass(frozen=True, slots=True)
class Words:
    """Some of several words, separated by commas."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return f"some of {', '.join(self.words)}, separated by commas"

    def read(self, text: str) -> tuple[str, ...]:
        given = tuple(one.strip() for one in text.split(",") if one.strip())
        for one in given:
            if one not in self.words:
                raise ValueError(f"{one[:60]!r} is unknown; expected {self.allowed}")
        if not given:
            raise ValueError(f"nothing is named; expected {self.allowed}")
        return given

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)


class Names:
    """Names of topics, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return "NAME,NAME,... or empty"

    def read(self, text: str) -> tuple[str, ...]:
        names = tuple(one.strip() for one in text.split(",") if one.strip())
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
                raise ValueError(f"{name[:60]!r} is not a name; expected {self.allowed}")
        return names

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Line:
    """A text of printable characters, or empty."""

    length_max: int = 1_024

    @property
    def allowed(self) -> str:
        return f"at most {self.length_max} printable characters"

    def read(self, text: str) -> str:
        text = text.strip()
        if len(text) > self.length_max or not text.isprintable():
            raise ValueError(f"{text[:60]!r} is not valid; expected {self.allowed}")
        return text

    def show(self, value: object) -> str:
        return str(value)


class Scopes:
    """Scopes of tokens, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return "SCOPE,SCOPE,... or empty"

    def read(self, text: str) -> tuple[str, ...]:
        scopes = tuple(one.strip() for one in text.split(",") if one.strip())
        for scope in scopes:
            if not re.fullmatch(r"[!#-+\--\[\]-~]{1,255}", scope):  # RFC 6749, without commas
                raise ValueError(f"{scope[:60]!r} is not a scope; expected {self.allowed}")
        return scopes

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)


class KeySetLocation:
    """Where a key set is: a file, or an address that is protected by TLS, or empty."""

    @property
    def allowed(self) -> str:
        return "https://HOST/PATH, http:// on loopback only, the path of a file, or empty"

    def read(self, text: str) -> str:
        text = text.strip()
        found = _WEB_ADDRESS.match(text)
        if "://" in text:
            scheme = found[1].lower() if found else ""
            host = found[2].strip("[]") if found else ""
            is_near = scheme == "http" and Address(host, 0).is_loopback
            if not host or not (scheme == "https" or is_near) or not text.isprintable():
                raise ValueError(f"{text[:60]!r} is not allowed; expected {self.allowed}")
        elif not text.isprintable():
            raise ValueError(f"{text[:60]!r} is not the path of a file")
        return text

    def show(self, value: object) -> str:
        return str(value)


class Login:
    """`NAME:PASSWORD`, or empty."""

    @property
    def allowed(self) -> str:
        return "NAME:PASSWORD, the password with 8 to 1024 characters, or empty"

    def read(self, text: str) -> tuple[str, str]:
        name, _, password = text.strip().partition(":")
        is_name = re.fullmatch(r"[A-Za-z0-9._@-]{1,255}", name)
        if text.strip() and not (is_name and 8 <= len(password) <= 1_024):
            # The error does not repeat the text, because errors end up in logs.
            raise ValueError(f"not a valid login; expected {self.allowed}")
        return name, password

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return f"{value[0]}:(hidden)" if value[0] else ""


class Principals:
    """Principals, separated by semicolons, or empty."""

    @property
    def allowed(self) -> str:
        return "User:NAME;User:NAME;... or empty"

    def read(self, text: str) -> tuple[str, ...]:
        # Names of certificates contain commas, so Kafka separates by semicolons.
        names = [one.strip() for one in text.split(";") if one.strip()]
        for name in names:
            if not name.startswith("User:") or len(name) <= len("User:"):
                raise ValueError(f"{name[:60]!r} is not a principal; expected {self.allowed}")
        return tuple(names)

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ";".join(value)


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins of web pages, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return "https://HOST[:PORT],... or empty"

    def read(self, text: str) -> tuple[str, ...]:
        given = tuple(one.strip().lower() for one in text.split(",") if one.strip())
        for one in given:
            if not re.fullmatch(r"https?://[a-z0-9.\[\]:-]{1,260}", one):
                raise ValueError(f"{one[:60]!r} is not an origin; expected {self.allowed}")
        return given

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Secret:
    """A shared secret, or empty."""

    least: int = 32
    most: int = 1_024

    @property
    def allowed(self) -> str:
        return f"{self.least} to {self.most} printable characters without spaces, or empty"

    def read(self, text: str) -> str:
        text = text.strip()
        is_long_enough = self.least <= len(text) <= self.most
        if text and not (is_long_enough and text.isprintable() and " " not in text):
            # The error does not repeat the text, because errors end up in logs.
            raise ValueError(f"not a valid secret; expected {self.allowed}")
        return text

    def show(self, value: object) -> str:
        return "(hidden)" if value else ""


@dataclass(frozen=True, slots=True)
class Optional(Generic[T]):
    """A value of another kind, or empty."""

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
