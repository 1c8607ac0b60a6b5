"""The gateway of tls: as a process: its rights, its memory, how it ends and is replaced."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import pki
from helpers.command import run_rgpu_plain
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until

from transport.tls_clients import HOLD, MTLS, opens, port, start


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(tls=pki.config(more=MTLS), device="emulated:256MiB") as running:
        yield running


def gateway(server: Server) -> int:
    (pid,) = server.children("rgpu-gateway")
    return pid


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def memory_of(pid: int) -> int:
    """In kB."""
    return int(status_of(pid)["VmRSS"].split()[0])


@needs("root")  # who may look into a gateway
def test_the_gateway_has_no_privileges(server: Server) -> None:
    facts = status_of(gateway(server))
    assert (facts["Seccomp"], facts["NoNewPrivs"]) == ("2", "1")
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
    limits = Path(f"/proc/{gateway(server)}/limits").read_text()
    assert "Max core file size        0                    0" in limits
    fds = [os.readlink(path) for path in Path(f"/proc/{gateway(server)}/fd").iterdir()]
    assert not [name for name in fds if "rgpu-lease" in name or name.endswith((".pem", ".key"))]


def test_a_slow_reader_is_waited_for_in_bounded_memory(server: Server) -> None:
    program = """
    import ctypes, select, sys
    cuda.open()
    size = 48 << 20
    address = cuda.alloc(size)
    to = ctypes.create_string_buffer(size)
    print("here", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        cuda("cuMemcpyDtoH_v2", to, ctypes.c_uint64(address), ctypes.c_size_t(size))
    print("ok", flush=True)
    """
    reader = start(server, program, **pki.client("alice"))
    assert reader.stdout is not None
    assert reader.stdout.readline() == "here\n"
    try:
        _stop_reading(server, reader)
    finally:
        reader.send_signal(signal.SIGCONT)
        output, _ = reader.communicate("\n", timeout=60)
    assert output == "ok\n"


def _stop_reading(server: Server, reader: subprocess.Popen[str]) -> None:
    reader.send_signal(signal.SIGSTOP)
    first = memory_of(gateway(server))
    before = None
    deadline = time.monotonic() + 5
    # Nothing moves any more: what the worker has written meanwhile lies in the sockets.
    while time.monotonic() < deadline and before != (now := memory_of(gateway(server))):
        before = now
        assert opens(server.tls, pki.client("bob"))[0]
    assert before is not None
    assert before - first < 16 << 10


def test_a_gateway_that_dies_is_replaced() -> None:
    with Server(tls=pki.config(), device="emulated:256MiB") as server:
        first = gateway(server)
        holder = start(server, HOLD, **pki.client("alice"))
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        os.kill(first, signal.SIGKILL)
        # Its session goes on through the next one.
        assert holder.communicate("x\n", timeout=60) == ("x\n", "")
        wait_until(lambda: server.children("rgpu-gateway") not in ([], [first]))
        assert opens(server.tls, pki.client("alice"))[0]
        wait_until(lambda: any("another one is started" in line for line in server.log))


def test_sessions_outlive_the_server_with_their_gateway() -> None:
    with Server(tls=pki.config(), device="emulated:256MiB") as server:
        pid = gateway(server)
        holder = start(server, HOLD, **pki.client("alice"))
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port(server)))
        holder.stdin.write("still here\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "still here\n"
        holder.communicate()
        wait_until(lambda: not Path(f"/proc/{pid}/fd").exists())


def test_certificates_are_read_again(tmp_path: Path) -> None:
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_bytes((pki.folder() / f"elsewhere{name[6:]}").read_bytes())
    text = pki.config().replace(f"{pki.folder()}/server", f"{tmp_path}/server")
    with Server(tls=text) as server:
        assert server.process is not None
        assert not opens(server.tls, pki.client("alice"))[0]
        (tmp_path / "server.key").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("keeps its old certificates" in line for line in server.log))
        for name in ("server.pem", "server.key"):
            (tmp_path / name).write_bytes((pki.folder() / name).read_bytes())
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("read its certificates again" in line for line in server.log))
        assert opens(server.tls, pki.client("alice"))[0]


def test_a_rotated_secret_is_taken_without_a_signal(tmp_path: Path) -> None:
    mounted = pki.Mounted(tmp_path, "elsewhere")
    with Server(*mounted.options(), tls="") as server:
        holder = start(server, HOLD, RGPU_TLS_NAME="gpu.example")
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        mounted.put("server")
        wait_until(lambda: any("read its certificates again" in line for line in server.log))
        assert opens(server.tls, pki.client())[0]
        found, text = opens(server.tls, {**pki.client(), "RGPU_TLS_NAME": "gpu.example"})
        assert not found
        assert "is not for 'gpu.example' (RGPU_TLS_NAME)" in text
        # The session from before goes on.
        holder.stdin.write("still here\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "still here\n"
        holder.communicate()
        assert not [line for line in server.log if "keeps its old certificates" in line]


def test_the_log_says_that_the_certificate_has_ended(tmp_path: Path) -> None:
    mounted = pki.Mounted(tmp_path, "expired-server")
    with Server(*mounted.options(), tls="") as server:
        says = f"the certificate {mounted.certificate} has ended, and clients refuse it"
        wait_until(lambda: any(says in line for line in server.log))
        (line,) = (line for line in server.log if says in line)
        assert "put a new one and its key into the files, which are read again" in line
        found, text = opens(server.tls, pki.client())
        assert not found
        assert "has expired: its operator has to renew it" in text
        mounted.put("server")
        wait_until(lambda: any("read its certificates again" in line for line in server.log))
        assert opens(server.tls, pki.client())[0]


def test_a_server_without_its_certificate_says_what_to_do(tmp_path: Path) -> None:
    mounted = pki.Mounted(tmp_path, "server")
    mounted.key.unlink()
    words = ("serve", "--device", "emulated:256MiB", "--listen", "tls:127.0.0.1:0")
    done = run_rgpu_plain(*words, *mounted.options())
    assert done.returncode != 0
    assert "no such file or directory" in done.stderr.lower()
    assert (
        "`rgpu tls init` makes both, on Kubernetes deploy/kubernetes/make-secrets.sh" in done.stderr
    )
