"""The characters that SQS accepts: those that XML can represent."""

from __future__ import annotations

import re

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROLS = bytes(one for one in range(0x20) if one not in b"\t\n\r")


def is_plain(content: bytes) -> bool:
    """Whether encoded text has only accepted characters; checked on bytes, as bodies are long."""
    if len(content.translate(None, _CONTROLS)) != len(content):
        return False
    if content.isascii():
        return True
    # U+FFFE and U+FFFF, which are not characters.
    return b"\xef\xbf\xbe" not in content and b"\xef\xbf\xbf" not in content


def decode_text(content: bytes) -> str | None:
    """Decode UTF-8; None if the bytes are not text that SQS accepts."""
    try:
        return content.decode() if is_plain(content) else None
    except UnicodeDecodeError:
        return None
