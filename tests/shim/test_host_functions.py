"""Host functions and callbacks: they run in the client, in stream order."""

from __future__ import annotations

import pytest
from helpers import clients

START = """
import ctypes, os, threading
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_void_p)

def stream(flags=1):
    made = c_void_p()
    cuda("cuStreamCreate", byref(made), flags)
    return made

def pinned(size):
    memory = c_void_p()
    cuda("cuMemHostAlloc", byref(memory), c_size_t(size), 0)
    return memory, (ctypes.c_char * size).from_address(memory.value)

def waits(one, flag):
    cuda("cuStreamWaitValue32_v2", one, c_uint64(flag), 1, 0)

def go(flag):
    cuda("cuStreamWriteValue32_v2", stream(), c_uint64(flag), 1, 0)
"""


def _said(server: str, source: str) -> str:
    code, output, errors = clients.run(server, START + source)
    assert code == 0, errors
    return output.strip()


def test_they_run_in_the_order_of_their_stream(server: str) -> None:
    source = """
one, flag, seen = stream(), cuda.alloc(4), []
cuda.upload(flag, bytes(4))
note = FUNCTION(seen.append)
told = CALLBACK(lambda which, status, data: seen.append((which == one.value, status, data)))
waits(one, flag)
for number in range(1, 2001):
    if number % 500 == 0:
        cuda("cuStreamAddCallback", one, told, c_void_p(number), 0)
    else:
        cuda("cuLaunchHostFunc", one, note, c_void_p(number))
    if number == 300:
        print(seen, cuda.result("cuStreamQuery", one))
        go(flag)
cuda("cuStreamSynchronize", one)
want = [(True, 0, n) if n % 500 == 0 else n for n in range(1, 2001)]
print(seen == want)
"""
    assert _said(server, source).split("\n") == ["[] 600", "True"]


def test_a_copy_behind_one_takes_what_it_wrote(server: str) -> None:
    """Litmus L4: the bytes of a pinned buffer are read when the stream has come to the copy."""
    source = """
one = stream()
memory, text = pinned(4096)
target = c_uint64(cuda.alloc(4096))
for turn in range(1, 21):
    text[:] = bytes(4096)
    fill = FUNCTION(lambda data: text.__setitem__(slice(None), bytes([data]) * 4096))
    cuda("cuLaunchHostFunc", one, fill, c_void_p(turn))
    cuda("cuMemcpyHtoDAsync_v2", target, memory, c_size_t(4096), one)
    cuda("cuStreamSynchronize", one)
    assert cuda.download(target.value, 4096) == bytes([turn]) * 4096, turn
print("right")
"""
    assert _said(server, source) == "right"


def test_one_sees_the_bytes_of_the_copy_before_it(server: str) -> None:
    source = """
size = 8 << 20
one = stream()
memory, text = pinned(size)
source, seen = c_uint64(cuda.alloc(size)), []
look = FUNCTION(lambda data: seen.append((text.raw.count(bytes([data])), data)))
for turn in range(1, 6):
    cuda("cuMemsetD8Async", source, turn, c_size_t(size), one)
    cuda("cuMemcpyDtoHAsync_v2", memory, source, c_size_t(size), one)
    cuda("cuLaunchHostFunc", one, look, c_void_p(turn))
cuda("cuStreamSynchronize", one)
print(seen == [(size, turn) for turn in range(1, 6)])
"""
    assert _said(server, source) == "True"


def test_the_program_may_wait_for_one_without_any_call(server: str) -> None:
    """Litmus L6: nobody reads the connection but the shim's own thread."""
    source = """
came = threading.Event()
wake = FUNCTION(lambda data: came.set())
cuda("cuLaunchHostFunc", stream(), wake, None)
print(came.wait(60))
"""
    assert _said(server, source) == "True"


def test_cuda_calls_are_not_permitted_in_one(server: str) -> None:
    source = """
one, seen = stream(), []
def calls(data):
    size = c_size_t()
    seen.append(cuda.result("cuMemGetInfo_v2", byref(size), byref(size)))
    seen.append(cuda.result("cuCtxSynchronize"))
    seen.append(cuda.result("cuStreamSynchronize", one))
function = FUNCTION(calls)
cuda("cuLaunchHostFunc", one, function, None)
cuda("cuStreamSynchronize", one)
print(seen, cuda.result("cuCtxSynchronize"))
"""
    assert _said(server, source) == "[800, 800, 800] 0"


def test_a_program_may_end_while_one_begins(server: str) -> None:
    """The interpreter ends the thread that comes to it too late."""
    source = """
import time
slow = FUNCTION(lambda data: time.sleep(0.05))
for _ in range(10):
    cuda("cuLaunchHostFunc", None, slow, None)
print("over", flush=True)
"""
    assert _said(server, source) == "over"


def test_none_begins_when_the_process_exits(server: str) -> None:
    """Exit handlers run in reverse order: one says that the exit begins, then comes that of rgpu,
    then one that takes a second, in which the other functions would run.
    """
    source = """
import ctypes, os, sys
from ctypes import byref, c_char_p, c_void_p
libc = ctypes.CDLL(None)
libc.strdup.restype = c_void_p
def kept(text):
    return c_void_p(libc.strdup(text))
libc.on_exit(libc.sleep, None)  # for as many seconds as the exit code says
cuda.open()
libc.on_exit(libc.dprintf, kept(b"exit\\n"))  # into the file whose number is the exit code
begun, ours = os.pipe()
os.set_inheritable(ours, True)
work = kept(f"echo ran; echo . >&{ours}; sleep 0.1".encode())
for _ in range(20):
    one = c_void_p()
    cuda("cuStreamCreate", byref(one), 1)
    cuda("cuLaunchHostFunc", one, libc.system, work)
os.read(begun, 1)
sys.exit(1)
"""
    code, output, errors = clients.run(server, source)
    assert code == 1, errors
    assert "exit" in output, errors
    # One may be running, and one just about to.
    assert output.partition("exit")[2].count("ran") <= 2


def test_bad_arguments(server: str) -> None:
    source = """
one, note = stream(), CALLBACK(lambda *_: None)
print(cuda.result("cuLaunchHostFunc", one, None, None),
      cuda.result("cuStreamAddCallback", one, None, None, 0),
      cuda.result("cuStreamAddCallback", one, note, None, 1),
      cuda.result("cuStreamAddCallback", c_void_p(0x1234567), note, None, 0))
"""
    assert _said(server, source) == "1 1 1 400"


def test_a_stream_may_be_destroyed_while_its_functions_are_due(server: str) -> None:
    source = """
flag, seen, done = cuda.alloc(4), [], threading.Event()
cuda.upload(flag, bytes(4))
def note(data):
    seen.append(data)
    if len(seen) == 30:
        done.set()
function = FUNCTION(note)
for number in range(10):
    one = stream()
    waits(one, flag)
    for _ in range(3):
        cuda("cuLaunchHostFunc", one, function, c_void_p(number + 1))
    cuda("cuStreamDestroy_v2", one)
go(flag)
print(done.wait(60), sorted(seen) == sorted(3 * list(range(1, 11))))
"""
    assert _said(server, source) == "True True"


def test_callbacks_are_told_of_an_error_and_host_functions_do_not_run(server: str) -> None:
    source = """
one, flag, seen, done = stream(), cuda.alloc(4), [], threading.Event()
cuda.upload(flag, bytes(4))
def tell(which, status, data):
    seen.append((status, data))
    done.set()
told, note = CALLBACK(tell), FUNCTION(lambda data: seen.append("ran"))
image = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry wild() { .reg .b64 %p; mov.u64 %p, 16; st.global.u32 [%p], %p; ret; }
'''.replace(b"st.global.u32 [%p], %p", b"st.global.u64 [%p], %p")
module, function = c_void_p(), c_void_p()
cuda("cuModuleLoadData", byref(module), image)
cuda("cuModuleGetFunction", byref(function), module, b"wild")
waits(one, flag)
cuda("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, one, None, None)
cuda("cuLaunchHostFunc", one, note, None)
cuda("cuStreamAddCallback", one, told, c_void_p(7), 0)
go(flag)
print(done.wait(60), seen[0][0] in (700, 719), seen[0][1], cuda.result("cuCtxSynchronize") != 0, seen.count("ran"))
"""
    assert _said(server, source) == "True True 7 True 0"


def test_a_forked_child_runs_functions_of_its_own(server: str) -> None:
    source = """
def count(number):
    one, seen = stream(), []
    note = FUNCTION(seen.append)
    for _ in range(number):
        cuda("cuLaunchHostFunc", one, note, c_void_p(1))
    cuda("cuStreamSynchronize", one)
    return len(seen)
print(count(5), flush=True)
child = os.fork()
if child == 0:
    cuda.open()
    print(count(7), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(count(3))
"""
    assert _said(server, source).split() == ["5", "7", "3"]


def test_a_program_ends_while_one_is_due(server: str) -> None:
    source = """
one, flag = stream(), cuda.alloc(4)
cuda.upload(flag, bytes(4))
waits(one, flag)
note = FUNCTION(lambda data: None)
cuda("cuLaunchHostFunc", one, note, None)
print("ends")
"""
    assert _said(server, source) == "ends"
    assert _said(server, 'print("next")') == "next"


@pytest.mark.parametrize("twin", ["cuLaunchHostFunc_ptsz", "cuStreamAddCallback_ptsz"])
def test_the_twins_take_the_stream_of_the_thread(server: str, twin: str) -> None:
    source = f"""
seen = []
note = (FUNCTION if "Launch" in "{twin}" else CALLBACK)(lambda *data: seen.append(data[-1]))
rest = () if "Launch" in "{twin}" else (0,)
cuda("{twin}", None, note, c_void_p(4), *rest)
cuda("cuStreamSynchronize", c_void_p(2))
print(seen)
"""
    assert _said(server, source) == "[4]"
