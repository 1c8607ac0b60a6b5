"""A worker without a device: speaks the control protocol and the handshake, executes nothing.

It stands in for rgpu-worker where a test needs a worker that misbehaves at a stated point
(`--mode`):

ok        serves until the command connection closes
crash     ends before READY
weak      is ready without a list of system calls
folders   is ready, and says where the dynamic loader looks for libraries
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

from rgpu_common.wire import refused
from rgpu_common.wire.attach import encode_attached
from rgpu_common.wire.fields import Band
from rgpu_common.wire.hello import decode_hello
from rgpu_common.wire.welcome import Welcome, encode_welcome
from rgpu_common.wire.worker import (
    MAX_MESSAGE_BYTES,
    Assign,
    AssignFds,
    Attach,
    End,
    Ended,
    Opened,
    Ready,
    Refused,
    decode_from_daemon,
    encode_ended,
    encode_opened,
    encode_ready,
    encode_refused,
)

# Where slot 0 begins in a lease page, and its words: session, used, peak, launches, copies, busy,
# refused.
SLOTS_OFFSET = 1024
SLOT_BYTES = 128


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
            reports = {
                "weak": "system-calls: ENOSYS from seccomp",
                "folders": os.environ.get("LD_LIBRARY_PATH", ""),
            }
            self.control.send(encode_ready(Ready(reports.get(self.mode, ""))))
        while True:
            data, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE_BYTES, 5)
            if not data:
                return 0
            message = decode_from_daemon(data)
            if isinstance(message, Assign):
                if self.mode == "die":
                    # As the real one does; the daemon's copy of the lane blocks then too.
                    socket.socket(fileno=fds[0]).setblocking(True)
                    return 4
                if not self.open(message, AssignFds(*fds)):
                    return 0
                self.wait_in_background()
            elif isinstance(message, Attach):
                lane = socket.socket(fileno=fds[0])
                lane.setblocking(True)
                lane.sendall(encode_attached())
                self.lanes.append(lane)
            elif isinstance(message, End) and self.mode != "deaf":
                self.control.send(encode_ended(Ended("told to end")))
                return 0

    def open(self, assign: Assign, fds: AssignFds) -> bool:
        hello = decode_hello(assign.hello)
        self.command = socket.socket(fileno=fds.lane)
        self.command.setblocking(True)
        if self.mode == "refuse":
            sentence = "the fake worker refuses"
            self.command.sendall(refused.encode_refused(46, sentence))
            self.control.send(encode_refused(Refused(46, sentence)))
            return False
        page = mmap.mmap(fds.usage, 8192)
        at = SLOTS_OFFSET + SLOT_BYTES * assign.slot + 8
        struct.pack_into("=6Q", page, at, 1000, 2000, 3, 4, 5, 6)
        band = Band(0x200000000000, 1 << 30)
        welcome = Welcome(
            session=assign.session,
            secret=assign.secret,
            release=hello.release,
            band=band,
            stream_credits=assign.stream_credits,
            stream_credit_bytes=assign.stream_credit_bytes,
            memory_limit_bytes=assign.memory_limit_bytes,
            note="".join(f"{setting} " for setting in assign.environment),
        )
        self.command.sendall(encode_welcome(welcome))
        if self.mode == "die welcomed":
            os._exit(4)
        opened = encode_opened(Opened(band))
        self.control.send(opened)
        if self.mode == "eager":
            self.control.send(opened)
            self.control.send(encode_ready(Ready("a report of its own")))
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
