"""Prints recorded streams, one line for each frame: `python -m rgpu_common.wire.trace FILE...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.wire import codec, messages, resume
from rgpu_common.wire.attach import decode_attach
from rgpu_common.wire.frame import Flags, Frame, Kind, WireError, decode_frames
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import decode_hello
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.shm import decode_shm
from rgpu_common.wire.welcome import decode_welcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN_BYTES = 24


def describe(frame: Frame) -> str:
    """Returns one line about a frame. The line says MALFORMED if the frame breaks the format."""
    header = frame.header
    parts = [f"#{header.seq}" if header.seq else "-", header.kind.name]
    try:
        parts.append(_contents(frame))
    except WireError as error:
        parts.append(f"opcode {header.opcode:#06x} MALFORMED: {error}")
    if header.thread:
        parts.append(f"thread={header.thread}")
    if header.context:
        parts.append(f"context={header.context}")
    if header.status:
        parts.append(f"status={header.status}")
    if header.watermark:
        parts.append(f"watermark={header.watermark}")
    shown = header.flags & ~Flags.WANTS_REPLY
    if shown:
        parts.append("|".join(flag.name or "" for flag in Flags if flag and flag in shown))
    if frame.bulk:
        parts.append(f"+{len(frame.bulk)} bytes")
    return " ".join(parts)


def _contents(frame: Frame) -> str:
    kind = frame.header.kind
    if kind in (Kind.COMMAND, Kind.REPLY):
        decode = codec.decode_command if kind is Kind.COMMAND else codec.decode_reply
        name, values = decode(frame)
        return f"{name}({_show(values)})"
    if kind in (Kind.DATA, Kind.DELIVERY):
        name = codec.command_row(frame.header.opcode).name
        return f"{name} offset={messages.piece_offset(frame)}"
    if kind is Kind.HANDSHAKE:
        return _greeting(frame)
    message, fields = messages.decode_message(frame)
    return f"{message.name}({_show(fields)})"


def _greeting(frame: Frame) -> str:
    which = frame.header.opcode
    if which == Handshake.HELLO:
        hello = decode_hello(frame.head)
        return (
            f"HELLO wire={hello.major}.{hello.minor} release={hello.release} pid={hello.pid} "
            f"program={hello.program} memory={hello.memory_bytes} opcodes={len(hello.opcodes)}"
        )
    if which == Handshake.WELCOME:
        welcome = decode_welcome(frame.head)
        return (
            f"WELCOME session={welcome.session} release={welcome.release} "
            f"band={welcome.band.base:#x}+{welcome.band.size:#x} missing={len(welcome.missing)} "
            f"devices={[device.name for device in welcome.devices]}"
        )
    if which == Handshake.REFUSED:
        return f"REFUSED {decode_refused(frame.head).sentence!r}"
    if which == Handshake.ATTACH:
        return f"ATTACH session={decode_attach(frame.head).session}"
    if which == Handshake.ATTACHED:
        return "ATTACHED"
    if which == Handshake.SHM:
        shm = decode_shm(frame.head)
        return f"SHM accepted={shm.accepted} {shm.reason!r}"
    if which == Handshake.RESUME:
        again = resume.decode_resume(frame.head)
        return (
            f"RESUME session={again.session} lane={again.lane.name} link={again.link} "
            f"epoch={again.epoch} received={again.received}"
        )
    if which == Handshake.RESUMED:
        return f"RESUMED received={resume.decode_resumed(frame.head).received}"
    raise WireError(f"unknown handshake message {which}")


def _show(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_value(name, value)}" for name, value in values.items())


def _value(name: str, value: object) -> str:
    if isinstance(value, bytes):
        rest = f"... {len(value)} bytes" if len(value) > _SHOWN_BYTES else ""
        text = value[:_SHOWN_BYTES]
        return (
            repr(text)[1:] if text.isascii() and text.decode().isprintable() else text.hex()
        ) + rest
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, int) and value >= 1 << 20 and name not in ("bytes", "total", "free"):
        return hex(value)
    return str(value)


def lines(stream: bytes) -> Iterator[str]:
    """Yields a line for each frame of a recorded stream. A last line reports malformed bytes."""
    try:
        for frame in decode_frames(stream):
            yield describe(frame)
    except WireError as error:
        yield f"- MALFORMED: {error}"


def main(arguments: Sequence[str]) -> int:
    """Prints the frames of every file."""
    if not arguments:
        sys.stderr.write("usage: python -m rgpu_common.wire.trace FILE...\n")
        return 2
    for name in arguments:
        for line in lines(Path(name).read_bytes()):
            sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
