"""Tenants that hold the device and do not give it back: the others go on, and they do not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until
from worker.client import LEGACY

from quota.tenant import ENDLESS, MS, PTX, Tenant, tenants
from rgpu_client.control import ControlClient

MIB = 1 << 20
HALF = {"share_request_ppm": 500_000, "memory_bytes": 64 * MIB}
VICTIM = {"lease_key": "v", **HALF}
CULPRIT = {"lease_key": "a", **HALF}
LAUNCH_TIMEOUT = 702
SILENCE = 2.5  # seconds; longer than the loop waits for a worker that has the device


def worker_of(control: ControlClient, key: str) -> int:
    (pid,) = (s.worker_pid for s in control.sessions() if s.lease_key == key)
    return int(pid)


def goes_on(victim: Tenant, kernels: int = 50) -> None:
    """All its work is done, within the deadline of a reply."""
    before = len(victim.runs())
    for _ in range(kernels):
        victim.hold(2 * MS)
    assert len(victim.runs()) == before + kernels


def hold_the_token(culprit: Tenant) -> None:
    """Launches so many kernels that some are on the device and more wait."""
    for _ in range(400):
        culprit.hold(2 * MS)


@contextmanager
def compilers_stopped(server: Server) -> Iterator[None]:
    """Stops the compilers, as if their requests took very long."""
    stopped = server.called("rgpu_emu.compiler")
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def keeps_busy(victim: Tenant, *culprits: Tenant) -> None:
    """Asserts that the victim's work goes on for a time after which a holder that does not return
    the device is ended.
    """
    until = time.monotonic() + SILENCE
    while time.monotonic() < until:
        for culprit in culprits:
            culprit.hold(MS)
        goes_on(victim)


def test_a_client_that_is_killed_while_it_holds_the_token(server: Server) -> None:
    source = """
        from quota.tenant import PTX
        cuda.open()
        log = cuda.alloc(1 << 20)
        hold = cuda.function(cuda.load(PTX + b"\\0"), "hold")
        for _ in range(300):
            cuda.launch(hold, 1, 1, 2_000_000, log)
        print("holding", flush=True)
        while True:
            cuda.launch(hold, 1, 1, 2_000_000, log)
    """
    with tenants(server, VICTIM) as (victim,):
        for round_ in range(3):
            client = clients.start(
                server.tcp, source, RGPU_LEASE="a", RGPU_MEMORY="64MiB", RGPU_SHARE="0.5"
            )
            assert client.stdout is not None
            assert client.stdout.readline() == "holding\n", client.communicate()[1]
            for _ in range(20 * round_):
                victim.hold(2 * MS)
            client.kill()
            client.communicate()
            goes_on(victim)


def test_a_worker_that_is_killed_while_it_holds_the_token(
    server: Server, control: ControlClient
) -> None:
    with tenants(server, VICTIM) as (victim,):
        for round_ in range(3):
            with tenants(server, CULPRIT) as (culprit,):
                hold_the_token(culprit)
                for _ in range(20 * round_):
                    victim.hold(2 * MS)
                os.kill(worker_of(control, "a"), signal.SIGKILL)
                goes_on(victim)
                culprit.gone()
            wait_until(lambda: len(control.leases()) == 1)


def test_a_worker_that_is_stopped_while_it_holds_the_token(
    server: Server, control: ControlClient
) -> None:
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        hold_the_token(culprit)
        os.kill(worker_of(control, "a"), signal.SIGSTOP)
        goes_on(victim)
        culprit.gone()


def test_a_client_that_is_stopped_while_it_holds_the_token(server: Server) -> None:
    source = """
        import os, signal
        from quota.tenant import PTX
        cuda.open()
        log = cuda.alloc(1 << 20)
        hold = cuda.function(cuda.load(PTX + b"\\0"), "hold")
        for _ in range(300):
            cuda.launch(hold, 1, 1, 2_000_000, log)
        print("holding", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        cuda.synchronize()
        print(int.from_bytes(cuda.download(log, 4), "little"))
    """
    with tenants(server, VICTIM) as (victim,):
        client = clients.start(
            server.tcp, source, RGPU_LEASE="a", RGPU_MEMORY="64MiB", RGPU_SHARE="0.5"
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "holding\n"
        try:
            goes_on(victim, 100)
        finally:
            client.send_signal(signal.SIGCONT)
            output, errors = client.communicate(timeout=60)
        assert output == "300\n", errors


def test_one_that_never_reads(server: Server) -> None:
    """Deliveries and replies pile up in its worker, which must not keep the device for them."""
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        at = culprit.alloc(32 * MIB)
        streams = culprit.streams(4)
        for number in range(40):
            stream = streams[number % 4]
            culprit.post(
                "rgpuCopyDtoHLater", src=at, pitch=0, width=16 * MIB, height=1, stream=stream
            )
            culprit.hold(2 * MS, stream=stream)
        goes_on(victim)
        goes_on(victim)


def test_one_that_does_not_send_the_bytes_it_is_asked_for(server: Server) -> None:
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        at = culprit.alloc(MIB)
        culprit.post("rgpuCopyHtoDPull", dst=at, pitch=0, width=MIB, height=1, stream=1)
        for _ in range(20):
            culprit.hold(2 * MS)
        goes_on(victim)
        goes_on(victim)


def test_a_stream_that_waits_for_a_value_for_ever(server: Server) -> None:
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        at = culprit.alloc(4096)
        culprit.upload(at, bytes(8))
        for stream in culprit.streams(8):
            culprit.wait_value(stream, at, 1)
            for _ in range(20):
                culprit.hold(2 * MS, stream=stream)
        goes_on(victim)
        goes_on(victim)


def test_an_endless_kernel(server: Server) -> None:
    """The kernel runs while no other tenant wants the device, and then as long as the operator
    allows.
    """
    with tenants(server, CULPRIT, VICTIM) as (culprit, victim):
        culprit.hold(0, function=ENDLESS)
        culprit.call("rgpuMemGetInfo")
        goes_on(victim)
        sentence = culprit.gone()
        assert sentence.startswith(f"{LAUNCH_TIMEOUT}: ")
        assert "a kernel ran for more than 1.5 s while others waited for the device" in sentence
        assert "quota.max_kernel_seconds" in sentence


# One node: WHILE with a value that nothing sets to 0.  The body is a set of 4 bytes.
LOOP = """
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
context, graph, node, run, handle = c_void_p(), c_void_p(), c_void_p(), c_void_p(), c_uint64()
cuda("cuCtxGetCurrent", byref(context))
memory = cuda.alloc(4)
cuda("cuGraphCreate", byref(graph), 0)
cuda("cuGraphConditionalHandleCreate", byref(handle), graph, context, 1, 1)
params = (c_uint64 * 32)(13, 0, handle.value, 1 | 1 << 32, 0, context.value)
cuda("cuGraphAddNode_v2", byref(node), graph, None, None, c_size_t(0), byref(params))
body = c_void_p.from_address(params[4])
values = (c_uint64 * 5)(memory, 0, 7 | 4 << 32, 1, 1)
cuda("cuGraphAddMemsetNode", byref(node), body, None, c_size_t(0), byref(values), context)
cuda("cuGraphInstantiateWithFlags", byref(run), graph, c_uint64(0))
cuda("cuGraphLaunch", run, None)
print("loops", flush=True)
print(cuda.result("cuCtxSynchronize"))
"""


@pytest.mark.parametrize("transport", ["unix", "shm", "tcp"])
def test_an_endless_loop_of_a_graph(server: Server, transport: str) -> None:
    """It ends as an endless kernel does, although no kernel of it is endless."""
    with tenants(server, VICTIM) as (victim,):
        client = clients.start(
            server.address(transport),
            LOOP,
            RGPU_LEASE="a",
            RGPU_MEMORY="64MiB",
            RGPU_SHARE="0.5",
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "loops\n", client.communicate()
        goes_on(victim)
        output, errors = client.communicate(timeout=60)
        assert output == f"{LAUNCH_TIMEOUT}\n", errors
        assert "ran for more than 1.5 s while others waited for the device" in errors
        wait_until(lambda: any("ended: a kernel ran for" in line for line in server.log))


def test_an_endless_kernel_in_the_own_lease_harms_the_own_lease(server: Server) -> None:
    """Another process of the lease gets the error too only if it has work on the device."""
    with tenants(server, CULPRIT, CULPRIT, VICTIM) as (culprit, sibling, victim):
        culprit.hold(0, function=ENDLESS)
        culprit.call("rgpuMemGetInfo")
        goes_on(victim)
        assert culprit.gone().startswith(f"{LAUNCH_TIMEOUT}: ")
        goes_on(sibling, 5)


def test_a_kernel_that_takes_long_to_compile(server: Server) -> None:
    """The worker does not hold the device and is not ended, and its kernel runs in the end."""
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        goes_on(victim)  # its kernel is compiled
        with compilers_stopped(server):
            culprit.hold(MS)
            keeps_busy(victim)
        assert len(culprit.runs()) == 1


def test_a_kernel_that_takes_long_to_compile_for_one_who_was_alone(server: Server) -> None:
    """The device was its own when it launched, and is not when the kernel is compiled."""
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        goes_on(victim)
        image = PTX + b"\0"
        culprit.post("rgpuImagePut", image=49, offset=0, total=len(image), bulk=image)
        culprit.call(
            "rgpuModuleLoad", module=50, image=49, options=b"", info_log_bytes=0, error_log_bytes=0
        )
        culprit.call("rgpuModuleGetFunction", module=50, name=b"hold", function=51)
        culprit.hold(MS)
        culprit.synchronize()
        with compilers_stopped(server):
            culprit.hold(100 * MS)
            waiting = culprit.post("rgpuStreamSynchronize", thread=2, stream=LEGACY)
            culprit.hold(MS, function=51)
            assert culprit.wait(waiting).status == 0  # calls that wait already go on
            keeps_busy(victim)
        assert len(culprit.runs()) == 3


def test_kernels_that_are_launched_while_another_is_compiled(server: Server) -> None:
    with tenants(server, VICTIM, CULPRIT) as (victim, culprit):
        goes_on(victim)
        culprit.hold(MS)
        culprit.synchronize()
        with compilers_stopped(server):
            loading = culprit.post("rgpuFunctionLoad", thread=2, function=ENDLESS, load=1)
            keeps_busy(victim, culprit)
        assert culprit.wait(loading).status == 0
        assert len(culprit.runs()) > 1
