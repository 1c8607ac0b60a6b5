"""What touches of memory that host and device use do to a program: its own handlers of SIGSEGV,
system calls, fork, and a server that is lost.
"""

from __future__ import annotations

import os
import re
import signal

import pytest
from helpers import clients
from helpers.ends import plant
from helpers.server import Server

START = """
import ctypes, faulthandler, os, signal, sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from helpers.shared_words import SharedWords

def words(count):
    address = c_uint64()
    cuda("cuMemAllocManaged", byref(address), c_size_t(count * 4), 1)
    return SharedWords(cuda, address.value, address.value, count, 1)

def work(w):
    w.launch(0, 1000, 1, w.streams[1])
    cuda("cuStreamSynchronize", w.streams[1])
"""
# The session of a program that a signal ends stays for a while, and must not be in the way of others.
LEASE = {"RGPU_LEASE": "faults"}
NULL = "print('now', flush=True)\nctypes.string_at(0)\n"


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_handler_of_the_program_gets_the_other_faults(server: str, when: str) -> None:
    enable = "faulthandler.enable()\n"
    source = (
        START
        + "cuda.open()\n"
        + (enable if when == "before" else "")
        + "w = words(1000)\n"
        + (enable if when == "after" else "")
        + "for turn in range(1, 4):\n"
        + "    work(w)\n"
        + "    assert w.words[:] == [turn] * 1000\n"
        + NULL
    )
    plant(signal.SIGSEGV)
    code, output, errors = clients.run(server, source, **LEASE)
    assert (code, output) == (-11, "now\n"), errors
    # Once: the handlers of both do not hand the fault to each other.
    assert errors.count("Fatal Python error: Segmentation fault") == 1, errors[:2000]


def test_a_handler_that_is_set_again_and_again_gets_each_fault_once(server: str) -> None:
    """pytest switches faulthandler off and on around each run."""
    source = (
        START
        + "cuda.open()\n"
        + "w = words(1000)\n"
        + "for turn in range(1, 30):\n"
        + "    faulthandler.enable() if turn % 2 else faulthandler.disable()\n"
        + "    work(w)\n"
        + "    assert w.words[:] == [turn] * 1000\n"
        + NULL
    )
    plant(signal.SIGSEGV)
    code, output, errors = clients.run(server, source, **LEASE)
    assert (code, output) == (-11, "now\n"), errors[:2000]
    assert errors.count("Fatal Python error: Segmentation fault") == 1, errors[:2000]


HANDLERS = """
class Action(ctypes.Structure):
    _fields_ = [("handler", c_void_p), ("mask", c_uint64 * 16), ("flags", c_int), ("restorer", c_void_p)]

Handler = ctypes.CFUNCTYPE(None, c_int, c_void_p, c_void_p)
libc, kept, seen = ctypes.CDLL(None), [], []

def set_action(new):
    old = Action()
    assert libc.sigaction(signal.SIGSEGV, byref(new), byref(old)) == 0
    return old

def handle(number):
    \"\"\"Sets a handler that hands each fault down to the one before; returns that one.\"\"\"
    def call(*given):
        seen.append(number)
        Handler(before.handler)(*given)
    made = Handler(call)
    kept.append(made)
    before = set_action(Action(ctypes.cast(made, c_void_p), flags=4 | 0x40000000))
    return before

def last(*_):
    print(*seen, flush=True)
    os._exit(0)

kept.append(Handler(last))
set_action(Action(ctypes.cast(kept[0], c_void_p), flags=4))
cuda.open()
w = words(1000)
turns = 0
def touch():
    global turns
    turns += 1
    work(w)
    assert w.words[:] == [turns] * 1000
"""


@pytest.mark.parametrize("count", [3, 12, 40])
def test_very_many_handlers_get_a_fault_once_each(server: str, count: int) -> None:
    source = START + HANDLERS + f"for number in range({count}):\n    handle(number)\n    touch()\n"
    code, output, errors = clients.run(server, source + NULL, **LEASE)
    assert code == 0, errors[-2000:]
    _, said = output.split("\n", 1)
    seen = [int(word) for word in said.split()]
    newest_first = list(reversed(range(count)))
    if count > 31 and not server.startswith("shm"):
        # A layer of ours is above each of the first 31. The newest and the oldest 30 get the fault.
        newest_first = [newest_first[0], *newest_first[-30:]]
    assert seen == newest_first


