"""Errors from outside the program: each case ends with the matching CUDA error and one sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

INIT = """
result = cuda.result("cuInit", 0)
print(result)
"""


def sentence_of(errors: str) -> str:
    """Returns the one line on stderr that rgpu wrote."""
    lines = [line for line in errors.splitlines() if line.startswith("rgpu")]
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    return lines[0]


def test_no_server_configured() -> None:
    code, output, errors = clients.run(None, INIT)
    assert (code, output) == (0, "100\n")
    assert "RGPU_SERVER" in sentence_of(errors)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        code, output, errors = clients.run(f"127.0.0.1:{port}", INIT)
    assert (code, output) == (0, "46\n")
    assert str(port) in sentence_of(errors)


def test_something_else_listens() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        client = clients.start(f"127.0.0.1:{other.getsockname()[1]}", INIT)
        connection, _ = other.accept()
        with connection:
            connection.recv(1)
            connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" * 4)
            output, errors = client.communicate(timeout=60)
    assert output == "46\n"
    sentence_of(errors)


@pytest.mark.parametrize(
    ("settings", "result", "says"),
    [
        ({"RGPU_MEMORY": "64GiB"}, 46, "64"),
        ({"RGPU_DEVICE": "7"}, 46, "7"),
        ({"RGPU_MEMORY": "many"}, 1, "RGPU_MEMORY"),
        ({"RGPU_SHARE": "1.5"}, 1, "RGPU_SHARE"),
    ],
)
def test_a_lease_that_cannot_be_granted(
    server: Server, settings: dict[str, str], result: int, says: str
) -> None:
    code, output, errors = clients.run(server.tcp, INIT, **settings)
    assert (code, output) == (0, f"{result}\n")
    assert says in sentence_of(errors)


@pytest.mark.parametrize("transport", ["unix", "shm", "tcp", "grpc"])
def test_the_worker_is_killed(server: Server, transport: str) -> None:
    client = clients.start(
        server.address(transport),
        """
        cuda.open()
        print("open")
        wait_for_line()
        print(cuda.result("cuCtxSynchronize"), cuda.result("cuMemGetInfo_v2", None, None))
        try:
            cuda.alloc(4096)
        except CudaError as error:
            print(error.result)
        """,
    )
    assert client.stdout is not None
    assert client.stdin is not None
    assert client.stdout.readline() == "open\n"
    for worker in server.children():
        # A worker of an earlier test may end now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    client.stdin.write("go on\n")
    output, errors = client.communicate(timeout=60)
    assert output.splitlines()[-1] == "911", output + errors
    sentence_of(errors)
    code, output, errors = clients.run(server.address(transport), INIT)
    assert (code, output) == (0, "0\n"), errors


def test_a_daemon_restart_does_not_end_a_session() -> None:
    server = Server()
    with server:
        client = clients.start(
            server.tcp,
            """
            cuda.open()
            address = cuda.alloc(4096)
            print("open")
            wait_for_line()
            cuda.upload(address, bytes(range(256)) * 16)
            assert cuda.download(address, 4096) == bytes(range(256)) * 16
            print("still there")
            """,
        )
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stdout.readline() == "open\n"
        workers = server.children()
    output, errors = client.communicate("go on\n", timeout=60)
    assert output == "still there\n", errors
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_a_sass_only_image(server: Server) -> None:
    code, output, errors = clients.run(
        server.tcp,
        r"""
        import struct
        header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7), 2,
                             190, 1, 0, 0, 64, 0x00500550, 64, 0, 0, 64, 2, 1)
        sections = bytes(64) + struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 192, 16, 0, 0, 1, 0)
        cuda.open()
        try:
            cuda.load(header + sections + bytes(16))
        except CudaError as error:
            print(error.result)
        """,
    )
    assert (code, output) == (0, "209\n"), errors
    assert "RGPU_HIDE_NVJITLINK=1" in errors


def test_handles_and_addresses_that_were_never_made(server: Server, transport: str) -> None:
    code, output, errors = clients.run(
        server.address(transport),
        """
        import ctypes
        cuda.open()
        made_up = ctypes.c_void_p(0x123456789abc)
        print(
            cuda.result("cuStreamSynchronize", made_up) in (400, 709),
            cuda.result("cuEventRecord", made_up, None) in (1, 400),
            cuda.result("cuMemFree_v2", ctypes.c_uint64(0xdeadbeef)) == 1,
            cuda.result("cuLaunchKernel", made_up, *[1] * 6, 0, None, None, None) in (1, 400),
            cuda.result("cuModuleUnload", made_up) in (1, 400, 201),
            cuda.result("cuMemcpyHtoD_v2", ctypes.c_uint64(0x1000), b"x", ctypes.c_size_t(1)) == 1,
        )
        print(cuda.memory()[0] > 0)
        """,
    )
    assert (code, output.split()) == (0, ["True"] * 7), output + errors


def test_a_wild_kernel_hurts_nobody_else(server: Server) -> None:
    wild = """
    PTX = (b".version 7.0\\n.target sm_50\\n.address_size 64\\n"
           b".visible .entry wild(.param .u64 p) { .reg .b64 %rd<2>; .reg .b32 %r<2>;"
           b" ld.param.u64 %rd1, [p]; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1; ret; }")
    cuda.open()
    wild = cuda.function(cuda.load(PTX), "wild")
    print("ready")
    wait_for_line()
    cuda.launch(wild, 1, 1, 0x10)
    print(cuda.result("cuCtxSynchronize"), cuda.result("cuCtxSynchronize"))
    """
    bystander = clients.start(
        server.tcp,
        """
        cuda.open()
        address = cuda.alloc(4096)
        cuda.upload(address, b"x" * 4096)
        print("ready")
        wait_for_line()
        assert cuda.download(address, 4096) == b"x" * 4096
        cuda.synchronize()
        print("untouched")
        """,
    )
    assert bystander.stdout is not None
    assert bystander.stdout.readline() == "ready\n"
    code, output, errors = clients.run(server.tcp, wild)
    assert (code, output.split()) == (0, ["ready", "700", "700"]), errors
    output, errors = bystander.communicate("go on\n", timeout=60)
    assert output == "untouched\n", errors
    assert server.process is not None
    assert server.process.poll() is None
