"""Memory credit over every transport: a program that allocates often notices nothing but speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.recorder import Recorder
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.wire.codec import decode_command
from rgpu_common.wire.frame import Kind

MIB = 1 << 20
MEMORY = "64MiB"
START = '''
import random
from helpers.waiting import wait_until
from ctypes import byref, c_size_t, c_uint64, c_void_p
MIB = 1 << 20
FILL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 p, .param .u64 words, .param .u64 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [words];
  ld.param.u64 %rd3, [value];
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %rd4, %r1;
again:
  setp.ge.u64 %p1, %rd4, %rd2;
  @%p1 bra done;
  shl.b64 %rd5, %rd4, 2;
  add.u64 %rd5, %rd1, %rd5;
  cvt.u32.u64 %r2, %rd3;
  st.global.u32 [%rd5], %r2;
  add.u64 %rd4, %rd4, 64;
  bra again;
done:
  ret;
}
"""

def warm_up():
    """Allocates until the program has credit."""
    for _ in range(8):
        cuda.free(cuda.alloc(4096))

def settles(free):
    """Waits until so much is free: what was freed behind work goes when the work is done."""
    cuda.synchronize()
    wait_until(lambda: cuda.memory()[0] == free)

def fails(result, call, *arguments):
    try:
        call(*arguments)
    except CudaError as error:
        assert error.result == result, (result, error)
    else:
        raise AssertionError(f"{call} did not fail")
