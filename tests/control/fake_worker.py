"""A worker without a device: speaks the control protocol and the handshake, executes nothing.

It stands in for rgpu-worker where a test needs a worker that misbehaves at a stated point
(`--mode`):

ok        serves until the command connection closes
crash     ends before READY
weak      is ready without a list of system calls
mute      never says READY
refuse    refuses its session
die       ends after ASSIGN without an answer
deaf      ignores END
eager     says READY again once its session is open
garbage   sends a message that the control protocol does not have
chatty    prints 200 KiB, then as ok
"""

from __future__ import annotations

import argparse
import mmap
import os
import socket
import struct
import sys
import threading

from rgpu_common.wire.attach import encode_attached
from rgpu_common.wire.fields import Band
from rgpu_common.wire.hello import decode_hello
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.scalars import Reader, Writer
from rgpu_common.wire.welcome import Welcome, encode_welcome

ASSIGN, ATTACH, END, READY, OPENED, REFUSED, ENDED = 1, 2, 3, 16, 17, 18, 19
# Where slot 0 begins in a lease page, and its words: session, used, peak, launches, copies, busy,
# refused.
SLOTS_OFFSET = 1024
SLOT_BYTES = 128


def message(kind: int, *fields: tuple[str, int] | str) -> bytes:
    w = Writer()
    w.put("u32", kind)
    for field in fields:
        if isinstance(field, str):
            w.put_text(field)
        else:
            w.put(*field)
    return w.take()


class FakeWorker:
    def __init__(self, control: socket.socket, mode: str) -> None:
        self.control = control
        self.mode = mode
        self.command: socket.socket | None = None
        self.lanes: list[socket.socket] = []

    def run(self) -> int:
        if self.mode == "crash":
            print("fake worker: cannot start", flush=True)
            return 3
        if self.mode == "chatty":
            sys.stdout.write("a line of forty characters, more or less.\n" * 5000)
            sys.stdout.flush()
        if self.mode == "garbage":
            self.control.send(struct.pack("<I", 99))
        elif self.mode != "mute":
            weak = "system-calls: ENOSYS from seccomp" if self.mode == "weak" else ""
            self.control.send(message(READY, weak))
        while True:
            data, fds, _, _ = socket.recv_fds(self.control, 1 << 18, 5)
            if not data:
                return 0
            kind = struct.unpack_from("<I", data)[0]
            if kind == ASSIGN:
                if self.mode == "die":
                    return 4
                if not self.open(Reader(data[4:]), fds):
                    return 0
                self.wait_in_background()
            elif kind == ATTACH:
                lane = socket.socket(fileno=fds[0])
                lane.setblocking(True)
                lane.sendall(encode_attached())
                self.lanes.append(lane)
            elif kind == END and self.mode != "deaf":
                self.control.send(message(ENDED, "told to end"))
                return 0

    def open(self, r: Reader, fds: list[int]) -> bool:
        session, secret, slot = r.integer("u64"), r.sized(), r.integer("u32")
        memory, stream_credits = r.integer("u64"), r.integer("u32")
        credit_bytes, _device = r.integer("u64"), r.integer("i32")
        _tenant, environment = r.text(256), r.sized()
        hello = decode_hello(r.sized())
        _resume_grace_ms, _compression = r.integer("u32"), r.integer("u8")
        r.end()
        self.command = socket.socket(fileno=fds[0])
        self.command.setblocking(True)
        if self.mode == "refuse":
            self.command.sendall(encode_refused(46, "the fake worker refuses"))
            self.control.send(message(REFUSED, ("i32", 46), "the fake worker refuses"))
            return False
        page = mmap.mmap(fds[2], 8192)
        at = SLOTS_OFFSET + SLOT_BYTES * slot + 8
        struct.pack_into("=6Q", page, at, 1000, 2000, 3, 4, 5, 6)
        welcome = Welcome(
            session=session,
            secret=secret,
            release=hello.release,
            band=Band(0x200000000000, 1 << 30),
            stream_credits=stream_credits,
            stream_credit_bytes=credit_bytes,
            memory_limit_bytes=memory,
            note=environment.replace(b"\0", b" ").decode(),
        )
        self.command.sendall(encode_welcome(welcome))
        opened = message(OPENED, ("u64", 0x200000000000), ("u64", 1 << 30), ("u8", 0))
        self.control.send(opened)
        if self.mode == "eager":
            self.control.send(opened)
            self.control.send(message(READY, "a report of its own"))
        return True

    def wait_in_background(self) -> None:
        """When the client's command lane closes, the worker ends."""
        lane = self.command
        assert lane is not None

        def wait() -> None:
            while lane.recv(4096):
                pass
            os._exit(0)

        threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--library")
    parser.add_argument("--no-sandbox", action="store_true")
    arguments = parser.parse_args()
    return FakeWorker(socket.socket(fileno=arguments.control_fd), arguments.mode).run()


if __name__ == "__main__":
    sys.exit(main())
