"""Leases as Python objects: `rgpu_client.claim()`, `devices()`, and what `connect()` returns."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from control.test_connect import python
from helpers.server import Server
from helpers.waiting import wait_until

import rgpu_client
from rgpu_client.control import ControlClient
from rgpu_common.endpoints import parse_endpoint

MIB = 1 << 20
# A program that uses the device: it prints its memory limit, allocates, and waits for a line.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *words): return getattr(cuda, name)(*words)
context, memory, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
assert call("cuInit", 0) == 0
assert call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0) == 0
assert call("cuCtxSetCurrent", context) == 0
assert call("cuDeviceTotalMem_v2", ctypes.byref(size), 0) == 0
status = call("cuMemAlloc_v2", ctypes.byref(memory), int(sys.argv[1]) << 20)
print(size.value >> 20, status, flush=True)
sys.stdin.readline()
print(call("cuMemAlloc_v2", ctypes.byref(memory), int(sys.argv[1]) << 20))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


@pytest.fixture
def address(server: Server) -> str:
    return f"tcp:{server.tcp}"


class Program:
    """`PROGRAM`, which runs in a lease. first: the line that it has printed."""

    def __init__(self, lease: rgpu_client.Lease, mebibytes: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(mebibytes)], env=lease.environment(), cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline().split()

    def end(self) -> str:
        """Ends the program; returns the line that it prints at last."""
        output, _ = self.process.communicate("\n", timeout=60)
        return output.strip()


def keys(server: Server) -> set[str]:
    with ControlClient(parse_endpoint(server.tcp)) as client:
        return {lease.key for lease in client.leases()}


def test_a_claim_serves_programs_and_leaves_this_process_as_it_is(
    server: Server, address: str
) -> None:
    before = dict(os.environ)
    with rgpu_client.claim(address, memory="64MiB", share=0.25, limit="50%") as lease:
        assert os.environ == before
        assert (lease.memory_bytes, lease.share, lease.limit) == (64 * MIB, 0.25, 0.5)
        program = Program(lease, 16)
        assert program.first == ["64", "0"]
        used = lease.usage()
        assert used.sessions == 1
        assert used.memory_limit_bytes == 64 * MIB
        assert 16 * MIB <= used.memory_used_bytes <= used.memory_peak_bytes
        assert lease.key in keys(server)
        assert program.end() == "0"
        program = Program(lease, 16)
    # The block has ended the lease, so the device is lost to the program.
    assert lease.closed
    assert lease.key not in keys(server)
    assert program.end() != "0"
    assert repr(lease).endswith(f"lease {lease.key}, closed>")


# A program that allocates from the device's pool until it is refused, and waits for a line. The pool
# holds a little more than was asked for.
FILLS = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
count = 0
while (status := cuda.cuMemAllocAsync(ctypes.byref(memory), ctypes.c_size_t(int(sys.argv[1])), None)) == 0:
    count += 1
print(status, count, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("size", [MIB + 4096, MIB // 3, 3 * MIB + 17])
def test_what_a_lease_was_refused_is_not_in_its_peak(address: str, size: int) -> None:
    with rgpu_client.claim(address, memory="8MiB") as lease, subprocess.Popen(
        [sys.executable, "-c", FILLS, str(size)], env=lease.environment(), cwd="/", text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        status, count = map(int, program.stdout.readline().split())
        assert status == 2  # CUDA_ERROR_OUT_OF_MEMORY
        used = lease.usage()
        assert used.refused_allocations
        assert count * size <= used.memory_peak_bytes <= 8 * MIB
        program.communicate("\n", timeout=60)


def test_two_claims_have_their_own_variables(address: str) -> None:
    base = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib/own", "RGPU_MEMORY": "7GiB"}
    with rgpu_client.claim(address, memory=MIB) as one, rgpu_client.claim(address) as two:
        first, second = one.environment(base), two.environment(base)
        assert first["RGPU_LEASE"] == one.key != second["RGPU_LEASE"]
        assert first["RGPU_MEMORY"] == str(MIB)
        assert "RGPU_MEMORY" not in second
        assert first["LD_LIBRARY_PATH"] == f"{rgpu_client.library_path()}:/lib/own"
        assert first["PATH"] == "/bin"


def test_resize_of_a_running_program(address: str) -> None:
    with rgpu_client.claim(address, memory="32MiB") as lease:
        program = Program(lease, 24)
        assert program.first == ["32", "0"]
        lease.resize(memory="64MiB", share="10%", limit=0.5)
        assert (lease.memory_bytes, lease.share, lease.limit) == (64 * MIB, 0.1, 0.5)
        assert lease.usage().memory_limit_bytes == 64 * MIB
        # Another 24 MiB fit by now, and later programs are served as well.
        later = Program(lease, 8)
        assert later.first[1] == "0"
        assert later.end() == "0"
        assert program.end() == "0"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "say what to change: memory, share, limit, policy, priority or weight"),
        ({"memory": "lots"}, "memory: 'lots' is not a number of bytes"),
        ({"share": 2}, "share: '2' is not a share"),
        ({"share": 0.5, "limit": 0.4}, "the share 50% is above its limit 40%"),
        ({"weight": 0}, "weight: a weight is a whole number from 1 to 1000"),
        ({"memory": "9GiB"}, "9 GiB"),
    ],
)
def test_a_refused_change_leaves_the_lease_as_it_is(
    address: str, change: dict[str, object], sentence: str
) -> None:
    with rgpu_client.claim(address, memory="32MiB") as lease:
        with pytest.raises(rgpu_client.RgpuError) as caught:
            lease.resize(**change)  # type: ignore[arg-type]
        assert sentence in str(caught.value)
        assert "--" not in str(caught.value)
        assert lease.memory_bytes == lease.usage().memory_limit_bytes == 32 * MIB


def test_a_closed_lease_and_a_revoked_one_say_so(server: Server, address: str) -> None:
    lease = rgpu_client.claim(address, memory="32MiB")
    with ControlClient(parse_endpoint(server.tcp)) as client:
        client.revoke(lease.id)
    with pytest.raises(rgpu_client.ServerError, match=f"has no lease {lease.id} any more"):
        lease.usage()
    lease.close()
    lease.close()
    for call in (lease.usage, lambda: lease.resize(memory="1MiB")):
        with pytest.raises(rgpu_client.UsageError, match="is closed: connect or claim again"):
            call()


def test_a_lease_with_a_name_stays_for_others(server: Server, address: str) -> None:
    first = rgpu_client.claim(address, lease="shared", memory="32MiB")
    program = Program(first, 8)
    first.close()
    assert program.end() == "0"
    wait_until(lambda: "shared" not in keys(server))


def test_connect_in_a_block_restores_the_variables(address: str) -> None:
    code = (
        "before = dict(os.environ)\n"
        "with rgpu_client.connect(sys.argv[1], memory='16MiB') as lease:\n"
        "    print(os.environ['RGPU_LEASE'] == lease.key)\n"
        "print({k for k in os.environ if k.startswith('RGPU_')} - {'RGPU_CHOSEN'}, lease.closed)\n"
        "with rgpu_client.connect(sys.argv[1], memory='32MiB') as lease:\n"
        "    assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "    print(lease.usage().sessions)\n"
        "    lease.resize(memory='48MiB')\n"
        "    print(lease.usage().memory_limit_bytes >> 20, rgpu_client.connect() is lease)\n"
        "context = ctypes.c_void_p()\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "print(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) != 0)\n"
        "attempt(sys.argv[1])\n"
    )
    *said, late = python(code, address)
    assert said == ["True", "set() True", "1", "48 True", "True"]
    assert "restart the kernel" in late


def test_devices_of_a_server(address: str, server: Server) -> None:
    with rgpu_client.claim(address, memory="256MiB", share=0.25):
        (device,) = rgpu_client.devices(server.tcp)
        assert (device.number, device.kind) == (0, "emulated")
        assert device.name == "rgpu emulated device"
        assert device.memory_bytes == 1024 * MIB
        assert device.free_bytes <= 768 * MIB
        assert device.free_share == pytest.approx(0.75)
        assert device.leases >= 1
    for wrong, sentence in (("a b", "the argument server"), ("127.0.0.1:1", "argument server")):
        with pytest.raises(rgpu_client.RgpuError) as caught:
            rgpu_client.devices(wrong)
        assert sentence in str(caught.value)


def test_coroutines(address: str) -> None:
    async def use() -> None:
        assert len(await rgpu_client.devices_async(address)) == 1
        async with await rgpu_client.claim_async(address, memory="16MiB") as lease:
            await lease.resize_async(memory="24MiB")
            assert (await lease.usage_async()).memory_limit_bytes == 24 * MIB
        assert lease.closed

    asyncio.run(use())


def test_connect_as_a_coroutine(address: str) -> None:
    code = (
        "import asyncio\n"
        "lease = asyncio.run(rgpu_client.connect_async(sys.argv[1], memory='16MiB'))\n"
        "print(os.environ['RGPU_LEASE'] == lease.key, ctypes.CDLL('libcuda.so.1').cuInit(0))\n"
    )
    assert python(code, address) == ["True 0"]


def test_a_cancelled_claim_leaves_the_line(server: Server, address: str) -> None:
    def waiting() -> int:
        with ControlClient(parse_endpoint(server.tcp)) as client:
            return len(client.running().waiting)

    async def until(condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(wait_until, condition)

    wait_until(lambda: not keys(server))  # the room of programs that have ended

    async def use() -> None:
        async with await rgpu_client.claim_async(address, memory="1GiB"):
            task = asyncio.create_task(rgpu_client.claim_async(address, memory="1GiB", wait=True))
            await until(lambda: waiting() == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: waiting() == 0)

    asyncio.run(use())


def test_an_emulated_server_of_this_process() -> None:
    with rgpu_client.emulated_server("512MiB") as server:
        (device,) = rgpu_client.devices(server)
        assert device.memory_bytes == 512 * MIB
        with rgpu_client.claim(server, memory="64MiB") as lease:
            program = Program(lease, 8)
            assert program.first == ["64", "0"]
            assert program.end() == "0"
    with pytest.raises(rgpu_client.UsageError), rgpu_client.emulated_server("lots"):
        pass


def test_every_name_of_the_package_is_there_and_explained() -> None:
    for name in rgpu_client.__all__:
        assert getattr(rgpu_client, name).__doc__, name
    assert set(rgpu_client.__all__) <= set(dir(rgpu_client))


def test_a_wrong_argument_is_named_in_the_words_of_the_function(address: str) -> None:
    for wrong, complaint in (
        (lambda: rgpu_client.claim(address, memories="1GiB"), "claim() has no argument 'memories'"),
        (
            lambda: asyncio.run(rgpu_client.claim_async(address, memories=1)),
            "claim_async() has no argument 'memories'; there are: server, memory, device, share,",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            wrong()
        assert complaint in str(caught.value)
    for call in (rgpu_client.devices, rgpu_client.claim):
        with pytest.raises(rgpu_client.UsageError, match="5 is not a text"):
            call(5)  # type: ignore[arg-type]


def test_a_refusal_for_want_of_room_names_the_argument_that_waits(address: str) -> None:
    with (
        rgpu_client.claim(address, memory="700MiB"),
        pytest.raises(rgpu_client.NoSessionError, match="pass wait=True to wait in line") as caught,
    ):
        rgpu_client.claim(address, memory="700MiB")
    assert "--" not in str(caught.value)
