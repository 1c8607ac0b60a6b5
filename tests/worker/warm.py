"""A warm worker without a daemon, the page of its lease, and a session in it."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from rgpu_common.wire.hello import put_hello
from rgpu_common.wire.worker import (
    MAX_MESSAGE_BYTES,
    Assign,
    AssignFds,
    Attach,
    FromWorker,
    decode_from_worker,
    encode_assign,
    encode_attach,
)
from worker.client import (
    SECONDS,
    Client,
    Connection,
    Gone,
    hello,
    part,
    worker_command,
)

LIMIT = 64 << 20


class LeasePage:
    """A page as the daemon makes it; the layout is page.h's, written by its own C functions."""

    def __init__(self, limit: int) -> None:
        self.native = ctypes.CDLL(str(part("rgpu_common/lib/librgpu_native.so")))
        self.native.rgpu_lease_used.restype = ctypes.c_uint64
        self.native.rgpu_lease_charged.restype = ctypes.c_uint64
        self.native.rgpu_lease_map.restype = ctypes.c_void_p
        self.fds = [os.memfd_create("grants"), os.memfd_create("usage")]
        self.signal_fd = os.eventfd(0)
        grants = self.native.rgpu_lease_grant_bytes()
        os.ftruncate(self.fds[0], grants)
        os.ftruncate(self.fds[1], self.native.rgpu_lease_page_bytes() - grants)
        self.address = ctypes.c_void_p(self.native.rgpu_lease_map(*self.fds, 1))
        self.native.rgpu_lease_page_init(self.address, ctypes.c_uint64(limit))

    def used(self) -> int:
        return int(self.native.rgpu_lease_used(self.address))

    def charged(self) -> int:
        return int(self.native.rgpu_lease_charged(self.address))

    def refused(self, slot: int) -> int:
        return self._counter(slot, 6)

    def peak(self, slot: int) -> int:
        return self._counter(slot, 2)

    def _counter(self, slot: int, number: int) -> int:
        words = (ctypes.c_uint64 * 9)()
        assert self.native.rgpu_lease_read_slot(self.address, slot, words)
        return words[number]

    def set_limit(self, limit: int) -> None:
        self.native.rgpu_lease_set_limit(self.address, ctypes.c_uint64(limit))


class Pooled:
    """A warm worker on its control socket."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.process = process
        self.control = control
        self.clients: list[Client] = []
        control.settimeout(SECONDS)

    def hear(self) -> FromWorker:
        data = self.control.recv(MAX_MESSAGE_BYTES)
        if not data:
            raise Gone
        return decode_from_worker(data)

    def assign(
        self,
        page: LeasePage,
        slot: int = 0,
        head: bytes | None = None,
        attach: bool = True,
        compiler: int = -1,
    ) -> Client:
        """Gives it a session; the client's side of it."""
        ours, theirs = socket.socketpair()
        mine, control = socket.socketpair()
        message = encode_assign(
            Assign(
                session=77,
                secret=b"s" * 32,
                slot=slot,
                memory_limit_bytes=LIMIT,
                stream_credits=256,
                stream_credit_bytes=8 << 20,
                tenant="tenant",
                environment=(f"RGPU_EMU_MEMORY={1 << 30}",),
                hello=put_hello(hello()) if head is None else head,
            )
        )
        passed = AssignFds(theirs.fileno(), *page.fds, page.signal_fd, compiler)
        socket.send_fds(self.control, [message], [fd for fd in passed if fd >= 0])
        if attach:
            socket.send_fds(self.control, [encode_attach(Attach())], [control.fileno()])
        theirs.close()
        control.close()
        self.clients.append(Client(ours, Connection(mine), self.process))
        return self.clients[-1]

    def close(self) -> None:
        """Everything of it, by force. How the worker ended before is judged after the test."""
        self.control.close()
        for client in self.clients:
            client.socket.close()
            client.control.socket.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def pooled(*options: str, **environment: str) -> Iterator[Pooled]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [*worker_command(), "--control-fd", str(theirs.fileno()), *options],
        pass_fds=(theirs.fileno(),),
        env=environment,
        cwd="/",
        start_new_session=True,
    )
    theirs.close()
    warm = Pooled(process, ours)
    try:
        yield warm
    finally:
        warm.close()


def open_session(warm: Pooled, page: LeasePage, slot: int = 0, compiler: int = -1) -> Client:
    client = warm.assign(page, slot, compiler=compiler)
    frame = client.frame()
    assert frame.header.opcode == 2
    assert client.control.frame().header.opcode == 5
    client.call("rgpuPrimaryRetain", ctx=10, device=0, flags=0)
    client.context = 10
    return client
