"""The Python code of numbers, enumerations, records and messages of the handshake."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from cudaspec.gen.messages_py_parts import checks, default_of, got, put_part, snake, type_of
from cudaspec.load_messages import is_fixed, silent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaspec.message import Enumeration, Message, Messages, Module, Number, Part

KINDS = {
    "Handshake": "Opcodes of frames of kind HANDSHAKE.",
    "Notice": "Opcodes of frames of kind NOTICE: messages that the worker sends unasked.",
    "Control": "Opcodes of frames of kind CONTROL: messages that the client sends.",
}
WIDTH = 100


def number_lines(number: Number) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(_sentence(number.about), WIDTH - 2)] + [
        f"{number.name}: Final = {number.value}"
    ]


def _sentence(about: str) -> str:
    """Returns a sentence with its capital and its full stop."""
    return about[:1].upper() + about[1:] + ("" if about.endswith(".") else ".")


def enumeration_lines(one: Enumeration) -> list[str]:
    return enum_lines(one.name, one.about, one.values, "IntFlag" if one.flags else "IntEnum")


def enum_lines(
    name: str, about: str, values: Mapping[str, int], base: str = "IntEnum"
) -> list[str]:
    rows = [f"    {key} = {value}" for key, value in values.items()]
    return [f"class {name}({base}):", *docstring([about]), "", *rows]


def notices_lines(module: Module) -> list[list[str]]:
    fields = ["# The keys are names, because notices and control messages share numbers."]
    fields += ["FIELDS: Final[Mapping[str, tuple[str, ...]]] = {"]
    for kind, messages in (("Notice", module.notices), ("Control", module.controls)):
        for message in messages:
            texts = [f'"{part.text}"' for part in message.parts]
            inner = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
            fields.append(f"    {kind}.{message.name}.name: {inner},")
    return [
        enum_lines(
            "Notice",
            KINDS["Notice"],
            {message.name: message.opcode for message in module.notices},
        ),
        enum_lines(
            "Control",
            KINDS["Control"],
            {message.name: message.opcode for message in module.controls},
        ),
        [*fields, "}"],
    ]


def docstring(paragraphs: Sequence[str], indent: str = "    ") -> list[str]:
    whole = f'{indent}"""{paragraphs[0]}"""'
    if len(paragraphs) == 1 and len(whole) <= WIDTH:
        return [whole]
    lines: list[str] = []
    for number, paragraph in enumerate(paragraphs):
        first = indent + ('"""' if number == 0 else "")
        lines += [""] if number else []
        if "\n" in paragraph:
            lines += [indent + line for line in paragraph.splitlines()]
        else:
            lines += textwrap.wrap(paragraph, WIDTH, initial_indent=first, subsequent_indent=indent)
    return [*lines, f'{indent}"""']


def _about(about: str, parts: Sequence[Part]) -> list[str]:
    """Returns the paragraphs of a class's docstring: what it is, and each field's meaning."""
    rows = ["Attributes:"]
    for part in parts:
        if part.about and not silent(part):
            rows += textwrap.wrap(
                f"{part.name}: {part.about}.", WIDTH - 4, initial_indent="    ",
                subsequent_indent="        ",
            )  # fmt: skip
    return [about, "\n".join(rows)] if len(rows) > 1 else [about]


def class_lines(name: str, parts: Sequence[Part], about: str, rows: Messages) -> list[str]:
    shown = [part for part in parts if not silent(part)]
    members = [_member(rows, part) for part in shown]
    hidden = ", ".join(f'"{part.name}"' for part in shown if part.hidden)
    if hidden:
        members += ["", "    def __repr__(self) -> str:"]
        members += [f"        return repr_without(self, {hidden})"]
    return [f"class {name}(NamedTuple):", *docstring(_about(about, parts)), "", *members]


def _member(rows: Messages, part: Part) -> str:
    return f"    {part.name}: {type_of(rows, part)} = {default_of(rows, part)}"


