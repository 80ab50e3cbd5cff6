"""The syntax of listeners: several per protocol, each with a name, an address and its security."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.config.kinds import Address, HostPort
from goqueue.model.credentials import PrincipalRule

# The security protocols of Kafka. For HTTP, the registry and SQS, `sasl_` means that clients must
# send credentials in the way of their protocol.
PLAINTEXT = "plaintext"
SSL = "ssl"
SASL_PLAINTEXT = "sasl_plaintext"
SASL_SSL = "sasl_ssl"
SECURITY_PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)

INTERNAL = "internal"  # the listener for other nodes
PROTOCOLS = ("kafka", "http", "registry", "sqs", "grpc")
LISTENERS_MAX = 6  # per protocol: a node registers all of them, and at most 32 addresses
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# An IPv6 address is in brackets. Digits alone are a port, whose host is missing.
_HOST_ONLY = re.compile(r"(?!\d+$)[^\s:\[\]]+|\[[^\]]*\]")
RULES_MAX = 100
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_PORT = HostPort()
_ADVERTISED = HostPort(port_min=1)


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Where and how one listener accepts clients."""

    name: str
    security: str
    address: Address

    @property
    def is_encrypted(self) -> bool:
        return self.security in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients must send credentials before anything else."""
        return self.security in (SASL_PLAINTEXT, SASL_SSL)

    @property
    def host(self) -> str:
        return self.address.host

    @property
    def port(self) -> int:
        return self.address.port

    def __str__(self) -> str:
        return self.at(str(self.address))

    def at(self, address: str) -> str:
        """Return an address with the security of this listener, unless it is plain text."""
        return address if self.security == PLAINTEXT else f"{self.security}://{address}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of one protocol, separated by commas."""

    protocol: str
    may_be_empty: bool = False
    port_default: int = 0  # of an address without one; 0: each needs a port

    @property
    def allowed(self) -> str:
        words = ", ".join(SECURITY_PROTOCOLS)
        empty = ", or empty" if self.may_be_empty else ""
        port = "[:PORT]" if self.port_default else ":PORT"
        return f"[NAME=][SECURITY://]HOST{port},... with a security of {words}{empty}"

    def read(self, text: str) -> tuple[ListenerAddress, ...]:
        if self.may_be_empty and not text.strip():
            return ()
        parts = [one.strip() for one in text.split(",")]
        if not 1 <= len(parts) <= LISTENERS_MAX:
            raise ValueError(f"there are {len(parts)} listeners; expected 1 to {LISTENERS_MAX}")
        listeners = tuple(self._read(part, is_first=not at) for at, part in enumerate(parts))
        if twice := repeated(one.name for one in listeners):
            raise ValueError(
                f"two listeners are named {twice!r}; give one of them another name, as in "
                f"other={PLAINTEXT}://HOST:PORT"
            )
        return listeners

    def _read(self, part: str, *, is_first: bool) -> ListenerAddress:
        name, equals, rest = part.rpartition("=")
        security, separator, address = rest.rpartition("://")
        security = security.strip().lower() if separator else PLAINTEXT
        if security not in SECURITY_PROTOCOLS:
            raise ValueError(f"{security[:60]!r} is unknown; expected {self.allowed}")
        name = name.strip() if equals else self._name(security, is_first=is_first)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:60]!r} is not a name; expected letters, digits, '.', '_'")
        if name in (*PROTOCOLS, INTERNAL) and name != self.protocol:
            raise ValueError(f"the name {name!r} is reserved for a listener of that protocol")
        if self.port_default and _HOST_ONLY.fullmatch(address.strip()):
            address = f"{address.strip()}:{self.port_default}"
        try:
            return ListenerAddress(name, security, _PORT.read(address))
        except ValueError:
            raise ValueError(f"{part[:200]!r} is not a listener; expected {self.allowed}") from None

    def _name(self, security: str, *, is_first: bool) -> str:
        return self.protocol if is_first else f"{self.protocol}-{security}"

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(self._show(one, is_first=not at) for at, one in enumerate(value))

    def _show(self, one: ListenerAddress, *, is_first: bool) -> str:
        is_default = one.name == self._name(one.security, is_first=is_first)
        return str(one) if is_default else f"{one.name}={one}"


@dataclass(frozen=True, slots=True)
class NamedAddress:
    """An address for the clients of one listener; without a name, of the first one."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}={self.address}" if self.name else str(self.address)


class AdvertisedAddresses:
    """Addresses for the clients of several listeners, separated by commas, or empty."""

    @property
    def allowed(self) -> str:
        return f"[NAME=]{_ADVERTISED.allowed}, several separated by commas, or empty"

    def read(self, text: str) -> tuple[NamedAddress, ...]:
        parts = [one.strip() for one in text.split(",")] if text.strip() else []
        addresses = tuple(self._read(part) for part in parts)
        if (twice := repeated(one.name for one in addresses)) is not None:
            which = f"of listener {twice!r}" if twice else "of the first listener"
            raise ValueError(f"the address {which} is given twice; expected {self.allowed}")
        return addresses

    def _read(self, part: str) -> NamedAddress:
        name, equals, address = part.rpartition("=")
        if equals and not _NAME.fullmatch(name.strip()):
            raise ValueError(f"{part[:60]!r} has no valid name; expected {self.allowed}")
        return NamedAddress(name.strip(), _ADVERTISED.read(address))

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(map(str, value))


class PrincipalRules:
    """Rules in the syntax of Kafka's `ssl.principal.mapping.rules`, or empty."""

    @property
    def allowed(self) -> str:
        return "RULE:pattern/replacement/[LU] or DEFAULT, several separated by commas, or empty"

    def read(self, text: str) -> tuple[PrincipalRule, ...]:
        rules: list[PrincipalRule] = []
        at, text = 0, text.strip()
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise ValueError(f"{text[at : at + 100]!r} is not a rule; expected {self.allowed}")
            rules.append(self._read(found))
            at = found.end()
        if len(rules) > RULES_MAX:
            raise ValueError(f"there are more than {RULES_MAX} rules")
        return tuple(rules)

    def _read(self, found: re.Match[str]) -> PrincipalRule:
        if found["default"]:
            return PrincipalRule()
        rule = PrincipalRule(found["pattern"], found["replacement"], found["case"])
        if not rule.pattern:
            raise ValueError(f"a rule has no pattern; expected {self.allowed}")
        _check_pattern(rule.pattern)
        return rule

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(map(str, value))


def _check_pattern(pattern: str) -> None:
    # Imported here, because only client certificates need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"the pattern {pattern[:100]!r} is not valid in RE2: {error}") from error


def repeated(words: Iterable[str]) -> str | None:
    """Return the first word that is given twice, in any case; None if there is none."""
    seen: set[str] = set()
    for word in words:
        if word.lower() in seen:
            return word
        seen.add(word.lower())
    return None
