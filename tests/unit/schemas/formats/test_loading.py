"""The libraries are loaded with the first schema of their language, not with the broker."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from goqueue.schemas.formats import SchemaKind, parse
LIBRARIES = ("jsonschema_rs", "google.protobuf")
def loaded():
    return [name for name in LIBRARIES if name in sys.modules]
assert loaded() == [], loaded()
parse(SchemaKind.AVRO, "string")
assert loaded() == [], loaded()
parse(SchemaKind.JSON, "{}")
assert loaded() == ["jsonschema_rs"], loaded()
parse(SchemaKind.PROTOBUF, 'syntax="proto3"; message M {}')
assert loaded() == list(LIBRARIES), loaded()
"""


def test_a_library_is_loaded_with_the_first_schema_of_its_language() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