def record_lines(name: str, parts: Sequence[Part], about: str, rows: Messages) -> list[str]:
    if is_fixed(parts):
        members = [f"    {part.name}: int" for part in parts]
        return [f"class {name}(NamedTuple):", *docstring([about]), "", *members]
    small = snake(name)
    puts = [line for part in parts for line in put_part(rows, part, "")]
    gets = [f"        {part.name}={got(rows, part)}," for part in parts]
    return [
        *class_lines(name, parts, about, rows), "", "",
        f"def _put_{small}(w: Writer, m: {name}) -> None:", *puts, "", "",
        f"def _{small}(r: Reader) -> {name}:", f"    return {name}(", *gets, "    )",
    ]  # fmt: skip


def message_lines(rows: Messages, message: Message) -> list[list[str]]:
    name, small = message.class_name, message.name.lower()
    what = article(message.name)
    if message.elsewhere:
        return []
    frame = f"Kind.HANDSHAKE, Handshake.{message.name}"
    if not message.parts:
        return [
            [
                f"def encode_{small}() -> bytes:",
                *docstring([f"Returns {what} frame. {message.about}"]),
                f"    return encode_frame({frame})",
            ]
        ]
    puts = [line for part in message.parts for line in put_part(rows, part, what)]
    return [
        class_lines(name, message.parts, message.about, rows),
        [
            f"def put_{small}(m: {name}) -> bytes:",
            *docstring([f"Returns the head of {what}."]),
            "    w = Writer()", *puts, "    return w.take()",
        ],
        decode_lines(rows, message),
        _encode(message, frame),
    ]  # fmt: skip


def article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _encode(message: Message, frame: str) -> list[str]:
    name, small, what = message.class_name, message.name.lower(), article(message.name)
    if not message.status:
        return [
            f"def encode_{small}(m: {name}) -> bytes:",
            *docstring([f"Returns {what} frame."]),
            f"    return encode_frame({frame}, put_{small}(m))",
        ]
    names = [part.name for part in message.parts]
    typed = ", ".join(f"{one}: str" for one in names)
    return [
        f"def encode_{small}(status: int, {typed}) -> bytes:",
        *docstring([f"Returns {what} frame. `status` is a CUresult."]),
        f"    head = put_{small}({name}({', '.join(names)}))",
        f"    return encode_frame({frame}, head, status=status)",
    ]


def decode_lines(rows: Messages, message: Message, head: str = "head") -> list[str]:
    """Returns the function that reads a message. head: the name of its bytes."""
    name, small, what = message.class_name, message.name.lower(), article(message.name)
    contract = [message.contract] if message.contract else []
    errors = f"Raises:\n    WireError: the bytes are not {what}."
    doc = docstring([f"Reads the {head} of {what}.", *contract, errors])
    lines = [f"def decode_{small}({head}: bytes) -> {name}:", *doc, f"    r = Reader({head})"]
    first = _read_first(message)
    for part in message.parts[:first]:
        target = "" if silent(part) else f"{part.name} = "
        lines.append(f"    {target}{got(rows, part)}")
    known = [part.name for part in message.parts[:first] if not silent(part)]
    if message.stops:
        _, other, constant = message.stops
        same = ", ".join(f"{one}={one}" for one in known)
        lines += [f"    if {other} != {constant}:", f"        return {name}({same})"]
    gets = [f"        {one}={one}," for one in known]
    gets += [f"        {part.name}={got(rows, part)}," for part in message.parts[first:]]
    lines += _call(name, gets)
    lines.append("    r.end()")
    return [*lines, *checks(message), "    return m"]


def _read_first(message: Message) -> int:
    """Returns how many fields are read by statements of their own, in front of the call."""
    stop = message.stops[0] if message.stops else ""
    ends = [n for n, part in enumerate(message.parts, 1) if silent(part) or part.name == stop]
    return max(ends, default=0)


def _call(name: str, gets: Sequence[str]) -> list[str]:
    """Returns `m = Name(...)` as `ruff format` writes it."""
    return [f"    m = {name}(", *gets, "    )"]
