"""A worker process and a client that speaks the wire to it frame by frame."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.ends import ended

from cudaspec.load import load
from rgpu_common.parts import compiled_part
from rgpu_common.wire.codec import Value, command_row, decode_reply, encode_command
from rgpu_common.wire.fields import Band
from rgpu_common.wire.frame import HEADER_BYTES, Frame, Kind, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, OpcodeHash, encode_hello
from rgpu_common.wire.messages import Control, Notice, decode_message, encode_message, piece_offset
from rgpu_common.wire.refused import Refused, decode_refused
from rgpu_common.wire.welcome import Welcome, decode_welcome

# For what must come; a machine that does many other things takes its time.
SECONDS = 60.0
BAND = Band(0x2000_0000_0000, 64 << 30)
LEGACY = 1
PER_THREAD = 2
# Exit codes of a worker: 1 says that it has refused its client, or could not go on.
RIGHT_ENDS = (0, 1)
DEVICE_BYTES = 1 << 30
# What workers of tests get, unless a test or the caller says something else. `python3` on the path
# may be one that has no rgpu.
OF_WORKERS = {
    "RGPU_EMU_MEMORY": str(DEVICE_BYTES),
    "RGPU_EMU_COMPILER": f"{sys.executable} -m rgpu_emu.compiler",
}


def part(name: str) -> Path:
    """A compiled part by its path in its package: the installed one, or RGPU_BUILD_DIR's."""
    build = os.environ.get("RGPU_BUILD_DIR")
    package, _, relative = name.partition("/")
    if build is None:
        return compiled_part(package, relative)
    (found,) = (p for p in Path(build).rglob(Path(name).name) if p.is_file())
    return found


def worker_command() -> list[str]:
    """Returns the worker's command without the options that give it a session."""
    library = part("rgpu_emu/lib/librgpu_emu.so")
    return [str(part("rgpu_server/bin/rgpu-worker")), "--library", str(library)]


def hello(**changes: object) -> Hello:
    """A HELLO of this release's commands."""
    opcodes = tuple(OpcodeHash(c.opcode, c.layout_hash) for c in load().commands.values())
    values: dict[str, object] = {
        "release": "test",
        "program": "tests",
        "pid": os.getpid(),
        "device_bands": (BAND,),
        "opcodes": opcodes,
    }
    return Hello(**{**values, **changes})  # type: ignore[arg-type]


class Gone(Exception):
    """The worker closed the connection."""


