"""Writes one Python module per API: its structs, its public functions, a codec per layout.

Code is specialised by version. A reader or writer is built for every struct in every version, and
versions whose code comes out the same share one function, named for the first of them. That keeps
the generated functions straight: no version is compared while a message is read.
"""

from __future__ import annotations

import re

from tools.kafka_codegen.definitions import (
    FIXED_BYTES,
    FIXED_CODES,
    Field,
    Message,
    StructDefinition,
    snake_case,
)
from tools.kafka_codegen.layout import (
    INTEGER_TYPES,
    Step,
    absent_fields,
    attribute_name,
    default_literal,
    fields_used,
    is_flexible,
    is_optional,
    item_bytes_min,
    local_name,
    steps,
    tagged_fields,
)

_RUN_LETTERS = {
    "bool": "T",
    "int8": "B",
    "int16": "H",
    "uint16": "U",
    "int32": "I",
    "int64": "Q",
    "float64": "D",
    "uuid": "G",
}
_TAG_SECTION_EMPTY = "x"
_PYTHON_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
}


class ModuleEmitter:
    """The text of one module, which holds the messages of one API (or the two headers)."""

    def __init__(self, messages: list[Message], *, heading: str, summary: str) -> None:
        self._messages = messages
        self._heading = heading
        self._summary = summary
        self._runs: dict[str, str] = {}  # name of a struct.Struct: its format
        self._functions: dict[tuple[str, str], str] = {}  # (class and direction, body): name
        self._function_texts: list[str] = []
        self._class_names = _class_names(messages)

    def text(self) -> str:
        structs = [
            self._struct_text(message, struct)
            for message in self._messages
            for struct in [*message.structs.values(), message.root]
        ]
        aliases = [
            f"{_side(message)} = {message.name}"
            for message in self._messages
            if message.kind != "header"
        ]
        publics = [_public_text(message) for message in self._messages]
        # Making the tables makes the functions they lead to, and the runs those use.
        tables = [self._tables_text(message) for message in self._messages]
        runs = [f'{name} = Struct(">{code}")' for name, code in sorted(self._runs.items())]
        parts = [*structs, "\n".join(aliases), *publics, "\n".join(runs)]
        body = "\n\n\n".join([*parts, *self._function_texts, *tables])
        return f'{self._heading}\n\n"""{self._summary}"""\n\n{_imports_text(body)}\n\n\n{body}\n'

    # Structs

    def _struct_text(self, message: Message, struct: StructDefinition) -> str:
        lines = [f"class {self._class_name(message, struct.name)}(msgspec.Struct, gc=False):"]
        for field in fields_used(message, struct):
            default = self._default(message, field)
            if default.endswith("()"):
                default = f"msgspec.field(default_factory={default[:-2]})"
            annotation = self._annotation(message, field)
            lines.append(f"    {attribute_name(field)}: {annotation} = {default}")
        if len(lines) == 1:
            lines.append("    pass")
        return "\n".join(lines)

    def _annotation(self, message: Message, field: Field) -> str:
        name = _PYTHON_TYPES.get(field.type) or self._class_name(message, field.type)
        if field.is_array:
            name = f"list[{name}]"
        return f"{name} | None" if is_optional(message, field) else name

    def _default(self, message: Message, field: Field) -> str:
        class_name = self._class_name(message, field.type) if field.is_struct else ""
        return default_literal(message, field, class_name)

    def _class_name(self, message: Message, struct_name: str) -> str:
        return self._class_names[message.name, struct_name]

    # Functions and the tables that lead to them

    def _tables_text(self, message: Message) -> str:
        prefix = snake_case(_side(message)).upper()
        readers = ", ".join(
            f"{version}: {self._reader(message, message.root, version)}"
            for version in message.versions
        )
        writers = ", ".join(
            f"{version}: {self._writer(message, message.root, version)}"
            for version in message.versions
        )
        return (
            f"_{prefix}_READERS: Final[Mapping[int, Reader[{message.name}]]] = {{{readers}}}\n"
            f"_{prefix}_WRITERS: Final[Mapping[int, Writer[{message.name}]]] = {{{writers}}}"
        )

    def _function(
        self, class_name: str, verb: str, version: int, signature: str, lines: list[str]
    ) -> str:
        """Keep a function, or find the one with the same body; return its name."""
        body = "\n".join(f"    {line}" for line in lines)
        known = self._functions.get((verb + class_name, body))
        if known is not None:
            return known
        name = f"_{verb}_{snake_case(class_name)}_v{version}"
        self._functions[verb + class_name, body] = name
        self._function_texts.append(f"def {name}{signature}:\n{body}")
        return name

    def _run(self, fields: list[Field], suffix: str = "") -> str:
        """Name the struct.Struct of a run of fixed-size fields."""
        name = "_" + "".join(_RUN_LETTERS[field.type] for field in fields) + suffix.upper()
        self._runs[name] = "".join(FIXED_CODES[field.type] for field in fields) + suffix
        return name

    # Readers

    def _reader(self, message: Message, struct: StructDefinition, version: int) -> str:
        class_name = self._class_name(message, struct.name)
        lines: list[str] = []
        for step in steps(message, struct, version):
            lines += self._read_step(message, step, version)
        if version in message.flexible:
            lines += self._read_tagged(message, struct, version)
        arguments = ", ".join(self._arguments(message, struct, version))
        lines.append(f"return {class_name}({arguments}), pos")
        signature = f"(data: Buffer, pos: int) -> tuple[{class_name}, int]"
        return self._function(class_name, "read", version, signature, lines)

    def _arguments(self, message: Message, struct: StructDefinition, version: int) -> list[str]:
        fields = fields_used(message, struct)
        while fields and version not in fields[-1].versions:
            fields.pop()
        return [
            local_name(field) if version in field.versions else self._default(message, field)
            for field in fields
        ]

    def _read_step(self, message: Message, step: Step, version: int) -> list[str]:
        if not step.is_run:
            call = self._read_call(message, step.field, version)
            return [f"{local_name(step.field)}, pos = {call}"]
        names = ", ".join(local_name(field) for field in step.fields)
        targets = f"({names},)" if len(step.fields) == 1 else names
        size = sum(FIXED_BYTES[field.type] for field in step.fields)
        return [f"{targets} = {self._run(step.fields)}.unpack_from(data, pos)", f"pos += {size}"]

    def _read_call(self, message: Message, field: Field, version: int) -> str:
        prefix = _prefix(message, field, version)
        if not field.is_array and field.is_struct:
            reader = self._reader(message, message.structs[field.type], version)
            if version in field.nullable:
                return f"read_nullable_struct(data, pos, {reader})"
            return f"{reader}(data, pos)"
        if not field.is_array:
            return f"read_{prefix}{field.type}(data, pos)"
        size = item_bytes_min(message, field, version)
        if field.type in INTEGER_TYPES:
            return f'read_{prefix}integers(data, pos, {size}, "{FIXED_CODES[field.type]}")'
        reader = f"read_{_compact(message, field, version)}{field.type}"
        if field.is_struct:
            reader = self._reader(message, message.structs[field.type], version)
        elif field.type == "uuid":
            reader = "read_uuid"
        return f"read_{prefix}array(data, pos, {size}, {reader})"

    def _read_tagged(self, message: Message, struct: StructDefinition, version: int) -> list[str]:
        fields = tagged_fields(message, struct, version)
        if not fields:
            return ["pos = pos + 1 if data[pos] == 0 else skip_tagged_fields(data, pos)"]
        lines = [
            f"{local_name(field)}: {self._annotation(message, field)} = "
            f"{self._default(message, field)}"
            for field in fields
        ]
        lines += [
            "tag_count, pos = read_tag_count(data, pos)",
            "for _ in range(tag_count):",
            "    tag, pos, end = read_tag(data, pos)",
        ]
        keyword = "if"
        for field in fields:
            lines.append(f"    {keyword} tag == {field.tag}:")
            lines += [
                f"        {line}" for line in self._read_step(message, Step([field]), version)
            ]
            keyword = "elif"
        return [*lines, "    else:", "        pos = end", "    check_tag_end(tag, pos, end)"]

    # Writers

    def _writer(self, message: Message, struct: StructDefinition, version: int) -> str:
        class_name = self._class_name(message, struct.name)
        lines = [
            line
            for field in absent_fields(message, struct, version)
            if not field.is_ignorable
            for line in (
                f"if {self._differs(message, field)}:",
                f'    raise AbsentField("{field.python_name}")',
            )
        ]
        tagged = tagged_fields(message, struct, version)
        found = steps(message, struct, version, in_run=_is_in_written_run)
        ends_plainly = version in message.flexible and not tagged
        for index, step in enumerate(found):
            is_last = index == len(found) - 1
            if ends_plainly and is_last and _is_in_written_run(step.field):
                lines += self._write_step(message, step, version, suffix=_TAG_SECTION_EMPTY)
                ends_plainly = False
            else:
                lines += self._write_step(message, step, version)
        if ends_plainly:
            lines.append("write(TAG_SECTION_EMPTY)")
        if tagged:
            lines += self._write_tagged(message, tagged, version)
        signature = f"(write: Write, message: {class_name}) -> None"
        return self._function(class_name, "write", version, signature, lines or ["pass"])

    def _write_step(
        self, message: Message, step: Step, version: int, *, suffix: str = "", write: str = "write"
    ) -> list[str]:
        if not _is_in_written_run(step.field):
            return [self._write_call(message, step.field, version, write)]
        values = ", ".join(f"message.{attribute_name(field)}" for field in step.fields)
        return [f"{write}({self._run(step.fields, suffix)}.pack({values}))"]

    def _write_call(self, message: Message, field: Field, version: int, write: str) -> str:
        prefix = _prefix(message, field, version)
        value = f"message.{attribute_name(field)}"
        if is_optional(message, field) and version not in field.nullable:
            value = f'not_null({value}, "{field.python_name}")'
        if not field.is_array and field.is_struct:
            writer = self._writer(message, message.structs[field.type], version)
            if version in field.nullable:
                return f"write_nullable_struct({write}, {value}, {writer})"
            return f"{writer}({write}, {value})"
        if not field.is_array:
            if field.type == "uuid":
                return f"write_uuid({write}, {value})"
            kind = "bytes" if field.type == "records" else field.type
            return f"write_{prefix}{kind}({write}, {value})"
        if field.type in INTEGER_TYPES:
            return f'write_{prefix}integers({write}, {value}, "{FIXED_CODES[field.type]}")'
        writer = f"write_{_compact(message, field, version)}{field.type}"
        if field.is_struct:
            writer = self._writer(message, message.structs[field.type], version)
        elif field.type == "uuid":
            writer = "write_uuid"
        return f"write_{prefix}array({write}, {value}, {writer})"

    def _write_tagged(self, message: Message, fields: list[Field], version: int) -> list[str]:
        lines = ["tagged = TaggedFields()"]
        for field in fields:
            lines.append(f"if {self._differs(message, field)}:")
            write = f"tagged.add({field.tag})"
            lines += [
                f"    {line}"
                for line in self._write_step(message, Step([field]), version, write=write)
            ]
        return [*lines, "tagged.write_to(write)"]

    def _differs(self, message: Message, field: Field) -> str:
        """An expression: does the field have another value than its default?"""
        value = f"message.{attribute_name(field)}"
        default = self._default(message, field)
        if default == "None":
            return f"{value} is not None"
        if default in ("True", "False"):
            return value if default == "False" else f"not {value}"
        return f"{value} != {default}"


