"""The form of a message row. The rows are in `messages/`, one module for each Python module of
`rgpu_common/wire` that is generated from it.

A **Message** is what two parts of rgpu say to each other besides commands: it opens a session, it
is a notice or a control message, or it travels on a channel. Its fields travel in the order of the
row, without padding.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Number:
    """A constant that both languages know: MAX_NAME_BYTES, in C++ kMaxNameBytes."""

    name: str
    value: int
    about: str
    kind: str = "u32"


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Named numbers. flags: they are bits, and only Python knows them. cpp: the name in C++, where
    it is another one.
    """

    name: str
    kind: str
    values: Mapping[str, int]
    about: str
    flags: bool = False
    cpp: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a message or record.

    text: "KIND NAME". Kinds: u8 u16 u32 i32 u64 i64; `bool` (a u8); `magic`; `zero` (a u32 that is
        0); `text` (clean UTF-8, by native/wire/text.h), `printable` (any bytes, shown as text),
        `string` (the same, with a bound), `line` (the same for a log: reader and writer replace
        what is not clean) and `strings` (each with a NUL behind it, as one byte string); `bytes`;
        `secret` and `digest` (32 bytes) and `uuid` (16 bytes); `band`, `bands`, `wishes`; the name
        of an enumeration; a record's name with `[]` (rows of fixed size as one byte string), or
        with `#` (a u32 count and the records); `u16[]`; `bytes#`, `string#` and `u32#` (a u32 count
        and the items); `count` (the count of a later list, whose name it has).
    about: what the field means, as few words.
    default: number, or name of a constant. least, most: bounds of a number or of the length of
        a text, or of the number of rows; most may be the name of a constant.
    counted: the list's count and bound are not here but in an earlier `count`.
    cleaned: the sender replaces characters that are not clean, and cuts the text.
    hidden: a secret, which no log shows.
    needs: the field is empty unless this `bool` is true.
    minor: the field is there from this minor of the message on. optional: an empty field has no
        bytes; only the last one can be.
    """

    text: str
    about: str = ""
    default: int | str = 0
    least: int = 0
    most: int | str = 0
    cleaned: bool = False
    hidden: bool = False
    needs: str = ""
    minor: str = ""
    optional: bool = False
    counted: bool = False

    @property
    def kind(self) -> str:
        return self.text.partition(" ")[0]

    @property
    def name(self) -> str:
        return self.text.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class Record:
    """A group of fields that messages contain several times."""

    name: str
    parts: tuple[Part, ...]
    about: str


@dataclass(frozen=True, slots=True)
class Fd:
    """A descriptor that travels with a message. optional: only the last ones can be."""

    name: str
    about: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message: one opcode of its kind of frame, or one type of its channel.

    name: "HELLO"; its class is Hello. sender: who sends it. about: a sentence in Markdown.
    contract: what the reader must do besides, for the docstring.
    status: the frame's header carries a CUresult.
    stops: (field, other, constant): behind `field` nothing more is read if `other` differs from
        the constant, because the rest may have another layout.
    bulk: bytes follow the head. python: no C++ code reads or writes the message. elsewhere: its
        codec is written by hand. fds: the descriptors that come with it, in order.
    """

    opcode: int
    name: str
    sender: str
    about: str
    parts: tuple[Part, ...] = ()
    contract: str = ""
    status: bool = False
    stops: tuple[str, str, str] | None = None
    bulk: bool = False
    python: bool = False
    elsewhere: bool = False
    fds: tuple[Fd, ...] = ()

    @property
    def class_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class Channel:
    """A socket between two processes of rgpu, with messages and types of its own.

    name: its namespace in C++ and its module in Python. about: what kind of socket it is.
    packets: a message is one packet, a u32 type and the body. If not, it is a part of a stream,
        `head` and the body.
    """

    name: str
    about: str
    packets: bool = False
    head: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """The rows of one module of `messages/`. messages: of the channel, else of the handshake."""

    name: str
    about: str
    numbers: tuple[Number, ...] = ()
    enumerations: tuple[Enumeration, ...] = ()
    records: tuple[Record, ...] = ()
    messages: tuple[Message, ...] = ()
    notices: tuple[Message, ...] = ()
    controls: tuple[Message, ...] = ()
    channel: Channel | None = None


@dataclass(frozen=True)
class Messages:
    """The checked rows of the modules without a channel (the wire), or of these and one channel."""

    modules: tuple[Module, ...]

    @property
    def own(self) -> Module:
        """The module of the channel, which may use the constants and records of the others."""
        return self.modules[-1]

    @property
    def handshake(self) -> tuple[Message, ...]:
        """The messages of the handshake, by opcode."""
        found = [m for module in self.modules if not module.channel for m in module.messages]
        return tuple(sorted(found, key=lambda message: message.opcode))

    @property
    def notices(self) -> tuple[Message, ...]:
        return tuple(message for module in self.modules for message in module.notices)

    @property
    def controls(self) -> tuple[Message, ...]:
        return tuple(message for module in self.modules for message in module.controls)

    @functools.cached_property
    def numbers(self) -> Mapping[str, Number]:
        return {number.name: number for module in self.modules for number in module.numbers}

    @functools.cached_property
    def enumerations(self) -> Mapping[str, Enumeration]:
        return {one.name: one for module in self.modules for one in module.enumerations}

    @functools.cached_property
    def records(self) -> Mapping[str, Record]:
        return {record.name: record for module in self.modules for record in module.records}
