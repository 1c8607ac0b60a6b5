"""Generates the C++ codec of a channel's messages: `worker.gen.h/.cc` and `compiler.gen.h/.cc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.messages_cc import READ
from cudaspec.gen.messages_cc_parts import (
    comment,
    constant,
    enum_lines,
    get_lines,
    number_lines,
    put_lines,
    record_lines,
    struct_lines,
)
from cudaspec.gen.source import header, source
from cudaspec.load_messages import head_bytes
from cudaspec.message import Message

if TYPE_CHECKING:
    from cudaspec.message import Messages

_INCLUDES = ["<array>", "<cstdint>", "<string>", "<vector>", ""]
_INCLUDES += [f'"rgpu_common/native/wire/{name}.h"' for name in ("codec", "fields")]


def channel_h(rows: Messages) -> str:
    own = rows.own
    body = [f"namespace rgpu::wire::{own.name} {{", ""]
    for number in own.numbers:
        body += number_lines(number)
    for one in own.enumerations:
        body += ["", *comment(one.about), *enum_lines(one.name, one.kind, one.values)]
    for row in own.records:
        body += ["", *struct_lines(rows, row.name, row.parts, row.about)]
    for message in (*_head(rows), *own.messages):
        name = message.class_name
        about = message.about
        body += ["", *struct_lines(rows, name, message.parts, about, _first(rows, message))]
        body += [f"void Put(Writer& w, const {name}& m);", READ, f"bool Get(Reader& r, {name}* m);"]
    body += ["", *_visit(rows), "", f"}}  // namespace rgpu::wire::{own.name}"]
    return header(body, _INCLUDES)


def channel_cc(rows: Messages) -> str:
    own = rows.own
    body = [f"namespace rgpu::wire::{own.name} {{"]
    if own.records:
        body += ["namespace {", ""]
        for row in own.records:
            body += record_lines(rows, row.name, row.parts)
        body += ["}  // namespace"]
    for message in (*_head(rows), *own.messages):
        body += ["", *put_lines(rows, message), "", *get_lines(rows, message)]
    includes = [f'"gen/{own.name}.gen.h"', "", '"rgpu_common/native/wire/text.h"']
    return source([*body, "", f"}}  // namespace rgpu::wire::{own.name}"], includes)


def _head(rows: Messages) -> list[Message]:
    """Returns what stands in front of every body, in the form of a message; of packets nothing."""
    channel = rows.own.channel
    assert channel is not None
    about = "The bytes in front of every body."
    return [] if channel.packets else [Message(0, "HEAD", "", about, channel.head)]


def _first(rows: Messages, message: Message) -> list[str]:
    """Returns what a message's struct says of its type and descriptors."""
    channel = rows.own.channel
    if message.name == "HEAD":
        return [f"  static constexpr size_t kBytes = {head_bytes(rows)};"]
    lines = [f"  static constexpr MessageType kType = MessageType::{constant(message.name)};"]
    if channel is None or not channel.packets:
        return lines
    if message.fds:
        names = ", ".join(constant(fd.name.upper()) for fd in message.fds)
        lines += ["  // The descriptors, by place.", f"  enum Fd : size_t {{ {names} }};"]
    least = sum(not fd.optional for fd in message.fds)
    return [
        *lines,
        f"  static constexpr size_t kLeastFds = {least}, kMostFds = {len(message.fds)};",
    ]


def _visit(rows: Messages) -> list[str]:
    cases = [
        line
        for message in rows.own.messages
        for line in (
            f"    case {message.class_name}::kType:",
            f"      visit({message.class_name}{{}});",
            "      return true;",
        )
    ]
    return [
        "// Calls `visit` with an empty message of this type. False: there is none.",
        "template <typename F>",
        "bool VisitMessage(uint32_t type, F&& visit) {",
        "  switch (static_cast<MessageType>(type)) {",
        *cases,
        "  }",
        "  return false;",
        "}",
    ]