def test_handlers_that_are_set_in_turns_get_a_fault_once(server: str) -> None:
    source = (
        START
        + HANDLERS
        + "for turn in range(80):\n"
        + "    before = handle(turn % 3)\n"
        + "    touch()\n"
        + "    set_action(before)\n"
        + "    touch()\n"
        + "handle(7)\n"
        + "touch()\n"
    )
    code, output, errors = clients.run(server, source + NULL, **LEASE)
    assert (code, output) == (0, "now\n7\n"), errors[-2000:]


def test_other_faults_end_a_program_without_a_handler(server: str) -> None:
    plant(signal.SIGSEGV)
    code, output, _ = clients.run(
        server, START + "cuda.open()\nw = words(1000)\nwork(w)\nw.words[0]\n" + NULL, **LEASE
    )
    assert (code, output) == (-11, "now\n")


def test_freed_memory_has_no_access(server: str) -> None:
    source = """
cuda.open()
w = words(5000)
w.words[:] = [1] * 5000
work(w)
cuda.free(w.device)
print("freed", flush=True)
w.words[1]
"""
    plant(signal.SIGSEGV)
    code, output, _ = clients.run(server, START + source, **LEASE)
    assert (code, output) == (-11, "freed\n")


def test_a_system_call_does_not_fetch_a_page(server: str) -> None:
    """Over shm: the memory is the device's own, so system calls see it as the program does."""
    source = """
cuda.open()
w = words(1000)
work(w)
out, into = os.pipe()
libc = ctypes.CDLL(None, use_errno=True)
def written():
    return libc.write(into, c_void_p(w.device), c_size_t(4000)), ctypes.get_errno()
first = written()
w.words[0]
print(first, written()[0], os.read(out, 4000)[:8])
"""
    code, output, errors = clients.run(server, START + source)
    assert code == 0, errors
    expected = "(4000, 0)" if server.startswith("shm") else "(-1, 14)"
    assert output == f"{expected} 4000 {bytes([1, 0, 0, 0] * 2)!r}\n"


def test_a_forked_child_has_none_of_it(server: str) -> None:
    source = """
cuda.open()
w = words(1000)
work(w)
child = os.fork()
if child == 0:
    w.words[0]
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), w.words[5])
child = os.fork()
if child == 0:  # a session of its own
    cuda.open()
    v = words(2000)
    work(v)
    os._exit(v.words[999] + v.words[1000])
work(w)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), w.words[5])
"""
    code, output, errors = clients.run(server, START + source, **LEASE)
    assert (code, output) == (0, "-11 1\n1 2\n"), errors


def test_a_lost_server_ends_a_program_that_needs_its_bytes() -> None:
    source = """
cuda.open()
w = words(1000)
work(w)
print("ready", flush=True)
wait_for_line()
w.words[0]
print("not reached", flush=True)
"""
    plant(signal.SIGSEGV)
    with Server() as server:
        client = clients.start(server.tcp, START + source)
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        for worker in server.children():
            os.kill(worker, signal.SIGKILL)
        output, errors = client.communicate("\n", timeout=60)
    assert (client.returncode, output) == (-11, "")
    assert re.search("whose bytes the server cannot give any more", errors)


POLL = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry wait(.param .u64 p)
{
  .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
AGAIN:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  add.u32 %r1, %r1, 1;
  st.volatile.global.u32 [%rd1+64], %r1;
  ret;
}
"""


def test_on_one_host_the_pages_are_one_memory(running: Server) -> None:
    """A kernel that waits for the host's write can only end if host and device have the same
    pages.
    """
    source = f"""
cuda.open()
memory = c_void_p()
cuda("cuMemHostAlloc", byref(memory), c_size_t(4096), 2)
words = (ctypes.c_uint32 * 1024).from_address(memory.value)
wait = cuda.function(cuda.load({POLL.encode()!r}), "wait")
cuda.launch(wait, 1, 1, memory.value)
assert cuda.result("cuStreamQuery", None) == 600
words[0] = 41
while words[16] != 42:
    pass
cuda("cuCtxSynchronize")
print("ok")
"""
    code, output, errors = clients.run(running.address("shm"), START + source)
    assert (code, output) == (0, "ok\n"), errors
