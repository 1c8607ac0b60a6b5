"""One of several devices is lost, or stands still: its own calls give the error, and the other
device goes on. Streams that waited for the lost one go on, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import clients
from helpers.command import rgpu_command
from helpers.proxy import CuttingProxy
from helpers.server import Server, configured
from helpers.two_devices import HEAD, WAYS, Pair, devices_of

LOST, REVOKED = 911, 46
# On device 1 `held` waits for the word `gate` for ever. `tell()` lets the test act, and then goes on.
START = (
    HEAD
    + r"""
current(1)
gate, held, event = cuda.alloc(4), made("cuStreamCreate", 1), made("cuEventCreate", 2)
cuda.upload(gate, bytes(4))
cuda("cuStreamWaitValue32_v2", held, c_uint64(gate), 1, 0)
current(0)
near, fill = cuda.alloc(64), cuda.function(cuda.load(PTX), "fill")
own = made("cuStreamCreate", 1)

def tell():
    print("now", flush=True)
    wait_for_line()

def lost():
    current(1)
    found = cuda.result("cuCtxSynchronize")
    current(0)
    return found

def works(value):
    assert launch(fill, near, value, own) == 0
    cuda("cuStreamSynchronize", own)
    return word(near) == value
"""
)


@pytest.fixture(scope="module")
def running() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@contextmanager
def client(
    server: str, source: str, lease: str = "lost", **extra: str
) -> Iterator[subprocess.Popen[str]]:
    """Starts the source; the block begins when it tells."""
    process = clients.start(
        None if "," in server else server, START + dedent(source), RGPU_DEVICE=devices_of(server),
        RGPU_LEASE=lease, RGPU_MEMORY="200MiB", **{**clients.trust(), **extra},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "now\n":
            raise AssertionError(process.communicate()[1])
        yield process
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    output, errors = process.communicate("\n", timeout=60)
    assert process.returncode == 0, errors
    return output.splitlines(), errors


def worker(server: Server, lease: str) -> int:
    """Returns the process id of the worker that serves the lease."""
    done = subprocess.run(
        [rgpu_command(), "ps", "--json", "--server", server.tcp],
        cwd="/", check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = json.loads(done.stdout)
    (wanted,) = (one["lease_id"] for one in found["leases"] if one["lease_key"] == lease)
    (pid,) = (one["worker_pid"] for one in found["sessions"] if one["lease_id"] == wanted)
    return int(pid)


@pytest.fixture(params=WAYS)
def second(running: Pair, request: pytest.FixtureRequest) -> tuple[str, Server]:
    """The address for `client`, and the server of device 1."""
    way = request.param
    return running.address(way), running.second if "+" in way else running.first


@pytest.fixture
def lease(request: pytest.FixtureRequest) -> str:
    """A lease of the test's own: sessions of killed clients stay for a while."""
    return "t" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-50:]


@pytest.mark.parametrize(("how", "error"), [("killed", LOST), ("revoked", REVOKED)])
def test_a_lost_worker_holds_no_stream_of_another_device(
    second: tuple[str, Server], lease: str, how: str, error: int
) -> None:
    """A stream waits for an event of the device whose worker is killed, or whose lease is revoked,
    and a thread for the stream.
    """
    source = """
    import threading
    cuda("cuEventRecord", event, held)
    streams = [made("cuStreamCreate", 1) for _ in range(2)]
    for number_of, stream in enumerate(streams):
        cuda("cuStreamWaitEvent", stream, event, 0)
        cuda("cuMemsetD32Async", c_uint64(near + 32 + 4 * number_of), 5, c_size_t(1), stream)
    waits = threading.Thread(target=cuda, args=("cuStreamSynchronize", streams[0]))
    waits.start()
    assert cuda.result("cuStreamQuery", streams[1]) == 600
    tell()
    waits.join()
    cuda("cuStreamSynchronize", streams[1])
    print(cuda.download(near + 32, 8) == (5).to_bytes(4, "little") * 2, works(7), lost())
    print(cuda.result("cuEventQuery", event), cuda.result("cuStreamWaitEvent", streams[0], event, 0))
    print(works(8))
    """
    with client(second[0], source, lease) as process:
        if how == "killed":
            os.kill(worker(second[1], f"{lease}.1"), signal.SIGKILL)
        else:
            revoke = [rgpu_command(), "lease", "revoke", f"{lease}.1", "--server", second[1].tcp]
            subprocess.run(revoke, cwd="/", check=True, capture_output=True, timeout=60)
        output, errors = end(process)
    assert output == [f"True True {error}", f"{error} {error}", "True"]
    assert "for this device" in errors


