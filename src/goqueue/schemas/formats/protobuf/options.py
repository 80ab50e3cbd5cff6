"""Options of .proto texts: those of Protobuf itself, and custom ones.

A custom option can only be interpreted with the file that defines it. Until that is available the
option is kept as written; `interpret` then converts it as protoc does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2 as d
from google.protobuf import message_factory, text_encoding, text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from goqueue.schemas.formats.protobuf.tokens import Tokens, integer_of

if TYPE_CHECKING:
    Value = str | bytes

AGGREGATE_DEPTH_MAX = 30

_Part = tuple[str, bool]  # a part of a name, and whether it was in parentheses


def read_statement(tokens: Tokens, options: Message) -> None:
    """`option name = value;`"""
    tokens.expect("option")
    _read_one(tokens, options, ())
    tokens.expect(";")


def read_list(
    tokens: Tokens, options: Message, *, special: Sequence[str] = ()
) -> list[tuple[str, Value]]:
    """`[name = value, ...]`, if present; those in `special` are returned, not set."""
    found: list[tuple[str, Value]] = []
    if not tokens.accept("["):
        return found
    while True:
        found += _read_one(tokens, options, special)
        if not tokens.accept(","):
            break
    tokens.expect("]")
    return found


def _read_one(tokens: Tokens, options: Message, special: Sequence[str]) -> list[tuple[str, Value]]:
    parts = _name(tokens)
    tokens.expect("=")
    if len(parts) == 1 and not parts[0][1] and parts[0][0] in special:
        if tokens.peek() == "{":
            tokens.fail("expected a plain value")
        return [(parts[0][0], _value(tokens))]
    if parts[0][1]:
        _keep(tokens, options, parts)
        return []
    target = options
    for name, is_extension in parts[:-1]:
        field = target.DESCRIPTOR.fields_by_name.get(name)
        if is_extension or field is None or field.message_type is None or field.is_repeated:
            tokens.refuse(f"there is no option {_shown(parts)}")
        target = getattr(target, name)
    name, is_extension = parts[-1]
    if (
        is_extension
        or name not in target.DESCRIPTOR.fields_by_name
        or name == "uninterpreted_option"
    ):
        tokens.refuse(f"there is no option {_shown(parts)}")
    _merge(tokens, target, name, _value_text(tokens))
    return []


def _name(tokens: Tokens) -> list[_Part]:
    parts: list[_Part] = []
    while True:
        if tokens.accept("("):
            parts.append((tokens.full_word(), True))
            tokens.expect(")")
        else:
            parts.append((tokens.word("an option's name"), False))
        if not tokens.accept("."):
            return parts


def _value(tokens: Tokens) -> Value:
    """A plain value: strings as bytes, all others as written."""
    if tokens.kind() == "string":
        return tokens.string()
    sign = "-" if tokens.accept("-") else ""
    if tokens.kind() not in ("word", "number"):
        tokens.fail("expected a value")
    return sign + tokens.take().text


def _value_text(tokens: Tokens) -> str:
    """Any value in the text format of messages."""
    if tokens.peek() == "{":
        return _aggregate(tokens)
    value = _value(tokens)
    if isinstance(value, bytes):
        return f': "{text_encoding.CEscape(value, as_utf8=False)}"'
    return f": {value}"


def _aggregate(tokens: Tokens) -> str:
    words, depth = [], 0
    while True:
        if tokens.is_done:
            tokens.fail("expected '}'")
        token = tokens.take()
        depth += (token.text in ("{", "<", "[")) - (token.text in ("}", ">", "]"))
        if depth > AGGREGATE_DEPTH_MAX:
            tokens.refuse("the value of an option is nested too deeply")
        words.append(token.text)
        if depth == 0:
            return _joined(words)


def _joined(words: Sequence[str]) -> str:
    # Dots belong to the adjacent names; everything else can be separated.
    return " ".join(words).replace(" . ", ".").replace("- ", "-")


def _merge(tokens: Tokens, target: Message, name: str, value: str) -> None:
    try:
        text_format.Merge(f"{name} {value}", target)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        tokens.refuse(f"the option {name} cannot have this value ({str(error)[:200]})")


def _keep(tokens: Tokens, options: Message, parts: Sequence[_Part]) -> None:
    kept: d.UninterpretedOption = options.uninterpreted_option.add()  # type: ignore[attr-defined]
    for name, is_extension in parts:
        kept.name.add(name_part=name, is_extension=is_extension)
    if tokens.peek() == "{":
        kept.aggregate_value = _aggregate(tokens)[1:-1].strip()
        return
    value = _value(tokens)
    if isinstance(value, bytes):
        kept.string_value = value
        return
    number = integer_of(value.removeprefix("-")) if value.removeprefix("-")[:1].isdigit() else None
    if number is not None and number < 2**63:
        if value.startswith("-"):
            kept.negative_int_value = -number
        else:
            kept.positive_int_value = number
    elif value.removeprefix("-")[:1].isdigit() or value.startswith(("-", ".")):
        try:
            kept.double_value = float(value)
        except ValueError:
            tokens.refuse(f"{value[:40]!r} is no number")
    else:
        kept.identifier_value = value


def interpret(options: Message, scope: str, pool: DescriptorPool) -> None:
    """Set the custom options whose definitions the pool has; leave the others as they are."""
    kept = list(options.uninterpreted_option)  # type: ignore[attr-defined]
    if not kept:
        return
    known = _known_class(options, pool)
    if known is None:
        return
    message, left = known(), []
    for option in kept:
        extension = _extension_name(option.name[0].name_part, scope, pool)
        try:
            if extension is None:
                left.append(option)
            else:
                text_format.Merge(_as_text(option, extension), message)
        except (text_format.ParseError, ValueError, RecursionError):
            left.append(option)
    options.MergeFromString(message.SerializePartialToString(deterministic=True))
    copies = [d.UninterpretedOption.FromString(each.SerializeToString()) for each in left]
    options.ClearField("uninterpreted_option")
    options.uninterpreted_option.extend(copies)  # type: ignore[attr-defined]


def written(options: Message, pool: DescriptorPool, *, is_sorted: bool) -> list[str]:
    """Each option as `name = value`."""
    known = _known_class(options, pool)
    message = options if known is None else known.FromString(options.SerializeToString())
    found = []
    for field, value in message.ListFields():
        if field.name in ("uninterpreted_option", "map_entry"):
            continue
        name = f"({field.full_name})" if field.is_extension else field.name
        for each in value if field.is_repeated else (value,):
            found.append(f"{name} = {_field_value(field, each)}")
    found += [_kept_text(each) for each in options.uninterpreted_option]  # type: ignore[attr-defined]
    return sorted(found) if is_sorted else found


def _known_class(options: Message, pool: DescriptorPool) -> type[Message] | None:
    """The class of these options in that pool, which has the pool's extensions."""
    try:
        descriptor = pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
    except KeyError:
        return None
    found: type[Message] = message_factory.GetMessageClass(descriptor)
    return found