class Connection:
    """A socket that carries frames; every read has a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._deadline = 0.0

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            left = self._deadline - time.monotonic()
            assert left > 0, "the worker did not answer in time"
            if not select.select([self.socket], [], [], left)[0]:
                continue
            try:
                got = self.socket.recv(count - len(data))
            except ConnectionResetError:
                got = b""
            if not got:
                raise Gone
            data += got
        return bytes(data)

    def frame(self, seconds: float = SECONDS) -> Frame:
        """The next frame; Gone at the end of the stream."""
        self._deadline = time.monotonic() + seconds
        header = parse_header(self._read(HEADER_BYTES))
        head = self._read(header.head_bytes)
        return Frame(header, head, self._read(header.bulk_bytes))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)


@dataclass
class Answer:
    """A reply and what came with it."""

    status: int
    values: dict[str, Value]
    data: bytes = b""
    watermark: int = 0


class Client(Connection):
    """One session: sends commands, reads answers, and keeps notices."""

    def __init__(
        self, lane: socket.socket, control: Connection, process: subprocess.Popen[bytes]
    ) -> None:
        super().__init__(lane)
        self.control = control
        self.process = process
        self.context = 0
        self.seq = 0
        self.notices: list[tuple[Notice, dict[str, int | str], Frame]] = []
        self.deliveries: dict[int, bytearray] = {}
        self.delivered = 0
        self.data: dict[int, bytearray] = {}
        self.replies: dict[int, Answer] = {}

    # --- the handshake
    def open(self, message: Hello | None = None) -> Welcome | Refused:
        """Sends HELLO; returns the worker's answer."""
        self.send(encode_hello(message or hello()))
        frame = self.frame()
        assert frame.header.kind is Kind.HANDSHAKE
        if frame.header.opcode == Handshake.REFUSED:
            return decode_refused(frame.head)
        attached = self.control.frame()
        assert attached.header.opcode == Handshake.ATTACHED
        return decode_welcome(frame.head)

    def start(self) -> Welcome:
        """A session with a primary context, id 10."""
        welcome = self.open()
        assert isinstance(welcome, Welcome), welcome
        self.call("rgpuPrimaryRetain", ctx=10, device=0, flags=0)
        self.context = 10
        return welcome

    # --- commands
    def post(
        self,
        name: str,
        /,
        *,
        bulk: bytes = b"",
        thread: int = 1,
        context: int | None = None,
        **values: Value,
    ) -> int:
        """Sends a command without waiting; returns its number."""
        self.seq += 1
        ctx = self.context if context is None else context
        self.send(encode_command(name, values, seq=self.seq, thread=thread, context=ctx, bulk=bulk))
        return self.seq

    def wait(self, seq: int) -> Answer:
        """The reply to command `seq`."""
        while seq not in self.replies:
            self.take(self.frame())
        return self.replies.pop(seq)

    def result(self, name: str, /, **arguments: Value) -> Answer:
        """Sends a call and waits for its reply."""
        assert command_row(name).is_call
        return self.wait(self.post(name, **arguments))  # type: ignore[arg-type]

    def call(self, name: str, /, **arguments: Value) -> dict[str, Value]:
        """The values of a call that must succeed."""
        answer = self.result(name, **arguments)
        assert answer.status == 0, f"{name} gave {answer.status}"
        return answer.values

    # --- what comes in
    def take(self, frame: Frame) -> None:
        """Files one frame."""
        header = frame.header
        if header.kind is Kind.REPLY:
            _, values = decode_reply(frame)
            data = bytes(self.data.pop(header.seq, b""))
            assert header.watermark >= 0
            self.replies[header.seq] = Answer(header.status, values, data, header.watermark)
        elif header.kind is Kind.NOTICE:
            notice, fields = decode_message(frame)
            assert isinstance(notice, Notice)
            self.notices.append((notice, fields, frame))
        else:
            assert header.kind in (Kind.DATA, Kind.DELIVERY)
            place = self.data if header.kind is Kind.DATA else self.deliveries
            self.delivered += header.kind is Kind.DELIVERY
            whole = place.setdefault(header.seq, bytearray())
            offset = piece_offset(frame)
            whole.extend(bytes(max(0, offset + len(frame.bulk) - len(whole))))
            whole[offset : offset + len(frame.bulk)] = frame.bulk

    def notice(self, wanted: Notice) -> tuple[dict[str, int | str], Frame]:
        """The next notice of a kind, also one that has come already."""
        while True:
            for i, (notice, fields, frame) in enumerate(self.notices):
                if notice is wanted:
                    del self.notices[i]
                    return fields, frame
            self.take(self.frame())

    def sticky(self) -> str:
        """The sentence with which the worker ends a session."""
        fields, _ = self.notice(Notice.STICKY)
        return str(fields["sentence"])

    # --- helpers for device memory
    def alloc(self, count: int) -> int:
        return int(self.call("rgpuMemAlloc", bytes=count)["dptr"])

    def upload(self, dst: int, data: bytes, *, stream: int = LEGACY, synchronous: int = 1) -> None:
        for at in range(0, len(data), 1 << 20):
            piece = data[at : at + (1 << 20)]
            self.post(
                "rgpuCopyHtoD",
                dst=dst + at,
                pitch=0,
                width=len(piece),
                height=1,
                stream=stream,
                synchronous=synchronous,
                bulk=piece,
            )

    def download(self, src: int, count: int, *, stream: int = LEGACY) -> bytes:
        answer = self.result("rgpuCopyDtoH", src=src, pitch=0, width=count, height=1, stream=stream)
        assert answer.status == 0, f"rgpuCopyDtoH gave {answer.status}"
        return answer.data

    def wait_value(self, stream: int, address: int, value: int, thread: int = 1) -> None:
        """The stream waits until the u32 at `address` is `value`."""
        self.post(
            "rgpuStreamWaitValue",
            stream=stream,
            address=address,
            value=value,
            flags=1,
            width=4,
            thread=thread,
        )

    def write_value(self, stream: int, address: int, value: int, thread: int = 1) -> None:
        self.post(
            "rgpuStreamWriteValue",
            stream=stream,
            address=address,
            value=value,
            flags=0,
            width=4,
            thread=thread,
        )

    def ended(self) -> None:
        """The worker closes the connection and its process ends."""
        try:
            while True:
                self.take(self.frame())
        except Gone:
            pass
        ended(self.process, RIGHT_ENDS)

    def bye(self) -> None:
        self.control.send(encode_message(Control.BYE))


@contextmanager
def worker(*options: str, **environment: str) -> Iterator[Client]:
    """A worker process that waits for HELLO; killed at the end if it is still there."""
    ours, theirs = socket.socketpair()
    control, their_control = socket.socketpair()
    lanes = (theirs.fileno(), their_control.fileno())
    process = subprocess.Popen(
        [
            *worker_command(),
            "--serve-fd",
            str(lanes[0]),
            "--control-lane-fd",
            str(lanes[1]),
            *options,
        ],
        pass_fds=lanes,
        env={**OF_WORKERS, **os.environ, **environment},
    )
    theirs.close()
    their_control.close()
    client = Client(ours, Connection(control), process)
    try:
        yield client
    finally:
        ours.close()
        control.close()
        ended(process, RIGHT_ENDS)


@contextmanager
def session(*options: str, **environment: str) -> Iterator[Client]:
    """A worker with an open session and a context."""
    with worker(*options, **environment) as client:
        client.start()
        yield client
