"""Memory and events that processes of one lease share, over every transport."""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.sharing import LEASE, MIB, START, await_used, processes


@pytest.fixture
def lease(request: pytest.FixtureRequest) -> str:
    """A lease of the test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:]


def test_memory_is_the_same_in_both_processes(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two):
        token = one.run(
            "import os\ndata = os.urandom(3 << 20)\na = cuda.alloc(len(data))\n"
            "cuda.upload(a, data)\nsay(ipc.export(a + 5))"
        )
        assert one.run("say(ipc.export(a))") == token
        two.run(f"b = ipc.open({token!r})\nsay(b)")
        assert two.run(f"say(ipc.open({token!r}) == b)") == "True"
        assert one.run("say(data[:64].hex())") == two.run(
            "say(cuda.download(b, 3 << 20)[:64].hex())"
        )
        sums = "import hashlib\nsay(hashlib.sha256(cuda.download({}, 3 << 20)).hexdigest())"
        assert one.run(sums.format("a")) == two.run(sums.format("b"))
        two.run("cuda.upload(b + 7, b'here I am' * 99999)\nsay(1)")
        assert one.run(sums.format("a")) == two.run(sums.format("b"))
        two.run(
            "base, size = c_uint64(), c_size_t()\n"
            "cuda('cuMemGetAddressRange_v2', byref(base), byref(size), c_uint64(b + 9))\n"
            "assert (base.value, size.value) == (b, 3 << 20)\nsay(1)"
        )
        two.run("ipc.close(b)\nassert cuda.download(b, 1)\nipc.close(b)\nsay(1)")
        two.run("fails(1, cuda.download, b, 1)\nfails(1, ipc.close, b)\nsay(1)")
        one.run("cuda.free(a)\nsay(1)")
        await_used(one, 0)


def test_who_may_open_what(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two), processes(server, lease + "x", 1) as (stranger,):
        token = one.run("a = cuda.alloc(4096)\nsay(ipc.export(a))")
        event = one.run("e = ipc.event()\nsay(ipc.export_event(e))")
        one.run(f"fails(201, ipc.open, {token!r})\nfails(201, ipc.open_event, {event!r})\nsay(1)")
        wrong = token[:40] + format(int(token[40], 16) ^ 1, "x") + token[41:]
        for other in (
            f"fails(400, ipc.open, {wrong!r})",
            f"fails(400, ipc.open, {event!r})",
            f"fails(400, ipc.open_event, {token!r})",
            "fails(400, ipc.open, '00' * 64)",
            "fails(400, ipc.open, 'ff' * 64)",
            f"fails(1, ipc.open, {token!r}, 2)",
        ):
            two.run(other + "\nsay(1)")
        # Another lease gets the answer that anybody gets for a token that never was.
        stranger.run(
            f"fails(400, ipc.open, {token!r})\nfails(400, ipc.open_event, {event!r})\nsay(1)"
        )
        two.run(f"b = ipc.open({token!r})\nsay(1)")
        two.run(
            "context = c_void_p()\ncuda('cuCtxCreate_v2', byref(context), 0, 0)\n"
            f"fails(201, ipc.open, {token!r})\ncuda('cuCtxDestroy_v2', context)\nsay(1)"
        )
        two.run("fails(1, cuda.free, b)\nfails(1, ipc.export, b)\nsay(1)")
        one.run("cuda.free(a)\nsay(1)")
        two.run(f"ipc.close(b)\nfails(400, ipc.open, {token!r})\nsay(1)")


def test_what_cannot_be_exported(server: str, lease: str) -> None:
    with processes(server, lease, 1) as (one,):
        one.run(
            "p = c_uint64()\ncuda('cuMemAllocAsync', byref(p), c_size_t(4096), None)\n"
            "fails(1, ipc.export, p.value)\nfails(1, ipc.export, 4096)\nsay(1)"
        )
        one.run(
            "from helpers.maps import GRANULE, Maps\nplace, _ = Maps(cuda).mapped(GRANULE)\n"
            "fails(1, ipc.export, place)\n"
            "value = c_int()\nipc_capable = lambda a: (cuda('cuPointerGetAttribute', byref(value), "
            "10, c_uint64(a)), value.value)[1]\n"
            "assert (ipc_capable(place), ipc_capable(p.value)) == (0, 0)\n"
            "assert ipc_capable(cuda.alloc(1)) == 1\nsay(1)"
        )
        one.run(
            "plain = ipc.event(2)\nfails(400, ipc.export_event, plain)\n"
            "fails(1, ipc.event, 4)\nfails(400, ipc.export_event, 77)\n"
            "cuda('cuDeviceGetAttribute', byref(value), 125, 0)\nassert value.value == 1\nsay(1)"
        )


def test_the_lease_is_charged_once(server: str, lease: str) -> None:
    with processes(server, lease, 3) as (one, two, three):
        token = one.run(f"a = cuda.alloc({100 * MIB})\ncuda.upload(a, b'kept')\nsay(ipc.export(a))")
        for process in (two, three):
            process.run(f"b = ipc.open({token!r})\nsay(b)")
            assert process.run("say(used())") == str(100 * MIB)
        # The exporter frees it: it stays charged, and nobody else gets it any more.
        assert one.run("cuda.free(a)\ncuda.synchronize()\nsay(used())") == str(100 * MIB)
        two.run(f"ipc.close(b)\nfails(400, ipc.open, {token!r})\nsay(1)")
        await_used(one, 100 * MIB)
        assert three.run("say(cuda.download(b, 4))") == str(b"kept")
        three.run("ipc.close(b)\nsay(1)")
        await_used(one, 0)
        # As soon as the last close has returned, the room is there.
        one.run(
            "free, _ = cuda.memory()\nfor _ in range(3): cuda.free(cuda.alloc(free * 9 // 10))\n"
            "say(1)"
        )


def test_memory_outlives_the_exporter_and_stays_charged(server: str, lease: str) -> None:
    with processes(server, lease, 4) as (one, two, three, four):
        total = int(four.run("say(cuda.memory()[1])"))
        tokens = one.run(
            f"a, b = cuda.alloc({150 * MIB}), cuda.alloc({50 * MIB})\n"
            "cuda.upload(a, b'first')\ncuda.upload(b, b'other')\n"
            "say(ipc.export(a) + ' ' + ipc.export(b))"
        ).split()
        for process in (two, three):
            process.run(f"a = ipc.open({tokens[0]!r})\nsay(1)")
        one.kill()
        # What nobody else had open is free; the rest is charged once, and the limit holds.
        await_used(four, 150 * MIB)
        assert two.run("say(cuda.download(a, 5))") == str(b"first")
        four.run(f"fails(2, cuda.alloc, {total - 149 * MIB})\nsay(1)")
        four.run(f"cuda.free(cuda.alloc({total - 150 * MIB}))\nsay(1)")
        two.run(f"fails(400, ipc.open, {tokens[1]!r})\nsay(1)")
        # The session that is charged for it ends, in each way: the next one is charged.
        two.kill()
        await_used(four, 150 * MIB)
        assert three.run("say(cuda.download(a, 5))") == str(b"first")
        three.run("ipc.close(a)\nsay(1)")
        await_used(four, 0)
        four.run(f"cuda.free(cuda.alloc({total - 4 * MIB}))\nsay(1)")


def test_a_context_takes_its_exports_and_imports_with_it(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two):
        token = one.run(
            "context = c_void_p()\ncuda('cuCtxCreate_v2', byref(context), 0, 0)\n"
            f"a = cuda.alloc({8 * MIB})\nsay(ipc.export(a))"
        )
        two.run(
            "context = c_void_p()\ncuda('cuCtxCreate_v2', byref(context), 0, 0)\n"
            f"b = ipc.open({token!r})\nsay(1)"
        )
        one.run("cuda('cuCtxDestroy_v2', context)\nsay(1)")
        await_used(one, 8 * MIB)
        assert two.run("say(cuda.download(b, 4))") == str(bytes(4))
        two.run("cuda('cuCtxDestroy_v2', context)\nfails(1, cuda.download, b, 4)\nsay(1)")
        await_used(one, 0)


def test_events_order_two_processes(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two):
        token = one.run(
            "e = ipc.event()\nflag = cuda.alloc(4)\ncuda.upload(flag, bytes(4))\n"
            "s, t = c_void_p(), c_void_p()\n"
            "cuda('cuStreamCreate', byref(s), 1)\ncuda('cuStreamCreate', byref(t), 1)\n"
            "say(ipc.export_event(e))"
        )
        two.run(
            f"e = c_void_p(ipc.open_event({token!r}))\ns = c_void_p()\n"
            "cuda('cuStreamCreate', byref(s), 1)\nsay(1)"
        )
        ask = "say(cuda.result('cuEventQuery', e))"
        assert two.run(ask) == "0"  # never recorded
        hold = "cuda('cuStreamWaitValue32_v2', s, c_uint64(flag), {0}, 1)\n"
        record = "cuda('cuEventRecord', c_void_p(e), s)\nsay(1)"
        one.run(hold.format(1) + record)
        assert two.run(ask) == "600"
        # A wait is bound to the record that it found: a later one does not hold it up.
        two.run("cuda('cuStreamWaitEvent', s, e, 0)\nsay(cuda.result('cuStreamQuery', s))")
        assert two.run("say(cuda.result('cuStreamQuery', s))") == "600"
        one.run(
            "cuda('cuStreamWriteValue32_v2', t, c_uint64(flag), 1, 0)\n" + hold.format(2) + record
        )
        assert two.run("cuda('cuStreamSynchronize', s)\nsay(1)") == "1"
        assert two.run(ask) == "600"
        one.run("cuda('cuStreamWriteValue32_v2', t, c_uint64(flag), 2, 0)\nsay(1)")
        assert two.run("cuda('cuEventSynchronize', e)\n" + ask) == "0"
        # The process that has opened it records it, too.
        two.run("cuda('cuEventRecord', e, s)\ncuda('cuStreamSynchronize', s)\nsay(1)")
        assert one.run("say(cuda.result('cuEventQuery', c_void_p(e)))") == "0"
        fails = "fails(400, cuda, 'cuEventElapsedTime_v2', byref(c_int()), e, e)\n"
        two.run(
            fails
            + f"fails(400, ipc.export_event, e.value)\nsay(ipc.open_event({token!r}) != e.value)"
        )
        two.run("cuda('cuEventDestroy_v2', e)\nsay(1)")
        two.run(f"e = c_void_p(ipc.open_event({token!r}))\ncuda('cuEventSynchronize', e)\nsay(1)")


def test_a_record_of_a_process_that_dies_counts_as_complete(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two):
        token = one.run(
            "e = ipc.event()\nflag = cuda.alloc(4)\ncuda.upload(flag, bytes(4))\ns = c_void_p()\n"
            "cuda('cuStreamCreate', byref(s), 1)\n"
            "cuda('cuStreamWaitValue32_v2', s, c_uint64(flag), 1, 1)\n"
            "cuda('cuEventRecord', c_void_p(e), s)\nsay(ipc.export_event(e))"
        )
        two.run(
            f"e = c_void_p(ipc.open_event({token!r}))\ns = c_void_p()\n"
            "cuda('cuStreamCreate', byref(s), 1)\ncuda('cuStreamWaitEvent', s, e, 0)\n"
            "say(cuda.result('cuStreamQuery', s))"
        )
        assert two.run("say(cuda.result('cuEventQuery', e))") == "600"
        one.kill()
        assert two.run("cuda('cuStreamSynchronize', s)\nsay(1)") == "1"
        assert two.run("cuda('cuEventSynchronize', e)\nsay(1)") == "1"
        two.run(f"fails(400, ipc.open_event, {token!r})\nsay(1)")


def test_a_session_has_so_many_exports(server: str, lease: str) -> None:
    with processes(server, lease, 1) as (one,):
        one.run(
            "made = [cuda.alloc(4096) for _ in range(513)]\n"
            "tokens = {ipc.export(a) for a in made[:512]}\nassert len(tokens) == 512\n"
            "fails(2, ipc.export, made[512])\ncuda.free(made[0])\ncuda.synchronize()\n"
            "assert ipc.export(made[512]) not in tokens\nsay(1)"
        )


def test_processes_of_one_program(server: str, lease: str) -> None:
    """As multiprocessing starts them: the lease is the program's."""
    code, output, errors = clients.run(
        server,
        START
        + """
import os, subprocess, sys
a = cuda.alloc(1 << 20)
cuda.upload(a, b"from parent")
child = '''
from helpers.driver import Driver
from helpers.ipc import Ipc
cuda = Driver()
cuda.open()
ipc = Ipc(cuda)
place = ipc.open(%r)
assert cuda.download(place, 11) == b"from parent"
cuda.upload(place, b"from child ")
'''
subprocess.run([sys.executable, "-c", child % ipc.export(a)], check=True)
assert cuda.download(a, 11) == b"from child "
print("ok")
""",
        RGPU_LEASE=lease,
        RGPU_MEMORY=LEASE,
    )
    assert (code, output) == (0, "ok\n"), errors