def _is_in_written_run(field: Field) -> bool:
    # struct pads or cuts a uuid of the wrong length in silence, so uuids are written by a function
    # that checks it.
    return field.is_fixed and field.type != "uuid"


def _compact(message: Message, field: Field, version: int) -> str:
    return "compact_" if is_flexible(message, field, version) else ""


def _prefix(message: Message, field: Field, version: int) -> str:
    nullable = "nullable_" if version in field.nullable else ""
    return _compact(message, field, version) + nullable


def _side(message: Message) -> str:
    """How the public names of a message begin: Request, Response, RequestHeader..."""
    return message.name if message.kind == "header" else message.kind.capitalize()


def _class_names(messages: list[Message]) -> dict[tuple[str, str], str]:
    """Name the classes of a module: as Kafka does, unless both messages use the name."""
    uses: dict[str, int] = {}
    for message in messages:
        for name in message.structs:
            uses[name] = uses.get(name, 0) + 1
    names = {}
    for message in messages:
        names[message.name, message.root.name] = message.name
        for name in message.structs:
            names[message.name, name] = name if uses[name] == 1 else _side(message) + name
    return names


def _public_text(message: Message) -> str:
    side = snake_case(_side(message))
    arguments = f'"{message.name}", _{side.upper()}'
    is_header = message.kind == "header"
    returned = f"tuple[{message.name}, int]" if is_header else message.name
    decode = "read_message" if is_header else "decode_message"
    return f"""\
def decode_{side}(data: Buffer, version: int, start: int = 0) -> {returned}:
    return {decode}({arguments}_READERS, data, version, start)


def encode_{side}(message: {message.name}, version: int) -> bytes:
    return encode_message({arguments}_WRITERS, message, version)


def write_{side}(message: {message.name}, version: int, chunks: list[Buffer]) -> None:
    write_message({arguments}_WRITERS, message, version, chunks)"""


_PRIMITIVES = re.compile(
    r"\b((?:read|write)_(?:compact_)?(?:nullable_)?"
    r"(?:string|bytes|records|array|integers|struct|uuid|message|tag|tag_count)"
    r"|skip_tagged_fields|check_tag_end|not_null|decode_message|encode_message"
    r"|AbsentField|Buffer|Reader|TAG_SECTION_EMPTY|TaggedFields|UUID_ZERO|Write|Writer)\b"
)


def _imports_text(body: str) -> str:
    names = sorted(set(_PRIMITIVES.findall(body)))
    lines = ["from __future__ import annotations\n", "from collections.abc import Mapping"]
    if "Struct(" in body.replace("msgspec.Struct", ""):
        lines.append("from struct import Struct")
    lines += ["from typing import Final", "", "import msgspec", ""]
    lines.append(f"from goqueue.wire.kafka.primitives import ({', '.join(names)})")
    return "\n".join(lines)
