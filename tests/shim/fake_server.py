"""A server whose answers the test writes: it answers HELLO itself, and passes every command to the
test.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from typing_extensions import Self

from rgpu_common.wire.attach import encode_attached
from rgpu_common.wire.codec import Value, decode_command, encode_reply
from rgpu_common.wire.fields import NO_BAND, Band
from rgpu_common.wire.frame import HEADER_BYTES, Frame, Kind, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, decode_hello
from rgpu_common.wire.welcome import Attribute, DeviceInfo, Welcome, encode_welcome

# Answers to one command: frames, and what to wait for in between.
Answer = bytes | threading.Event
Script = Callable[[str, dict[str, Value], Frame], "Iterator[Answer] | None"]
DEVICE = DeviceInfo(
    name="fake",
    total_bytes=1 << 30,
    pci_bus_id="0000:01:00.0",
    attributes=(Attribute(1, 1024), Attribute(41, 1), Attribute(75, 8), Attribute(115, 1)),
    default_pool=1 << 63,
)


@dataclass
class FakeServer:
    """Serves one client on a loopback port.  `script` yields the frames that follow a command.

    control: the second connection of the client, which only scripts read.
    """

    script: Script
    control: socket.socket = field(init=False)
    credits: int = 64
    with_band: bool = True
    missing: tuple[int, ...] = ()
    band: Band = NO_BAND
    received: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert not self.errors, self.errors

    def _serve(self) -> None:
        try:
            lane, _ = self._listener.accept()
            with lane:
                hello = decode_hello(take_frame(lane).head)
                lane.sendall(encode_welcome(self._welcome(hello)))
                self.control, _ = self._listener.accept()
                with self.control:
                    assert take_frame(self.control).header.opcode == Handshake.ATTACH
                    self.control.sendall(encode_attached())
                    self._run(lane)
        except OSError:
            pass  # the client is gone
        except BaseException as error:
            self.errors.append(error)

    def _welcome(self, hello: Hello) -> Welcome:
        if self.with_band:
            self.band = hello.device_bands[0]
        return Welcome(
            session=1,
            release="test",
            band=self.band,
            pinned=hello.pinned_bands[0],
            stream_credits=self.credits,
            stream_credit_bytes=64 << 20,
            driver_version=12040,
            missing=self.missing,
            devices=(DEVICE,),
        )

    def _run(self, lane: socket.socket) -> None:
        while True:
            try:
                frame = take_frame(lane)
            except EOFError:
                return
            assert frame.header.kind is Kind.COMMAND
            name, values = decode_command(frame)
            self.received.append(name)
            for answer in self.script(name, values, frame) or ():
                if isinstance(answer, threading.Event):
                    assert answer.wait(60)
                else:
                    lane.sendall(answer)


def reply(frame: Frame, name: str, status: int = 0, watermark: int = 0, **values: Value) -> bytes:
    """The reply to a command."""
    return encode_reply(
        name,
        values,
        seq=frame.header.seq,
        status=status,
        thread=frame.header.thread,
        watermark=watermark,
    )


def take_frame(lane: socket.socket) -> Frame:
    """Receives one frame; EOFError at the end."""
    header = parse_header(_bytes(lane, HEADER_BYTES))
    head = _bytes(lane, header.head_bytes)
    return Frame(header, head, _bytes(lane, header.bulk_bytes))


def _bytes(lane: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        got = lane.recv(count - len(data))
        if not got:
            raise EOFError
        data += got
    return bytes(data)