def _extension_name(name: str, scope: str, pool: DescriptorPool) -> str | None:
    """The full name of an extension that is used inside `scope`."""
    for candidate in _candidates(name, scope):
        try:
            pool.FindExtensionByName(candidate)
        except KeyError:
            continue
        return candidate
    return None


def _candidates(name: str, scope: str) -> Iterator[str]:
    if name.startswith("."):
        yield name[1:]
        return
    while scope:
        yield f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    yield name


def _as_text(option: d.UninterpretedOption, extension: str) -> str:
    inner = [part.name_part for part in option.name[1:]]
    value = _kept_value(option)
    value = f" {{ {value[1:-1]} }}" if option.HasField("aggregate_value") else f": {value}"
    for name in reversed(inner):
        value = f" {{ {name}{value} }}"
    return f"[{extension}]{value}"


def _kept_text(option: d.UninterpretedOption) -> str:
    name = ".".join(
        f"({part.name_part})" if part.is_extension else part.name_part for part in option.name
    )
    return f"{name} = {_kept_value(option)}"


def _kept_value(option: d.UninterpretedOption) -> str:
    if option.HasField("string_value"):
        return f'"{text_encoding.CEscape(option.string_value, as_utf8=False)}"'
    if option.HasField("aggregate_value"):
        return f"{{ {option.aggregate_value} }}"
    if option.HasField("positive_int_value"):
        return str(option.positive_int_value)
    if option.HasField("negative_int_value"):
        return str(option.negative_int_value)
    if option.HasField("double_value"):
        return repr(option.double_value)
    return option.identifier_value


def _field_value(field: object, value: object) -> str:
    if isinstance(value, Message):
        text = text_format.MessageToString(value, as_one_line=True)
        return f"{{ {text} }}" if text else "{}"
    out = text_format.TextWriter(False)
    text_format.PrintFieldValue(field, value, out, as_one_line=True)  # type: ignore[arg-type]
    return out.getvalue()


def _shown(parts: Sequence[_Part]) -> str:
    return ".".join(f"({name})" if is_extension else name for name, is_extension in parts)
