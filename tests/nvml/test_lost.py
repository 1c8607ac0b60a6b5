"""Servers that are not there, are silent, go away, or answer what no server answers."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers import clients
from helpers.needs import needs
from helpers.nvml_client import ASKS, run
from helpers.ports import free_port
from helpers.server import Server
from helpers.serving import serving

from rgpu_common.wire.frame import HEADER_BYTES, Kind, encode_frame
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.observe import Observed, ObservedProcess, Reading, encode_observed
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.status import CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_UNKNOWN

pytestmark = needs("nvidia-ml-py")
INIT = "print(tried('nvmlInit'))"
TIMEOUT, NOT_LOADED, LOST, MISMATCH, UNKNOWN = 10, 9, 15, 18, 999
GOOD = Observed(name="a device", uuid="GPU-1", memory_limit_bytes=1 << 30)


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """Listens, reads a question, sends `answer` and closes; None: says nothing. Yields its
    address.
    """

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        if answer is None:
            connection.recv(1)  # until the client has gone
        else:
            connection.sendall(answer)

    with serving(serve) as address:
        yield address


def test_without_a_server_there_is_no_driver() -> None:
    done = run(None, INIT)
    assert done.stdout == f"error {NOT_LOADED}\n"
    assert "RGPU_SERVER" in done.stderr


def test_a_server_that_is_not_there_is_no_driver() -> None:
    port = free_port()
    done = run(f"127.0.0.1:{port}", INIT)
    assert done.stdout == f"error {NOT_LOADED}\n"
    assert str(port) in done.stderr


def test_initialises_without_a_device_where_the_program_asks_so() -> None:
    source = "nvml.nvmlInitWithFlags(nvml.NVML_INIT_FLAG_NO_GPUS); print(tried('nvmlShutdown'))"
    port = free_port()
    done = run(f"127.0.0.1:{port}", source)
    assert done.stdout == "None\n", done.stderr


def test_a_wrong_setting_is_named() -> None:
    done = run("127.0.0.1:1", INIT, RGPU_MEMORY="much")
    assert done.stdout == f"error {UNKNOWN}\n"
    assert "RGPU_MEMORY" in done.stderr


def test_a_silent_server_costs_a_bounded_time() -> None:
    with answering(None) as address:
        done = run(address, INIT)
    assert done.stdout == f"error {TIMEOUT}\n"
    assert "does not answer" in done.stderr


def test_a_server_that_goes_away_loses_the_device() -> None:
    source = """
        nvml.nvmlInit()
        one = device()
        print(nvml.nvmlDeviceGetName(one), flush=True)
        sys.stdin.readline()
        print(tried("nvmlDeviceGetName", one), tried("nvmlDeviceGetUtilizationRates", one))
    """
    with Server() as server:
        process = subprocess.Popen(
            [sys.executable, "-c", ASKS + textwrap.dedent(source)],
            env=clients.environment(server.tcp), cwd="/", text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "rgpu emulated device\n"
    output, errors = process.communicate("\n", timeout=60)
    # What does not change is still known.
    assert output == f"rgpu emulated device error {LOST}\n", errors


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", LOST, id="another-protocol"),
        pytest.param(b"", LOST, id="nothing"),
        pytest.param(encode_observed(GOOD)[:-1], LOST, id="cut"),
        pytest.param(encode_observed(GOOD)[:HEADER_BYTES], LOST, id="header-alone"),
        pytest.param(b"\xff" * 4096, LOST, id="ones"),
        pytest.param(encode_frame(Kind.HANDSHAKE, Handshake.OBSERVED, b"\0" * 8), MISMATCH, id="short"),
        pytest.param(
            encode_frame(Kind.HANDSHAKE, Handshake.OBSERVED, encode_observed(GOOD)[HEADER_BYTES:] + b"\0"),
            MISMATCH, id="long",
        ),
        pytest.param(encode_frame(Kind.HANDSHAKE, Handshake.WELCOME, b""), MISMATCH, id="a-session"),
        pytest.param(encode_frame(Kind.HANDSHAKE, 99, b""), MISMATCH, id="unknown"),
        pytest.param(encode_refused(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "too old"), MISMATCH, id="major"),
        pytest.param(encode_refused(CUDA_ERROR_UNKNOWN, "what is that"), UNKNOWN, id="an-old-server"),
    ],
)  # fmt: skip
def test_no_answer_does_harm(answer: bytes, code: int) -> None:
    # At the first call a device that cannot be reached is no driver.
    first = NOT_LOADED if code == LOST else code
    with answering(answer) as address:
        done = run(address, INIT)
    assert (done.returncode, done.stdout) == (0, f"error {first}\n"), done.stderr


def test_odd_facts_are_given_as_they_are() -> None:
    """A hostile server may lie about the device, and does nothing worse."""
    odd = Observed(
        name="n" * 256, uuid="GPU-" + "u" * 252, pci_bus_id="%s%n:zz", driver="%n" * 100,
        compute_major=2**32 - 1, memory_limit_bytes=1, memory_used_bytes=2**64 - 1,
        share_ppm=2**32 - 1, cuda_version=-1,
        processes=tuple(ObservedProcess(2**32 - 1, 2**64 - 1, 2**64 - 1, "p" * 256) for _ in range(128)),
        readings=tuple(Reading(2**16 - 1, 2**64 - 1) for _ in range(256)),
    )  # fmt: skip
    source = """
        nvml.nvmlInit()
        one = device()
        print(len(processes(one)), nvml.nvmlDeviceGetUtilizationRates(one).gpu,
              nvml.nvmlDeviceGetMemoryInfo(one).free, tried("nvmlDeviceGetName", one),
              tried("nvmlDeviceGetUUID", one), tried("nvmlDeviceGetPciInfo", one),
              tried("nvmlDeviceGetCudaComputeCapability", one), tried("nvmlDeviceGetPowerUsage", one),
              nvml.nvmlDeviceGetArchitecture(one) == nvml.NVML_DEVICE_ARCH_UNKNOWN,
              tried("nvmlDeviceGetHandleByUUID", "GPU-" + "u" * 9), tried("nvmlSystemGetProcessName", 5))
    """
    with answering(encode_observed(odd)) as address:
        done = run(address, source)
    shown = "128 100 0 error 7 error 7 error 3 (-1, 0) error 3 True error 6 error 6\n"
    assert done.stdout == shown, done.stderr
