"""A session that ends before its program has attached the control lane: the program learns why."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_client.control import ControlClient
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import session_pb2
from rgpu_common.wire.hello import decode_hello
from rgpu_common.wire.messages import Notice, encode_message
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.welcome import encode_welcome
from shim.fake_memory import OUTSIDE, Memory
from shim.fake_server import FakeServer, take_frame

SECONDS = 60
OPEN = session_pb2.SESSION_STATE_OPEN
SOURCE = """
from ctypes import byref, c_void_p
context = c_void_p()
print(cuda.result("cuInit", 0))
cuda.result("cuDevicePrimaryCtxRetain", byref(context), 0)
cuda.result("cuCtxSetCurrent", context)
cuda.result("cuCtxSynchronize")
print(cuda.result("cuDevicePrimaryCtxRetain", byref(context), 0))
"""


@contextmanager
def answers_late(server: Server, transport: str, folder: Path) -> Iterator[str]:
    """An address whose first connection passes the server's bytes on only when the server has ended
    that connection. Later connections pass them on at once.
    """
    stopped = threading.Event()
    if transport == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "late"))
        listener.listen()
        address, target = f"unix:{folder}/late", server.unix.removeprefix("unix:")
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        address, target = f"127.0.0.1:{listener.getsockname()[1]}", server.tcp
    threads: list[threading.Thread] = []

    def start(*arguments: object, work: object) -> None:
        threads.append(threading.Thread(target=work, args=arguments))  # type: ignore[arg-type]
        threads[-1].start()

    def connect() -> socket.socket:
        if transport == "tcp":
            host, _, port = target.rpartition(":")
            return socket.create_connection((host, int(port)), SECONDS)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(SECONDS)
        connection.connect(target)
        return connection

    def accept() -> None:
        late = True
        while not stopped.is_set():
            client, _ = listener.accept()
            if stopped.is_set():
                client.close()
            else:
                start(client, connect(), late, work=serve)
            late = False

    def serve(client: socket.socket, beyond: socket.socket, late: bool) -> None:
        with client, beyond:
            forth = threading.Thread(target=_pass, args=(client, beyond, False))
            forth.start()
            _pass(beyond, client, late)
            forth.join(SECONDS)

    start(work=accept)
    try:
        yield address
    finally:
        stopped.set()
        with socket.socket(listener.family) as last:
            last.connect(listener.getsockname())
        for thread in threads:
            thread.join(SECONDS)
        listener.close()


def _pass(source: socket.socket, to: socket.socket, late: bool) -> None:
    """Passes bytes on until the end; late: all of them at the end."""
    kept = b""
    with suppress(OSError):  # the other end has closed it
        while data := source.recv(1 << 16):
            if late:
                kept += data
            else:
                to.sendall(data)
        to.sendall(kept)
    for one in (source, to):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:256MiB") as running:
        yield running


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize("how", ["revoked", "killed"])
def test_the_reason_arrives(server: Server, transport: str, how: str, tmp_path: Path) -> None:
    key = f"{how}-{transport}"
    with (
        answers_late(server, transport, tmp_path) as address,
        ControlClient(parse_endpoint(server.unix)) as control,
    ):
        client = clients.start(address, SOURCE, RGPU_LEASE=key)
        wait_until(lambda: [s.state for s in control.sessions()] == [OPEN])
        (session,) = control.sessions()
        if how == "revoked":
            control.revoke(session.lease_id)
            result, sentence = 46, f"lease '{key}' of tenant 'default' was revoked (server "
        else:
            os.kill(session.worker_pid, signal.SIGKILL)
            result, sentence = 911, "the server's log says why: the worker was ended by SIGKILL"
        output, errors = client.communicate(timeout=SECONDS)
        assert output == f"0\n{result}\n", errors
        assert sentence in errors
        assert errors.count("rgpu: ") == 1
        wait_until(lambda: not control.sessions())


def test_a_server_that_ends_itself_says_so() -> None:
    """It accepts no second connection any more."""
    sentence = "the server is stopped"

    class Ending(FakeServer):
        def _serve(self) -> None:
            lane, _ = self._listener.accept()
            self._listener.close()
            with lane:
                hello = decode_hello(take_frame(lane).head)
                values = {"context": 0, "sentence": sentence}
                last = encode_message(Notice.STICKY, values, status=46)
                lane.sendall(encode_welcome(self._welcome(hello)) + last)

        def __exit__(self, *_: object) -> None:
            self._thread.join(SECONDS)
            assert not self._thread.is_alive()

    with Ending(Memory(OUTSIDE)) as ending:
        address = ending.address
        code, output, errors = clients.run(address, SOURCE)
    assert (code, output) == (0, "0\n46\n"), errors
    assert sentence in errors
    assert errors.count("rgpu: ") == 1


def test_the_reason_arrives_although_the_worker_died_with_the_attach() -> None:
    """The server has passed it on and closed its own copy of the connection."""
    sentence = "the worker was ended by SIGKILL"

    class Losing(FakeServer):
        def _serve(self) -> None:
            lane, _ = self._listener.accept()
            with lane:
                hello = decode_hello(take_frame(lane).head)
                lane.sendall(encode_welcome(self._welcome(hello)))
                control, _ = self._listener.accept()
                with control:
                    lost = take_frame(control)
            with suppress(OSError):  # nobody comes again
                again, _ = self._listener.accept()
                with again:
                    assert take_frame(again) == lost
                    again.sendall(encode_refused(46, sentence))
                    again.recv(1)

    with Losing(Memory(OUTSIDE)) as losing:
        code, output, errors = clients.run(losing.address, SOURCE)
    assert (code, output) == (0, "0\n911\n"), errors
    assert sentence in errors
    assert errors.count("rgpu: ") == 1