cuda.open()
'''


@pytest.fixture(scope="module", params=["normal", "hostile:7"])
def timed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("config")
    config = folder / "rgpu.toml"
    config.write_text(f'[emulated]\ntiming = "{request.param}"\n')
    with Server("--config", str(config), device="emulated:4GiB") as server:
        yield server


def check(server: str, source: str, **extra: str) -> None:
    extra = {"RGPU_MEMORY": MEMORY, "RGPU_LEASE": "credit", **extra}
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n", **extra)
    assert (code, output) == (0, "ok\n"), errors


MODEL = """
chance = random.Random({seed})
fill = cuda.function(cuda.load(FILL), "fill")
live = {{}}
before = cuda.memory()[0]
def rounded(size):
    return (size + 4095) // 4096 * 4096
for step in range(900):
    action = chance.random()
    if action < 0.45 or not live:
        size = 4 * chance.randrange(1, (1 << 14) if chance.random() < 0.8 else (1 << 17))
        try:
            place = cuda.alloc(size)
        except CudaError as error:
            assert error.result == 2, error
            place = max(live, key=lambda place: live[place][0])
            cuda.free(place)
            del live[place]
            continue
        assert all(place + size <= at or at + live[at][0] <= place for at in live)
        value = chance.randrange(1 << 32)
        if chance.random() < 0.7:
            cuda.launch(fill, 1, 64, place, size // 4, value)
        else:
            cuda.upload(place, value.to_bytes(4, "little") * (size // 4))
        live[place] = size, value
    elif action < 0.85:
        place = chance.choice(list(live))
        size, value = live.pop(place)
        if chance.random() < 0.4:
            assert cuda.download(place, size) == value.to_bytes(4, "little") * (size // 4)
        if chance.random() < 0.2:
            cuda("cuMemFreeAsync", c_uint64(place), None)
        else:
            cuda.free(place)
    elif action < 0.95:
        place = chance.choice(list(live))
        size, value = live[place]
        at = 4 * chance.randrange(size // 4)
        assert cuda.download(place + at, 4) == value.to_bytes(4, "little")
    else:
        held = sum(rounded(size) for size, _ in live.values())
        settles(before - held)
for place, (size, value) in live.items():
    assert cuda.download(place, size) == value.to_bytes(4, "little") * (size // 4)
    cuda.free(place)
settles(before)
"""


def test_random_allocations_keep_their_contents(server: str) -> None:
    check(server, MODEL.format(seed=1))


@pytest.mark.parametrize("transport", ["unix", "shm", "tcp"])
def test_the_same_in_hostile_timing(timed: Server, transport: str) -> None:
    for seed in (2, 3):
        check(timed.address(transport), MODEL.format(seed=seed), RGPU_LEASE=f"{transport}-{seed}")


def test_threads_share_the_credit(server: str) -> None:
    check(
        server,
        """
import threading
fill = cuda.function(cuda.load(FILL), "fill")
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))
wrong = []
def work(number):
    cuda("cuCtxSetCurrent", context)
    chance = random.Random(number)
    for step in range(150):
        size, value = 4 * chance.randrange(1, 1 << 14), chance.randrange(1 << 32)
        place = cuda.alloc(size)
        cuda.launch(fill, 1, 64, place, size // 4, value)
        if step % 5 == 0 and cuda.download(place + size - 4, 4) != value.to_bytes(4, "little"):
            wrong.append((number, step))
        cuda.free(place)
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
""",
    )


def test_memory_runs_out_at_the_call_and_all_of_it_can_be_used(server: str) -> None:
    check(
        server,
        """
warm_up()
before = cuda.memory()[0]
places = []
for size in (MIB, 65536, 4096):
    while True:
        try:
            places.append(cuda.alloc(size))
        except CudaError as error:
            assert error.result == 2
            break
        cuda("cuMemsetD8_v2", c_uint64(places[-1]), 1, c_size_t(size))
assert cuda.memory()[0] == 0, cuda.memory()
for place in places:
    cuda.free(place)
settles(before)
# One piece of all that is free, although there is credit.
warm_up()
cuda.free(cuda.alloc(before))
warm_up()
place, pitch = c_uint64(), c_size_t()
cuda("cuMemAllocPitch_v2", byref(place), byref(pitch), c_size_t(MIB), c_size_t(before // MIB), 4)
cuda.free(place.value)
""",
    )


def test_wrong_addresses_are_refused_as_ever(server: str) -> None:
    check(
        server,
        """
warm_up()
place = cuda.alloc(8192)
fails(1, cuda.free, place + 512)
fails(1, cuda.free, place + 4096)
cuda.free(place)
fails(1, cuda.free, place)
fails(1, cuda.download, place, 4)
fails(1, cuda.upload, place, b"1234")
fails(1, cuda, "cuMemAlloc_v2", byref(c_uint64()), c_size_t(0))
fails(2, cuda.alloc, 1 << 50)
fails(2, cuda.alloc, (1 << 64) - 1)
""",
    )


@pytest.mark.parametrize("where", ["place", "place + size", "other"])
def test_a_kernel_that_leaves_its_memory_fails(server: str, where: str) -> None:
    """Behind the end, in freed memory, and in front of the window's first use."""
    check(
        server,
        f"""
fill = cuda.function(cuda.load(FILL), "fill")
warm_up()
size = 8192
other = cuda.alloc(size)
place = cuda.alloc(size)
cuda.free(other)
cuda.synchronize()
if {where!r} == "place":
    cuda.launch(fill, 1, 64, place, size // 4, 3)
    cuda.synchronize()
else:
    cuda.launch(fill, 1, 64, {where}, 1, 3)
    fails(700, cuda.synchronize)
""",
    )


def test_a_context_takes_its_allocations_along(server: str) -> None:
    check(
        server,
        """
warm_up()
before = cuda.memory()[0]
for _ in range(4):
    context = c_void_p()
    cuda("cuCtxCreate_v2", byref(context), 0, 0)
    places = [cuda.alloc(MIB) for _ in range(6)]
    cuda("cuMemsetD8_v2", c_uint64(places[-1]), 1, c_size_t(MIB))
    cuda("cuCtxDestroy_v2", context)
    fails(1, cuda.free, places[-1])
settles(before)
warm_up()
""",
    )


def test_a_child_has_credit_of_its_own(server: str) -> None:
    check(
        server,
        """
import os
warm_up()
place = cuda.alloc(MIB)
child = os.fork()
if child == 0:
    cuda.open()
    warm_up()
    cuda.free(cuda.alloc(MIB))
    cuda.synchronize()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
cuda.upload(place, b"1234")
assert cuda.download(place, 4) == b"1234"
cuda.free(place)
""",
        RGPU_LEASE="fork",
    )


FIGHT = """
import sys
chance = random.Random(int(sys.stdin.readline()))
live = []
for _ in range(1500):
    if live and chance.random() < 0.5:
        cuda.free(live.pop(chance.randrange(len(live))))
        continue
    size = chance.choice((4096, 65536, MIB, 3 * MIB))
    try:
        live.append(cuda.alloc(size))
    except CudaError as error:
        assert error.result == 2
        while len(live) > 2:
            cuda.free(live.pop())
cuda.synchronize()
for place in live:
    cuda("cuMemsetD8_v2", c_uint64(place), 1, c_size_t(4096))
cuda.synchronize()
for place in live:
    cuda.free(place)
cuda.synchronize()
"""


def test_processes_of_a_lease_fight_for_the_last_bytes(server: str) -> None:
    environment = {"RGPU_LEASE": "fight", "RGPU_MEMORY": MEMORY}
    source = START + FIGHT + "print('ok')\n"
    processes = [clients.start(server, source, **environment) for _ in range(3)]
    for number, process in enumerate(processes):
        output, errors = process.communicate(f"{number}\n", timeout=120)
        assert output == "ok\n", errors


IDLE = START + "warm_up()\nprint('ready', flush=True)\nimport sys; sys.stdin.readline()\n"


def test_what_a_program_does_not_use_is_there_for_another(server: str) -> None:
    """The first has credit and makes no call; cuMemGetInfo of the second counts it as free."""
    environment = {"RGPU_LEASE": "idle", "RGPU_MEMORY": MEMORY}
    first = clients.start(server, IDLE, **environment)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n", first.communicate()[1]
        check(server, "free, total = cuda.memory()\ncuda.alloc(free)", **environment)
    finally:
        first.communicate("\n")


def test_a_stopped_program_keeps_no_more_than_an_eighth(
    server: str, request: pytest.FixtureRequest
) -> None:
    # A lease for each transport: the session of a killed program may be held for a while.
    environment = {"RGPU_LEASE": request.node.name, "RGPU_MEMORY": MEMORY}
    source = START + (
        "import os, signal\n"
        "for _ in range(8): cuda.alloc(MIB)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "print('ok')\n"
    )
    first = clients.start(server, source, **environment)
    try:
        _until_stopped(first.pid)
        check(server, "cuda.alloc((64 - 8 - 8) * MIB)", **environment)
    finally:
        first.kill()
        first.communicate()


def _until_stopped(pid: int) -> None:
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def test_few_allocations_cost_a_round_trip() -> None:
    """One allocation takes no credit; of many, nearly all need no answer.  Without it, all do."""
    counts = {}
    with Server(device="emulated:1GiB") as server:
        for name, source, extra in (
            ("one", "cuda.alloc(MIB)", {}),
            ("many", "for _ in range(300): cuda.free(cuda.alloc(MIB))", {}),
            ("off", "for _ in range(300): cuda.free(cuda.alloc(MIB))", {"RGPU_MEMORY_CREDIT": "0"}),
        ):
            with Recorder(server.unix) as recorder:
                check(recorder.unix, source, RGPU_LEASE=name, **extra)
            counts[name] = Counter(
                decode_command(frame)[0]
                for lane in recorder.lanes
                for frame in lane.commands
                if frame.header.kind is Kind.COMMAND
            )
    assert (counts["one"]["rgpuMemAlloc"], counts["one"]["rgpuMemAllocAhead"]) == (1, 0)
    many = counts["many"]
    assert many["rgpuMemBack"] + many["rgpuMemAlloc"] + many["rgpuMemAllocAhead"] == 300, many
    # The first ask for credit, and those after a pause of this machine in which it went back.
    assert many["rgpuMemBack"] >= 200, many
    assert counts["off"]["rgpuMemAlloc"] == 300
