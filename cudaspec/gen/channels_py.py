"""The Python code of a channel's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.messages_py_classes import article, class_lines, decode_lines, docstring
from cudaspec.gen.messages_py_parts import put_part
from cudaspec.load_messages import head_bytes
from cudaspec.message import Message

if TYPE_CHECKING:
    from cudaspec.message import Channel, Messages


def channel_lines(rows: Messages, channel: Channel) -> list[list[str]]:
    """Returns the lines of each class and function behind the records."""
    messages = rows.own.messages
    if channel.packets:
        senders = dict.fromkeys(message.sender for message in messages)
        lines = [one for message in messages for one in _message(rows, channel, message)]
        return [*lines, *(one for sender in senders for one in _from(rows, sender))]
    head = Message(0, "HEAD", "", "The bytes in front of every body.", channel.head)
    lines = [[f"HEAD_BYTES: Final = {head_bytes(rows)}"], *_codec(rows, head)]
    return [*lines, *(one for message in messages for one in _message(rows, channel, message))]


def _message(rows: Messages, channel: Channel, message: Message) -> list[list[str]]:
    name, small = message.class_name, message.name.lower()
    what, kind = article(message.name), f"MessageType.{message.name}"
    encode = [f"    return encode_packet({kind}, put_{small}(m))"]
    if not channel.packets:
        encode = [
            f"    body = put_{small}(m)",
            f"    return put_head(Head({kind}, len(body))) + body",
        ]
    lines = [
        *_codec(rows, message),
        [f"def encode_{small}(m: {name}) -> bytes:", *docstring([f"Returns {what}."]), *encode],
    ]
    return [*lines, _descriptors(message)] if len(message.fds) > 1 else lines


def _codec(rows: Messages, message: Message) -> list[list[str]]:
    """Returns the class of a message, and how its body is written and read."""
    name, small, what = message.class_name, message.name.lower(), article(message.name)
    puts = [line for part in message.parts for line in put_part(rows, part, what)]
    put = ["    w = Writer()", *puts, "    return w.take()"] if puts else ['    return b""']
    about = message.about
    if len(message.fds) == 1:
        about += f" With it comes {message.fds[0].about}."
    return [
        class_lines(name, message.parts, about, rows),
        [
            f"def put_{small}(m: {name}) -> bytes:"
            if puts
            else f"def put_{small}(_: {name}) -> bytes:",
            *docstring([f"Returns the body of {what}."]),
            *put,
        ],
        decode_lines(rows, message, "body"),
    ]


def _descriptors(message: Message) -> list[str]:
    """Returns the class that names the descriptors of a message."""
    about = f"The descriptors that come with {article(message.name)}, in order."
    rows = [f"    {fd.name}: {fd.about}{' (-1: none)' * fd.optional}." for fd in message.fds]
    members = [f"    {fd.name}: int{' = -1' * fd.optional}" for fd in message.fds]
    doc = docstring([about, "\n".join(["Attributes:", *rows])])
    return [f"class {message.class_name}Fds(NamedTuple):", *doc, "", *members]


def _from(rows: Messages, sender: str) -> list[list[str]]:
    """Returns the union of a sender's messages, and the function that reads a packet of it."""
    messages = [message for message in rows.own.messages if message.sender == sender]
    union = f"From{sender.capitalize()}"
    cases = [
        line
        for message in messages
        for line in (
            f"    if kind == MessageType.{message.name}:",
            f"        return decode_{message.name.lower()}(body)",
        )
    ]
    errors = f"Raises:\n    WireError: it is no message of the {sender}."
    return [
        [f"{union} = {' | '.join(message.class_name for message in messages)}"],
        [
            f"def decode_from_{sender}(packet: bytes) -> {union}:",
            *docstring([f"Reads a message of the {sender}.", errors]),
            "    kind, body = split_packet(packet)",
            *cases,
            f'    raise WireError(f"the {sender} sent a message of unknown type {{kind}}")',
        ],
    ]
