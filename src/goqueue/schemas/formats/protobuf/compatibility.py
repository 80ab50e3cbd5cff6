"""Which changes of a Protobuf schema keep older data readable: Confluent's rules.

Fields are identified by number, messages by name. Removing or adding a field is allowed, as unknown
fields are skipped; giving a number another wire type is not. Reserved numbers may be used again:
data of the writer has no such field.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from goqueue.schemas.formats.budget import Budget, compared

# Scalars of one group have the same encoding; values may be truncated, as Protobuf allows.
_GROUPS = {
    FieldDescriptor.TYPE_INT32: "varint",
    FieldDescriptor.TYPE_INT64: "varint",
    FieldDescriptor.TYPE_UINT32: "varint",
    FieldDescriptor.TYPE_UINT64: "varint",
    FieldDescriptor.TYPE_BOOL: "varint",
    FieldDescriptor.TYPE_ENUM: "varint",
    FieldDescriptor.TYPE_SINT32: "zigzag",
    FieldDescriptor.TYPE_SINT64: "zigzag",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_SFIXED32: "fixed32",
    FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_SFIXED64: "fixed64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_BYTES: "text",
}


def incompatibilities(reader: FileDescriptor, writer: FileDescriptor) -> list[str]:
    """One text for each broken rule, with the path in the file."""
    return compared(lambda budget: _Comparison(budget).files(reader, writer))


class _Comparison:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._seen: set[tuple[str, str]] = set()

    def files(self, reader: FileDescriptor, writer: FileDescriptor) -> list[str]:
        found = []
        if reader.package != writer.package:
            found.append(
                f"PACKAGE_CHANGED at #/: the package {writer.package!r} became {reader.package!r}"
            )
        readers = dict(reader.message_types_by_name)
        for name, message in writer.message_types_by_name.items():
            found += self._message(readers.get(name), message, f"#/{name}", 0)
        return found

    def _message(
        self, reader: Descriptor | None, writer: Descriptor, path: str, depth: int
    ) -> list[str]:
        if reader is None:
            return [f"MESSAGE_REMOVED at {path}: the message {writer.full_name} is missing"]
        pair = reader.full_name, writer.full_name
        if pair in self._seen:
            return []
        self._seen.add(pair)
        self._budget.spend(depth)
        found = []
        readers = dict(reader.nested_types_by_name)
        for name, inner in writer.nested_types_by_name.items():
            if not inner.GetOptions().map_entry:  # maps are compared as fields
                found += self._message(readers.get(name), inner, f"{path}/{name}", depth + 1)
        found += _oneof_faults(reader, writer, path)
        for number, field in writer.fields_by_number.items():
            at = f"{path}/{field.name}"
            if number in reader.fields_by_number:
                found += self._field(reader.fields_by_number[number], field, at, depth + 1)
            elif field.is_required:
                found.append(
                    f"REQUIRED_FIELD_REMOVED at {at}: the required field {number} is missing"
                )
        for number, field in reader.fields_by_number.items():
            if field.is_required and not _is_required(writer.fields_by_number.get(number)):
                found.append(
                    f"REQUIRED_FIELD_ADDED at {path}/{field.name}: data may lack field {number}"
                )
        return found

    def _field(
        self, reader: FieldDescriptor, writer: FieldDescriptor, path: str, depth: int
    ) -> list[str]:
        if _kind(reader) != _kind(writer):
            return [
                f"FIELD_KIND_CHANGED at {path}: field {writer.number} was {_shown(writer)} and is "
                f"{_shown(reader)}"
            ]
        if _is_map(writer):
            return self._maps(reader, writer, path, depth)
        if writer.message_type is not None:
            return self._messages(reader, writer, path, depth)
        if _GROUPS[reader.type] != _GROUPS[writer.type]:
            return [
                f"FIELD_SCALAR_KIND_CHANGED at {path}: field {writer.number} was {_shown(writer)} "
                f"and is {_shown(reader)}"
            ]
        if reader.is_repeated != writer.is_repeated and _GROUPS[writer.type] != "text":
            return [
                f"FIELD_NUMERIC_LABEL_CHANGED at {path}: field {writer.number} is repeated in one "
                "schema only, and numbers are packed"
            ]
        return []

    def _maps(
        self, reader: FieldDescriptor, writer: FieldDescriptor, path: str, depth: int
    ) -> list[str]:
        found = []
        assert reader.message_type is not None
        assert writer.message_type is not None
        for name in ("key", "value"):
            now = reader.message_type.fields_by_name[name]
            before = writer.message_type.fields_by_name[name]
            found += self._field(now, before, f"{path}/{name}", depth)
        return found

    def _messages(
        self, reader: FieldDescriptor, writer: FieldDescriptor, path: str, depth: int
    ) -> list[str]:
        now, before = reader.message_type, writer.message_type
        assert now is not None
        assert before is not None
        # A change of package is reported once, not at each field.
        if _local_name(now) != _local_name(before):
            return [
                f"FIELD_NAMED_TYPE_CHANGED at {path}: field {writer.number} was {before.full_name} "
                f"and is {now.full_name}"
            ]
        return self._message(now, before, path, depth)


def _oneof_faults(reader: Descriptor, writer: Descriptor, path: str) -> list[str]:
    """Compare oneofs by the numbers of their fields; their names do not matter on the wire."""
    readers, writers = _oneofs(reader), _oneofs(writer)
    found = []
    for name, numbers in writers.items():
        gone = [number for number in sorted(numbers) if number not in reader.fields_by_number]
        if len(gone) == len(numbers) and name not in readers:
            continue  # The whole oneof was deleted, as a plain field may be.
        found += [
            f"ONEOF_FIELD_REMOVED at {path}/{name}/{writer.fields_by_number[number].name}: readers "
            "cannot tell that it was set"
            for number in gone
        ]
    for name, numbers in readers.items():
        fault = _exclusion_fault(writer, numbers)
        if fault:
            found.append(
                f"{fault} at {path}/{name}: fields that could all be set exclude each other"
            )
    return found


def _exclusion_fault(writer: Descriptor, numbers: set[int]) -> str | None:
    """The rule that is broken if fields of one oneof could be set together before.

    Fields of one oneof excluded each other before, a plain field excluded none, and data written
    before has no field that is new.
    """
    before = [writer.fields_by_number[one] for one in numbers if one in writer.fields_by_number]
    plain = sum(_oneof_of(field) is None for field in before)
    oneofs = {_oneof_of(field) for field in before} - {None}
    if plain + len(oneofs) <= 1:
        return None
    return "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if plain > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"


def _oneofs(message: Descriptor) -> dict[str, set[int]]:
    """The field numbers of each oneof; `optional` of proto3 makes none."""
    found: dict[str, set[int]] = {}
    for field in message.fields:
        name = _oneof_of(field)
        if name is not None:
            found.setdefault(name, set()).add(field.number)
    return found


def _oneof_of(field: FieldDescriptor) -> str | None:
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name == f"_{field.name}"):
        return None
    return oneof.name


def _kind(field: FieldDescriptor) -> str:
    if _is_map(field):
        return "map"
    if field.type == FieldDescriptor.TYPE_GROUP:
        return "group"
    return "scalar" if field.message_type is None else "message"


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_required(field: FieldDescriptor | None) -> bool:
    return field is not None and field.is_required


def _local_name(message: Descriptor) -> str:
    package = message.file.package
    return message.full_name.removeprefix(f"{package}.") if package else message.full_name


def _shown(field: FieldDescriptor) -> str:
    if _is_map(field):
        return "a map"
    if field.message_type is not None:
        return field.message_type.full_name
    return _TYPE_NAMES[field.type]


_TYPE_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