@pytest.mark.parametrize("source_is_lost", [True, False])
def test_a_copy_whose_other_device_is_lost_ends(
    second: tuple[str, Server], lease: str, source_is_lost: bool
) -> None:
    """The copy waits in a stream of the device that is killed. Its destination's bytes are
    undefined, all others stay.
    """
    source = f"""
    size = 20 << 20
    mine = cuda.alloc(size)
    cuda.upload(mine, bytes(size))
    cuda.upload(near, b"stays")
    current(1)
    far = cuda.alloc(size)
    current(0)
    ends = (mine, 0, far, 1) if {source_is_lost} else (far, 1, mine, 0)
    cuda("cuMemcpyPeerAsync", c_uint64(ends[0]), contexts[ends[1]], c_uint64(ends[2]),
         contexts[ends[3]], c_size_t(size), held)
    tell()
    cuda("cuCtxSynchronize")
    print(cuda.download(near, 5), lost(), works(3))
    print(cuda.result("cuMemcpyPeer", c_uint64(ends[0]), contexts[ends[1]], c_uint64(ends[2]),
                      contexts[ends[3]], c_size_t(size)))
    cuda.upload(mine, bytes([9]) * size)
    print(cuda.download(mine, size) == bytes([9]) * size)
    """
    with client(second[0], source, lease) as process:
        os.kill(worker(second[1], f"{lease}.1"), signal.SIGKILL)
        output, _ = end(process)
    assert output == [f"b'stays' {LOST} True", str(LOST), "True"]


def test_a_synchronous_copy_from_a_lost_device_ends(second: tuple[str, Server], lease: str) -> None:
    """It waits for the device's context when the worker is killed."""
    source = """
    import threading
    current(1)
    far = cuda.alloc(4096)
    cuda("cuMemsetD8Async", c_uint64(far), 1, c_size_t(4096), held)
    current(0)
    results = []
    def copy():
        current(0)
        results.append(cuda.result("cuMemcpyDtoD_v2", c_uint64(near), c_uint64(far), c_size_t(64)))
    waits = threading.Thread(target=copy)
    waits.start()
    tell()
    waits.join()
    print(results, works(4), lost())
    """
    with client(second[0], source, lease) as process:
        os.kill(worker(second[1], f"{lease}.1"), signal.SIGKILL)
        output, _ = end(process)
    assert output == [f"[{LOST}] True {LOST}"]


def test_a_server_that_dies_leaves_the_other_devices(running: Pair) -> None:
    with Server() as dying:
        server = f"{running.first.tcp},{dying.tcp}"
        source = """
        cuda("cuEventRecord", event, held)
        stream = made("cuStreamCreate", 1)
        cuda("cuStreamWaitEvent", stream, event, 0)
        tell()
        cuda("cuStreamSynchronize", stream)
        print(works(5), lost())
        """
        with client(server, source, RGPU_RESUME="0") as process:
            for child in [*dying.descendants(), dying.process.pid]:  # type: ignore[union-attr]
                with suppress(ProcessLookupError):  # some end with their parents
                    os.kill(child, signal.SIGKILL)
            output, errors = end(process)
    assert output == [f"True {LOST}"]
    assert dying.tcp in errors


