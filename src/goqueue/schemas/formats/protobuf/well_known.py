"""The .proto files that every registry client assumes and never sends.

`google/protobuf` comes with the Protobuf library and `google/type` with Google's common protos; the
files of `confluent` are defined here, as clients compile them in.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from google.protobuf import descriptor_pb2 as d

from goqueue.schemas.formats.protobuf import parser

_NAME = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")

_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package = "../confluent";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_VARIANT = """
syntax = "proto3";
package confluent.type;
message Variant { bytes metadata = 1; bytes value = 2; }
"""
_DECIMAL_BEFORE = 'syntax = "proto3"; import public "confluent/type/decimal.proto";'
_CONFLUENT = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
    "confluent/types/decimal.proto": _DECIMAL_BEFORE,  # its earlier path
}


@cache
def find(name: str) -> d.FileDescriptorProto | None:
    """The descriptor of a file that is always available, or nothing."""
    if name in _CONFLUENT:
        made = parser.read(_CONFLUENT[name])
        made.name = name
        return made
    # Only names of this form become module names, so that no client's import statement decides
    # which code is loaded.
    if not _NAME.fullmatch(name):
        return None
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ModuleNotFoundError:
        return None
    found = d.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(found)
    return found
