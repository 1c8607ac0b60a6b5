"""The figures of gateways, from their processes to the page."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess

import grpc
import pytest
from helpers import clients, pki
from helpers.agent import GRPC
from helpers.needs import needs, program
from helpers.server import Server
from helpers.waiting import wait_until

from observe import page
from rgpu_common.tunnel.chunk import OPEN
from rgpu_server.gateway.figures import REFUSALS, Figures

HOLD = """
cuda.open()
address = cuda.alloc(1 << 20)
cuda.upload(address, bytes(1 << 20))
print("ready", flush=True)
wait_for_line()
cuda.download(address, 1 << 20)
"""
# Soon, but a client of the tests comes in time where the processors are busy.
QUICK = "[sessions]\nhandshake_seconds = 3\n"


def test_what_a_process_counted_outlives_it() -> None:
    figures = Figures()
    figures.started()
    figures.heard("open=2 received=10 sent=20 late=1 too_many=3")
    assert (figures.up, figures.open, figures.received_bytes, figures.sent_bytes) == (
        True, 2, 10, 20,
    )  # fmt: skip
    figures.ended()
    assert (figures.up, figures.open, figures.received_bytes) == (False, 0, 10)
    figures.heard("open=1 received=5 late=1")
    assert (figures.received_bytes, figures.sent_bytes) == (15, 20)
    assert [figures.refused(reason) for reason in REFUSALS] == [2, 0, 0, 0, 3, 0]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "open",
        "received=-1 sent=1e9 late=\u0663",
        "received=99999999999999999999",
        "alice=1 up=0 restarts=7 __class__=1",
        "received==5 sent= late=1\n",
    ],
)
def test_what_makes_no_sense_is_passed_over(said: str) -> None:
    figures = Figures()
    figures.heard("received=7 sent=7")
    figures.heard(said)
    figures.heard("received=3")  # totals do not shrink
    assert (figures.received_bytes, figures.sent_bytes, figures.restarts) == (7, 7, 0)
    assert sum(figures.refused(reason) for reason in REFUSALS) == 0


def reads(server: Server, name: str, **labels: str) -> float:
    return page.value(page.text(server), f"rgpu_gateway_{name}", **labels)


def holds(address: str, **variables: str) -> subprocess.Popen[str]:
    process = clients.start(address, HOLD, **variables)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def carries(server: Server, transport: str, address: str, **variables: str) -> None:
    """A session's connections and bytes are on the page while it runs, and its bytes afterwards."""
    label = {"transport": transport}
    assert reads(server, "up", **label) == 1
    process = holds(address, **variables)
    wait_until(lambda: reads(server, "connections", **label) >= 2)
    wait_until(lambda: reads(server, "received_bytes_total", **label) > 1 << 20)
    process.communicate("\n")
    wait_until(lambda: reads(server, "connections", **label) == 0)
    wait_until(lambda: 1 << 20 < reads(server, "sent_bytes_total", **label) < 2 << 20)
    assert reads(server, "received_bytes_total", **label) < 2 << 20


def is_replaced(server: Server, transport: str, pid: int) -> None:
    """Kills a gateway; asserts that its restart is counted, and that its counters do not
    go back.
    """
    label = {"transport": transport}
    before = reads(server, "received_bytes_total", **label)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: reads(server, "restarts_total", **label) == 1)
    wait_until(lambda: reads(server, "up", **label) == 1)
    assert reads(server, "received_bytes_total", **label) >= before


def stranger(address: str, context: ssl.SSLContext | None, first: bytes = b"") -> None:
    """Connects to a TLS port and stays until the server closes the connection."""
    host, _, port = address.removeprefix("tls:").rpartition(":")
    one = socket.create_connection((host, int(port)), 20)
    if context is not None:
        one = context.wrap_socket(one, server_hostname=host, do_handshake_on_connect=False)
    with one, contextlib.suppress(OSError):
        if isinstance(one, ssl.SSLSocket):
            one.do_handshake()
        one.sendall(first)
        while one.recv(4096):
            pass


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_tls() -> None:
    text = pki.config(more=QUICK)
    with Server("--metrics", "127.0.0.1:0", tls=text, device="emulated:256MiB") as server:
        carries(server, "tls", server.tls, **pki.client("alice"))

        def refused(reason: str) -> float:
            return reads(server, "refused_total", transport="tls", reason=reason)

        assert [refused(reason) for reason in REFUSALS] == [0] * len(REFUSALS)
        stranger(server.tls, None, b"GET / HTTP/1.1\r\n\r\n")
        wait_until(lambda: refused("not_tls") == 1)
        stranger(server.tls, None)
        stranger(server.tls, None, b"\x16\x03\x01\x01\x00")
        wait_until(lambda: refused("late") == 2)
        old = trusting()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        stranger(server.tls, old)
        wait_until(lambda: refused("handshake") == 1)
        strange = trusting()
        folder = pki.folder() / "stranger"
        strange.load_cert_chain(folder / "alice.pem", folder / "alice.key")
        stranger(server.tls, strange)
        wait_until(lambda: refused("certificate") == 1)
        # A client that connects and disconnects, like a health check, was not refused.
        host, _, port = server.tls.removeprefix("tls:").rpartition(":")
        socket.create_connection((host, int(port)), 20).close()
        (pid,) = server.children("rgpu-gateway")
        is_replaced(server, "tls", pid)
        assert [refused(reason) for reason in REFUSALS] == [2, 1, 1, 1, 0, 0]


def test_too_many_over_tls() -> None:
    text = pki.config(more="[sessions]\nhandshakes = 2\n")
    with (
        Server("--metrics", "127.0.0.1:0", tls=text, device="emulated:256MiB") as server,
        contextlib.ExitStack() as stack,
    ):
        host, _, port = server.tls.removeprefix("tls:").rpartition(":")
        for _ in range(5):
            stack.enter_context(socket.create_connection((host, int(port)), 20))
        labels = {"transport": "tls", "reason": "too_many"}
        wait_until(lambda: reads(server, "refused_total", **labels) == 3)


def test_tunnels() -> None:
    with Server("--metrics", "127.0.0.1:0", *GRPC, device="emulated:256MiB") as server:
        carries(server, "grpc", server.address("grpc"))
        labels = {"transport": "grpc", "reason": "handshake"}
        with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
            answers = channel.stream_stream(OPEN)(iter([b"\xff" * 40]), timeout=60)
            with pytest.raises(grpc.RpcError, match="not a Chunk of a tunnel"):
                next(answers)
        wait_until(lambda: reads(server, "refused_total", **labels) == 1)
        (pid,) = server.gateways()
        is_replaced(server, "grpc", pid)


def test_a_server_without_gateways_says_nothing_of_them() -> None:
    with Server("--metrics", "127.0.0.1:0") as server:
        assert "rgpu_gateway" not in page.text(server)


@needs("prometheus")
@pytest.mark.parametrize("transport", ["tls", "grpc"])
def test_the_metrics_of_a_gateway_keep_prometheus_rules(transport: str) -> None:
    tls = transport == "tls"
    words = () if tls else GRPC
    text = pki.config() if tls else None
    variables = pki.client("alice") if tls else {}
    with Server("--metrics", "127.0.0.1:0", *words, tls=text, device="emulated:256MiB") as server:
        carries(server, transport, server.address(transport), **variables)
        (pid,) = server.gateways()
        is_replaced(server, transport, pid)
        done = subprocess.run(
            [program("prometheus", "promtool"), "check", "metrics"],
            input=page.text(server), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