def test_a_device_that_stands_still_holds_no_other_up(
    second: tuple[str, Server], lease: str
) -> None:
    """While the worker of one device is stopped, everything works on the other one: launches,
    copies, host functions, new threads and their end, loads of libraries, waits for events.
    """
    source = """
    import threading
    current(1)
    far = cuda.alloc(64 << 20)
    more, far_stream = cuda.function(cuda.load(PTX), "more"), made("cuStreamCreate", 1)
    library = made("cuLibraryLoadData", create_string_buffer(PTX), None, None, 0, None, None, 0)
    cuda("cuEventRecord", event, held)
    current(0)
    tell()
    def pester():  # until the connection is full, and longer
        current(1)
        for _ in range(16):
            cuda("cuMemcpyHtoD_v2", c_uint64(far), bytes(32 << 20), c_size_t(32 << 20))
    pesters = threading.Thread(target=pester)
    pesters.start()
    stream, called = made("cuStreamCreate", 1), threading.Event()
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: called.set())
    def work(turn):
        current(0)
        assert works(turn)
        assert cuda.result("cuStreamQuery", c_void_p(2)) == 0  # this thread's own stream
    for turn in range(20):
        thread = threading.Thread(target=work, args=(turn,))
        thread.start()
        thread.join()
    cuda("cuLaunchHostFunc", stream, function, None)
    cuda("cuStreamSynchronize", stream)
    kernel = made("cuLibraryGetKernel", made("cuLibraryLoadData", create_string_buffer(PTX), None,
                                             None, 0, None, None, 0), b"fill")
    assert launch(kernel, near, 3) == 0
    cuda("cuCtxSynchronize")
    print(called.is_set(), word(near))
    tell()
    current(1)
    cuda("cuStreamWriteValue32_v2", far_stream, c_uint64(gate), 1, 0)
    cuda("cuStreamWaitEvent", stream, event, 0)
    cuda("cuStreamSynchronize", stream)
    pesters.join()
    print(lost())
    """
    with client(second[0], source, lease) as process:
        stopped = worker(second[1], f"{lease}.1")
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert [process.stdout.readline() for _ in range(2)] == ["True 3\n", "now\n"]
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert end(process)[0] == ["0"]


def test_a_cut_of_one_server_is_its_own(running: Pair, tmp_path: Path) -> None:
    """Streams of both devices wait for the other one when the connection of one is cut. The other
    device works until the cut one is back, and then all streams go on.
    """
    # On a busy machine the other device's work may take longer than a server waits by default.
    patient = ("--config", configured(tmp_path, resume_grace_seconds=60))
    source = """
    cuda("cuEventRecord", event, held)
    gates, streams, places = cuda.alloc(4), [made("cuStreamCreate", 1) for _ in range(2)], [near + 32]
    cuda.upload(gates, bytes(4))
    cuda("cuStreamWaitEvent", streams[0], event, 0)
    cuda("cuStreamWaitValue32_v2", streams[1], c_uint64(gates), 1, 0)
    near_event = made("cuEventCreate", 2)
    cuda("cuEventRecord", near_event, streams[1])
    current(1)
    places.append(cuda.alloc(4))
    streams[1] = made("cuStreamCreate", 1)
    cuda("cuStreamWaitEvent", streams[1], near_event, 0)
    for stream, place in zip(streams, places):
        cuda("cuMemsetD32Async", c_uint64(place), 6, c_size_t(1), stream)
    cuda("cuStreamSynchronize", made("cuStreamCreate", 1))
    current(0)
    tell()
    cuda("cuStreamWriteValue32_v2", own, c_uint64(gates), 1, 0)
    cuda("cuEventSynchronize", near_event)
    print([works(turn) for turn in range(5)] == [True] * 5, flush=True)
    tell()
    current(1)
    cuda("cuStreamWriteValue32_v2", made("cuStreamCreate", 1), c_uint64(gate), 1, 0)
    for device, (stream, place) in enumerate(zip(streams, places)):
        current(device)
        cuda("cuStreamSynchronize", stream)
        print(word(place))
    print(lost())
    """
    with Server(*patient) as second, CuttingProxy(second.tcp) as proxy:
        server = f"{running.first.tcp},{proxy.address}"
        with client(server, source) as process:
            proxy.cut(away_seconds=60)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert [process.stdout.readline() for _ in range(2)] == ["True\n", "now\n"]
            proxy.cut()  # it takes connections again
            assert end(process)[0] == ["6", "6", "0"]
