"""Sessions that take more than their lease grants: memory of running kernels, threads, and the
device after an error.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until
from worker.client import PER_THREAD, Client, session
from worker.images import load
from worker.leased import leased
from worker.token_page import OPEN, TokenPage

from rgpu_common.wire.messages import Notice

MIB = 1 << 20
ILLEGAL_ADDRESS = 700
OUT_OF_MEMORY = 2
# docs/explanation/quotas-memory.md: the memory that running kernels hold without a charge, with two
# processors.
RUNNING_BYTES = (128 + 2 * 4) * MIB
PLAIN_BYTES = 96 * MIB  # the worker itself, with the buffers of its connection
MOST_THREADS = 1024
FEW = 40  # threads of a worker, besides those of streams and calls

# hold: every thread fills its 32 KiB of local memory, comes to a barrier, counts itself and waits
# for the flag.  spin: waits for ever.  wild: writes where nothing is.  seconds: runs for 3 s.
# fail: an assertion.
PTX = b"""
.version 7.8
.target sm_80
.address_size 64
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
                           .param .b64 c) .noreturn;
.global .align 1 .b8 text[2] = {120, 0};
.visible .entry hold(.param .u64 words)
{
    .local .align 16 .b8 big[32768];
    .shared .align 16 .b8 area[40000];
    .reg .b64 %d<6>; .reg .b32 %r<6>; .reg .pred %p<2>;
    ld.param.u64 %d0, [words];
    mov.u64 %d1, big;
    mov.u32 %r0, 0;
FILL:
    st.local.u32 [%d1], %r0;
    add.u64 %d1, %d1, 2048;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p0, %r0, 16;
    @%p0 bra FILL;
    st.shared.u32 [area], %r0;
    bar.sync 0;
    atom.global.add.u32 %r1, [%d0], 1;
WAIT:
    ld.volatile.global.u32 %r2, [%d0+4];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra WAIT;
    ret;
}
.visible .entry spin(.param .u64 words)
{
    .reg .b64 %d<2>; .reg .b32 %r<2>;
    ld.param.u64 %d0, [words];
    atom.global.add.u32 %r0, [%d0], 1;
L:  bra L;
}
.visible .entry wild(.param .u64 words)
{
    .reg .b64 %d<2>; .reg .b32 %r<2>;
    mov.u64 %d0, 16;
    mov.u32 %r0, 1;
    st.global.u32 [%d0], %r0;
    ret;
}
.visible .entry seconds(.param .u64 words)
{
    .reg .b64 %d<4>; .reg .b32 %r<2>; .reg .pred %p;
    ld.param.u64 %d0, [words];
    atom.global.add.u32 %r0, [%d0], 1;
    mov.u64 %d1, %globaltimer;
    add.u64 %d1, %d1, 3000000000;
L:  mov.u64 %d2, %globaltimer;
    setp.lt.u64 %p, %d2, %d1;
    @%p bra L;
    ret;
}
.visible .entry fail(.param .u64 words)
{
    .reg .b64 %d;
    .param .b64 a0; .param .b64 a1; .param .b32 a2; .param .b64 a3; .param .b64 a4;
    mov.u64 %d, text;
    st.param.b64 [a0], %d; st.param.b64 [a1], %d; st.param.b32 [a2], 7;
    st.param.b64 [a3], %d; st.param.b64 [a4], 1;
    call.uni __assertfail, (a0, a1, a2, a3, a4);
    ret;
}
"""
NAMES = (b"hold", b"spin", b"wild", b"seconds", b"fail")
HOLD, SPIN, WILD, SECONDS, FAIL = range(41, 46)


def with_kernels(client: Client) -> int:
    """Loads the kernels; the address of their two words, counter and flag."""
    load(client, data=PTX)
    for function, name in enumerate(NAMES, HOLD):
        client.call("rgpuModuleGetFunction", module=40, name=name, function=function)
    words = client.alloc(8)
    client.upload(words, bytes(8))
    return words


def streams(client: Client, count: int) -> Iterator[int]:
    for stream in range(100, 100 + count):
        client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        yield stream


def launch(client: Client, function: int, words: int, stream: int, block: int = 1) -> None:
    client.post(
        "rgpuLaunch", function=function, kernel=0, grid_x=1, grid_y=1, grid_z=1, block_x=block,
        block_y=1, block_z=1, shared_bytes=0, stream=stream, flags=0,
        params=struct.pack("<Q", words),
    )  # fmt: skip


def counter(client: Client, words: int) -> int:
    """Read in a stream of its own: the kernels run meanwhile."""
    count: int = struct.unpack("<I", client.download(words, 4, stream=99))[0]
    return count


def status_bytes(client: Client, field: str) -> int:
    for line in Path(f"/proc/{client.process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def threads(client: Client) -> int:
    return len(list(Path(f"/proc/{client.process.pid}/task").iterdir()))


def processor_seconds(client: Client) -> float:
    fields = Path(f"/proc/{client.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_kernels_of_60_streams_hold_no_more_than_is_granted() -> None:
    """Before: 32 MiB of local memory for each of 60 streams, charged once: 2 GiB of 400 MiB."""
    limit = 400 * MIB
    with session("--memory", str(limit), RGPU_EMU_THREADS="2") as client:
        words = with_kernels(client)
        client.post("rgpuStreamCreate", stream=99, flags=1, priority=0)
        before = int(client.call("rgpuMemGetInfo")["free"])
        for stream in streams(client, 60):
            launch(client, HOLD, words, stream, block=1024)
        wait_until(lambda: counter(client, words) >= 2 * 1024)
        charged = before - int(client.call("rgpuMemGetInfo")["free"])
        assert charged == 32768 * 2048 * 2
        client.upload(words + 4, struct.pack("<I", 1), stream=99)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert counter(client, words) == 60 * 1024, "every kernel has run"
        peak = status_bytes(client, "VmHWM")
        assert peak < charged + RUNNING_BYTES + PLAIN_BYTES, f"{peak / MIB:.0f} MiB"
        assert peak < limit


def test_an_error_stops_the_kernels_of_all_streams_and_their_time_is_charged() -> None:
    """A regression: the kernels ran on for 9.9 s, of which 0.02 s were charged, beside another
    lease.
    """
    page = TokenPage()
    with leased(page=page) as (client, _):
        words = with_kernels(client)
        client.post("rgpuStreamCreate", stream=99, flags=1, priority=0)
        page.grant(OPEN)
        started = time.monotonic()
        for stream in streams(client, 6):
            launch(client, SPIN, words, stream)
        wait_until(lambda: counter(client, words) == 6)
        before = processor_seconds(client)
        wait_until(lambda: processor_seconds(client) > before + 1)
        launch(client, WILD, words, 99)
        assert "ILLEGAL_ADDRESS" in client.sticky()
        said = page.until(active=0)
        stopped = time.monotonic()
        used = processor_seconds(client)
        # No kernel ran without a charge.
        assert used - before <= len(os.sched_getaffinity(0)) * said["busy_ns"] / 1e9 + 0.5
        assert said["busy_ns"] / 1e9 <= stopped - started + 0.5
        time.sleep(0.5)  # nothing is waited for: this is the time that is measured
        assert processor_seconds(client) - used < 0.1, "nothing runs when the device is given back"
        assert client.result("rgpuContextSynchronize", ctx=10).status == ILLEGAL_ADDRESS


def test_kernels_of_another_context_than_the_failed_one_keep_the_device() -> None:
    """An assertion ends its own context; the session is spent, but not everything has stopped."""
    page = TokenPage()
    with leased(page=page) as (client, _):
        page.grant(OPEN)
        words = with_kernels(client)
        client.post("rgpuStreamCreate", stream=99, flags=1, priority=0)
        client.post("rgpuStreamCreate", stream=98, flags=1, priority=0)
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.context = 11
        load(client, 60, PTX)
        client.call("rgpuModuleGetFunction", module=60, name=b"fail", function=61)
        client.post("rgpuStreamCreate", stream=97, flags=1, priority=0)
        client.call("rgpuFunctionLoad", function=61, load=1)
        client.context = 10
        launch(client, SECONDS, words, 98)
        wait_until(lambda: counter(client, words) == 1)
        client.context = 11
        launch(client, 61, words, 97)
        assert "ASSERT" in client.sticky()
        said = page.until(active=0)
        assert said["busy_ns"] > 2_900_000_000, "the time until then is charged"
        used = processor_seconds(client)
        time.sleep(0.3)  # nothing is waited for: this is the time that is measured
        assert processor_seconds(client) - used < 0.1


def memset(client: Client, address: int, thread: int, stream: int = PER_THREAD) -> None:
    client.post(
        "rgpuMemset", dst=address, pitch=0, element_bytes=1, value=7, width=64, height=1,
        stream=stream, synchronous=0, thread=thread,
    )  # fmt: skip


def test_3000_invented_threads_make_no_3000_threads() -> None:
    """Before: each number made the worker start a thread that stayed, 3,008 in half a second."""
    with session() as client:
        address = client.alloc(4096)
        most = 0
        for thread in range(2, 3002):
            memset(client, address, thread)
            if thread % 100 == 0:
                client.call("rgpuPing", echo=1)
                most = max(most, threads(client))
        assert most <= MOST_THREADS + FEW
        fields, _ = client.notice(Notice.LOG)
        assert "1024 threads of this session have one" in str(fields["text"])
        gives = {t: client.result("rgpuStreamSynchronize", stream=PER_THREAD, thread=t).status
                 for t in (2, 900, 2900)}  # fmt: skip
        assert gives == {2: 0, 900: 0, 2900: OUT_OF_MEMORY}
        wait_until(lambda: threads(client) < FEW)
        # Numbers of threads that have ended are free for others.
        client.post("rgpuThreadGone", gone=2)
        client.result("rgpuStreamSynchronize", stream=PER_THREAD, thread=2900)  # tells the error
        memset(client, address, 2900)
        assert client.result("rgpuStreamSynchronize", stream=PER_THREAD, thread=2900).status == 0


def test_a_thread_beyond_the_bound_gets_its_credits_back() -> None:
    with session() as client:
        address = client.alloc(4096)
        for thread in range(2, 2 + MOST_THREADS):
            memset(client, address, thread)
        for _ in range(600):
            memset(client, address, 2000)
        assert client.result("rgpuPing", echo=1).status == 0
        notices = [n for n in client.notices if n[0] is Notice.CREDIT]
        assert any(frame.header.thread == 2000 for _, _, frame in notices)
        assert client.result("rgpuMemGetInfo", thread=2000).status == OUT_OF_MEMORY


@pytest.mark.parametrize(("count", "refused"), [(600, 0), (1300, 1300 - MOST_THREADS)])
def test_calls_that_wait_are_bounded_and_many_hundreds_work(count: int, refused: int) -> None:
    with session() as client:
        address = client.alloc(8)
        client.upload(address, bytes(8))
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuStreamCreate", stream=21, flags=1, priority=0)
        client.wait_value(20, address, 1)
        calls = [
            client.post("rgpuStreamSynchronize", stream=20, thread=2 + n) for n in range(count)
        ]
        client.call("rgpuPing", echo=1)
        assert threads(client) <= MOST_THREADS + FEW
        client.write_value(21, address, 1)
        answers = [client.wait(call).status for call in calls]
        assert set(answers) <= {0, OUT_OF_MEMORY}
        assert abs(answers.count(OUT_OF_MEMORY) - refused) <= FEW


def test_a_program_with_1600_real_threads_400_at_a_time_works(server: Server) -> None:
    """Each has a default stream of its own; numbers of threads that have ended are free again."""
    code, output, errors = clients.run(
        server.tcp,
        """
        import ctypes, threading
        PER_THREAD = ctypes.c_void_p(2)
        context = ctypes.c_void_p()
        cuda.open()
        cuda("cuCtxGetCurrent", ctypes.byref(context))
        threading.stack_size(256 << 10)
        wrong = []
        for round in range(4):
            together = threading.Barrier(400)
            def one(number):
                cuda("cuCtxSetCurrent", context)
                at = cuda.alloc(256)
                cuda("cuMemsetD8Async", ctypes.c_uint64(at), ctypes.c_ubyte(number % 251),
                     ctypes.c_size_t(256), PER_THREAD)
                together.wait(60)
                cuda("cuStreamSynchronize", PER_THREAD)
                if cuda.download(at, 256) != bytes([number % 251]) * 256:
                    wrong.append(number)
                cuda.free(at)
            threads = [threading.Thread(target=one, args=(n,)) for n in range(400)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        print(len(wrong), threading.active_count())
        """,
        timeout=110,
    )
    assert (code, output) == (0, "0 1\n"), errors
