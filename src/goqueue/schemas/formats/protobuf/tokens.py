"""Splits a .proto text into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from goqueue.model.errors import InvalidSchema

_TOKEN = re.compile(
    r"""
    (?P<blank> \s+ | //[^\n]* | /\*.*?\*/ | \ufeff )
  | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<number> 0[xX][0-9a-fA-F]+ | (?: \d+\.\d* | \.\d+ | \d+ ) (?: [eE][+-]?\d+ )? )
  | (?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
  | (?P<mark> [{}\[\]()<>;,=.:\-+/] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"?])|[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)
_PLAIN_ESCAPES = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63,
}  # fmt: skip
_DIGITS_MAX = 400


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # word, number, string, mark or end
    text: str
    position: int


class Tokens:
    """A text that is consumed once, from the front."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _cut(text)
        self._next = 0

    @property
    def is_done(self) -> bool:
        return self._tokens[self._next].kind == "end"

    def peek(self, ahead: int = 0) -> str:
        """The text of a token ahead; a string keeps its quotes, so it is no word or mark."""
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)].text

    def kind(self) -> str:
        return self._tokens[self._next].kind

    def take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def accept(self, text: str) -> bool:
        """Consume `text` if it is next."""
        if self.peek() != text:
            return False
        self._next += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}")

    def word(self, what: str = "a name") -> str:
        if self.kind() != "word":
            self.fail(f"expected {what}")
        return self.take().text

    def full_word(self) -> str:
        """A name with dots, which may begin with one."""
        parts = ["."] if self.accept(".") else []
        parts.append(self.word())
        while self.accept("."):
            parts += (".", self.word())
        return "".join(parts)

    def integer(self) -> int:
        is_negative = self.accept("-")
        text = self.take().text if self.kind() == "number" else self.fail("expected a whole number")
        value = integer_of(text)
        if value is None:
            self._next -= 1
            self.fail("expected a whole number")
        return -value if is_negative else value

    def string(self) -> bytes:
        """One string, or several adjacent ones that are concatenated."""
        if self.kind() != "string":
            self.fail("expected a string in quotes")
        parts = []
        while self.kind() == "string":
            parts.append(self._unescaped(self.take()))
        return b"".join(parts)

    def name_string(self) -> str:
        try:
            return self.string().decode()
        except UnicodeDecodeError:
            self.fail("expected a string that is UTF-8")

    def fail(self, reason: str) -> NoReturn:
        token = self._tokens[self._next]
        found = "the end of the text" if token.kind == "end" else repr(token.text[:60])
        self.fail_at(token.position, f"{reason}, found {found}")

    def refuse(self, reason: str) -> NoReturn:
        """Fail at the token consumed last."""
        self.fail_at(self._tokens[max(0, self._next - 1)].position, reason)

    def fail_at(self, position: int, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, position) + 1
        column = position - (self._text.rfind("\n", 0, position) + 1) + 1
        raise InvalidSchema(f"Invalid Protobuf schema at line {line} column {column}: {reason}.")

    def _unescaped(self, token: Token) -> bytes:
        inner = token.text[1:-1]
        if "\\" not in inner:
            return inner.encode("utf-8", "surrogatepass")
        parts, end = [], 0
        for match in _ESCAPE.finditer(inner):
            parts.append(inner[end : match.start()].encode("utf-8", "surrogatepass"))
            plain, hexadecimal, octal, short, long, unknown = match.groups()
            if unknown is not None:
                self.fail_at(token.position, f"unknown escape \\{unknown} in a string")
            if plain is not None:
                parts.append(bytes((_PLAIN_ESCAPES[plain],)))
            elif hexadecimal or octal:
                parts.append(bytes((int(hexadecimal or octal, 16 if hexadecimal else 8) & 0xFF,)))
            else:
                code = int(short or long, 16)
                if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                    self.fail_at(token.position, "an escape in a string is no character")
                parts.append(chr(code).encode())
            end = match.end()
        return b"".join((*parts, inner[end:].encode("utf-8", "surrogatepass")))


def integer_of(text: str) -> int | None:
    """A decimal, hexadecimal or octal whole number, or nothing."""
    if len(text) > _DIGITS_MAX:
        return None
    try:
        if text[:2] in ("0x", "0X"):
            return int(text, 16)
        if len(text) > 1 and text[0] == "0":
            return int(text, 8)
        return int(text)
    except ValueError:
        return None


def _cut(text: str) -> list[Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise InvalidSchema(
                f"Invalid Protobuf schema at line {line}: cannot read "
                f"{text[position : position + 20]!r}."
            )
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            tokens.append(Token(kind, match.group(), position))
        position = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens
