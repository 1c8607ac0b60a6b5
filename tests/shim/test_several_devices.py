"""Several devices of one server in one program: each has a session of its own (ADR 0022)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import clients
from helpers.command import rgpu_command
from helpers.server import Server
from helpers.two_devices import HEAD, WAYS, Pair, said

INVALID_VALUE = 1
INVALID_DEVICE, INVALID_HANDLE = 101, 400
PEER_ACCESS_UNSUPPORTED = 217


@pytest.fixture(params=WAYS)
def server(pair: Pair, request: pytest.FixtureRequest) -> str:
    return pair.address(request.param)


def test_each_device_has_its_own_facts(server: str) -> None:
    source = """
    print(number("cuDeviceGetCount"))
    uuids, buses = [create_string_buffer(16) for _ in range(2)], []
    for device in range(2):
        cuda("cuDeviceGetUuid_v2", uuids[device], device)
        bus = create_string_buffer(32)
        cuda("cuDeviceGetPCIBusId", bus, 32, device)
        buses.append(bus.value)
        print(number("cuDeviceGetByPCIBusId", bus) == device)
    print(uuids[0].raw != uuids[1].raw, buses[0] != buses[1])
    print(cuda.result("cuDeviceGet", byref(c_int()), 2))
    print(number("cuDeviceCanAccessPeer", 0, 1))
    """
    assert said(server, source) == [
        "2", "True", "True", "True True", str(INVALID_DEVICE), "0",
    ]  # fmt: skip


def test_every_call_goes_to_its_device(server: str) -> None:
    """Memory, modules, streams and events of both devices, used alternately by two threads."""
    source = """
    import threading
    def work(device):
        cuda("cuCtxSetCurrent", contexts[device])
        assert number("cuCtxGetDevice") == device
        module = cuda.load(PTX)
        function = cuda.function(module, "fill")
        stream, event = made("cuStreamCreate", 0), made("cuEventCreate", 0)
        for turn in range(50):
            address = cuda.alloc(4)
            assert launch(function, address, 100 * device + turn, stream) == 0
            cuda("cuEventRecord", event, stream)
            cuda("cuEventSynchronize", event)
            assert word(address) == 100 * device + turn
            device_of = c_int()
            cuda("cuPointerGetAttribute", byref(device_of), 9, c_uint64(address))
            assert device_of.value == device
            cuda.free(address)
        of_stream = c_int()
        cuda("cuStreamGetDevice", stream, byref(of_stream))
        assert of_stream.value == device
        done.append(device)
    done = []
    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    work(1), work(0)
    print(sorted(done))
    """
    assert said(server, source) == ["[0, 0, 1, 1]"]


def test_handles_lead_to_their_device_whatever_context_is_current(server: str) -> None:
    source = """
    cuda("cuCtxSetCurrent", contexts[1])
    module = cuda.load(PTX)
    stream, event, address = made("cuStreamCreate", 0), made("cuEventCreate", 0), cuda.alloc(4)
    cuda("cuCtxSetCurrent", contexts[0])
    function = cuda.function(module, "fill")
    print(launch(function, address, 7, stream))
    cuda("cuEventRecord", event, stream)
    cuda("cuEventSynchronize", event)
    cuda("cuCtxSynchronize_v2", contexts[1])
    device_of = c_int()
    cuda("cuPointerGetAttribute", byref(device_of), 9, c_uint64(address))
    cuda("cuCtxPushCurrent_v2", contexts[1])
    print(word(address), device_of.value)
    cuda("cuCtxPopCurrent_v2", None)
    cuda.free(address)
    cuda("cuModuleUnload", c_uint64(module))
    cuda("cuEventDestroy_v2", event)
    cuda("cuStreamDestroy_v2", stream)
    other = made("cuCtxCreate_v2", 0, 1)
    print(number("cuCtxGetDevice"))
    cuda("cuCtxDestroy_v2", other)
    print(number("cuCtxGetDevice"))
    """
    assert said(server, source) == ["0", "7 1", "1", "0"]


def test_objects_of_another_device_are_refused(server: str) -> None:
    source = """
    cuda("cuCtxSetCurrent", contexts[1])
    function = cuda.function(cuda.load(PTX), "fill")
    library = made("cuLibraryLoadData", create_string_buffer(PTX), None, None, 0, None, None, 0)
    kernel = made("cuLibraryGetKernel", library, b"fill")
    event, far = made("cuEventCreate", 0), cuda.alloc(4)
    cuda("cuEventRecord", event, None)
    cuda("cuCtxSetCurrent", contexts[0])
    near = cuda.alloc(4)
    print(launch(function, near, 1))
    print(launch(kernel, near, 5), word(near))  # a library is on every device
    print(cuda.result("cuEventRecord", event, None))
    print(cuda.result("cuMemsetD8_v2", c_uint64(far), 1, c_size_t(4)))
    print(cuda.result("cuCtxEnablePeerAccess", contexts[1], 0))
    cuda.upload(near, b"abcd")
    print(cuda.download(near, 4))
    """
    assert said(server, source) == [
        str(INVALID_HANDLE),
        "0 5",
        str(INVALID_HANDLE),
        *map(str, (INVALID_VALUE, PEER_ACCESS_UNSUPPORTED)),
        "b'abcd'",
    ]


def test_a_handle_of_another_device_is_refused_by_name(server: str) -> None:
    """Handles that processes share are of one device. A program has its own from the other one."""
    source = """
    import subprocess, sys
    class Handle(ctypes.Structure):
        _fields_ = [("reserved", ctypes.c_char * 64)]
    def tries():
        found = []
        for device in (0, 1):
            current(device)
            found.append(cuda.result("cuIpcOpenMemHandle_v2", byref(c_uint64()), handle, 1))
        return found
    handle = Handle()
    current(1)
    cuda("cuIpcGetMemHandle", byref(handle), c_uint64(cuda.alloc(4096)))
    print(tries())  # the exporter's own device knows whose it is
    event = Handle()
    cuda("cuIpcGetEventHandle", byref(event), made("cuEventCreate", 6))
    current(0)
    print(cuda.result("cuIpcOpenEventHandle", byref(c_uint64()), event))
    text, size = create_string_buffer(4096), c_size_t(4096)
    cuda("cuLogsDumpToMemory", None, text, byref(size), 0)
    print(b"processes share memory and events of one device" in text.value)
    """
    assert said(server, source) == ["[400, 201]", "400", "True"]


def test_the_list_of_visible_devices_is_of_both(server: str) -> None:
    source = HEAD.replace("range(2)", "range(1)") + dedent("""
    print(number("cuDeviceGetCount"))
    cuda("cuCtxSetCurrent", contexts[0])
    address = cuda.alloc(4)
    cuda.upload(address, b"wxyz")
    print(cuda.download(address, 4))
    """)
    assert said(server, source, "", CUDA_VISIBLE_DEVICES="1") == ["1", "b'wxyz'"]


def test_a_forked_child_has_both_devices_too(server: str) -> None:
    source = """
    import os
    child = os.fork()
    if child == 0:
        cuda("cuInit", 0)
        contexts = [made("cuDevicePrimaryCtxRetain", device) for device in range(2)]
    for device in (1, 0):
        cuda("cuCtxSetCurrent", contexts[device])
        address = cuda.alloc(4)
        cuda.upload(address, bytes([device] * 4))
        assert cuda.download(address, 4) == bytes([device] * 4)
    if child == 0:
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    """
    assert said(server, source) == ["0"]


def test_an_error_of_one_device_leaves_the_other(server: str) -> None:
    source = """
    cuda("cuCtxSetCurrent", contexts[1])
    function = cuda.function(cuda.load(PTX), "fill")
    launch(function, 64, 1)
    print(cuda.result("cuCtxSynchronize"))
    cuda("cuCtxSetCurrent", contexts[0])
    function = cuda.function(cuda.load(PTX), "fill")
    address = cuda.alloc(4)
    assert launch(function, address, 9) == 0
    cuda("cuCtxSynchronize")
    print(word(address))
    """
    assert said(server, source) == ["700", "9"]


@pytest.mark.parametrize(
    ("devices", "lease", "sentence"),
    [
        ("0,5", "x", "device 5"),
        ("0,0", "x", "each device stands once"),
        ("0,,1", "x", "is not a device number"),
        ("0,1", "", "each needs a lease"),
    ],
)
def test_wrong_lists_are_refused(pair: Pair, devices: str, lease: str, sentence: str) -> None:
    variables = {"RGPU_DEVICE": devices, **({"RGPU_LEASE": lease} if lease else {})}
    source = 'print(cuda.result("cuInit", 0))'
    _, output, errors = clients.run(pair.first.tcp, source, **variables)
    assert output.strip() != "0"
    assert sentence in errors


# `rgpu run`


def _run(server: Server, *words: str, source: str) -> subprocess.CompletedProcess[str]:
    command = [rgpu_command(), "run", "--server", server.tcp, "--memory", "600MiB", *words]
    return subprocess.run(
        [*command, "--", sys.executable, "-c", clients.PRELUDE + source],
        env=clients.environment(None), cwd="/", capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


COUNT = """
import ctypes
count = ctypes.c_int()
cuda("cuInit", 0)
cuda("cuDeviceGetCount", ctypes.byref(count))
print(count.value)
"""


def test_a_run_gets_a_lease_on_each_device_or_none(pair: Pair) -> None:
    # Device 1 has 512 MiB, so it has no room for a lease of 600.
    done = _run(pair.first, "--device", "0,1", source=COUNT)
    assert done.returncode == 125
    assert "device 1" in done.stderr
    # The lease on device 0 is given up: all of it can be claimed at once.
    done = _run(pair.first, "--wait=30", "--device", "0", "--memory", "1000MiB", source=COUNT)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    done = _run(pair.first, "--wait=30", "--device", "1,0", "--memory", "300MiB", source=COUNT)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_numba_uses_two_devices(pair: Pair) -> None:
    program = Path(__file__).parent / "programs" / "numba_two_devices.py"
    command = [rgpu_command(), "run", "--server", pair.first.tcp, "--device", "0,1"]
    done = subprocess.run(
        [*command, "--memory", "200MiB", "--", sys.executable, str(program)],
        cwd="/", capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), done.stderr
