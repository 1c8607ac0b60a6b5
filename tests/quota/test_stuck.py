"""Tenants that hold the device and do not give it back: the others go on, and they do not."""

from __future__ import annotations

import os
import signal

from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

from quota.tenant import ENDLESS, MS, Tenant, tenants
from rgpu_client.control import ControlClient

MIB = 1 << 20
HALF = {"share_request_ppm": 500_000, "memory_bytes": 64 * MIB}
VICTIM = {"lease_key": "v", **HALF}
CULPRIT = {"lease_key": "a", **HALF}
LAUNCH_TIMEOUT = 702


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
    """Its kernels are on the device now, and more wait."""
    for _ in range(400):
        culprit.hold(2 * MS)


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
            output, errors = client.communicate(timeout=30)
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
    """It runs while nobody else wants the device, and then as long as the operator allows."""
    with tenants(server, CULPRIT, VICTIM) as (culprit, victim):
        culprit.hold(0, function=ENDLESS)
        culprit.call("rgpuMemGetInfo")
        goes_on(victim)
        sentence = culprit.gone()
        assert sentence.startswith(f"{LAUNCH_TIMEOUT}: ")
        assert "a kernel ran for more than 1.5 s while others waited for the device" in sentence
        assert "quota.max_kernel_seconds" in sentence


def test_an_endless_kernel_in_the_own_lease_harms_the_own_lease(server: Server) -> None:
    """Another process of the lease gets the error too only if it has work on the device."""
    with tenants(server, CULPRIT, CULPRIT, VICTIM) as (culprit, sibling, victim):
        culprit.hold(0, function=ENDLESS)
        culprit.call("rgpuMemGetInfo")
        goes_on(victim)
        assert culprit.gone().startswith(f"{LAUNCH_TIMEOUT}: ")
        goes_on(sibling, 5)
