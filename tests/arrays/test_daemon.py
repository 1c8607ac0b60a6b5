"""Sessions of the array seam through a real server: one lease, one table, one set of rules."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.agent import GRPC
from helpers.command import rgpu_command
from helpers.file_locks import waited_for
from helpers.needs import needs
from helpers.server import HAS_UCX, PATIENT, TRANSPORTS, UCX, Server
from helpers.waiting import wait_until

SUM = "import rgpu_client.cupy as cp; print(int((cp.arange(10) ** 2).sum()))"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*GRPC, *(UCX if HAS_UCX else ()), tls=pki.config(more=PATIENT)) as one:
        yield one


def start(server: str, source: str, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(source)], env=clients.environment(server, **extra), cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(server: str, source: str, **extra: str) -> str:
    """Runs a program to its end, and returns what it printed."""
    output, errors = (process := start(server, source, **extra)).communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.strip()


def listed(server: Server) -> dict[str, list[dict[str, object]]]:
    words = [rgpu_command(), "ps", "--json", "--server", server.unix]
    found: dict[str, list[dict[str, object]]] = json.loads(
        subprocess.check_output(words, timeout=60)
    )
    return found


def seams_of(server: Server, key: str) -> list[str]:
    """Returns the seams of a lease in the server's record."""
    words = [rgpu_command(), "quota", "report", "--by-lease", "--json", "--server", server.unix]
    series = json.loads(subprocess.check_output(words, timeout=60))["series"]
    return [seam for one in series if one["key"] == key for seam in one["seams"]]


def test_a_program_computes_on_the_node(server: Server) -> None:
    assert run(server.unix, SUM) == "285"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_on_every_transport(server: Server, transport: str) -> None:
    assert run(server.address(transport), SUM) == "285"


def test_an_unmodified_program_finds_cupy(server: Server) -> None:
    source = "import cupy as cp, cupy.linalg; print(float(cp.linalg.norm(cp.asarray([3.0, 4.0]))), cp.__name__)"
    words = [
        rgpu_command(),
        "run",
        "--server",
        server.unix,
        "--arrays",
        "--",
        sys.executable,
        "-c",
        source,
    ]
    output = subprocess.check_output(
        words, text=True, timeout=120, cwd="/", env=clients.environment(None)
    )
    assert output.strip() == "5.0 rgpu_client.cupy"


def test_the_session_shows_its_seam_and_its_lease(server: Server) -> None:
    holder = start(
        server.unix,
        "import rgpu_client.cupy as cp; a = cp.zeros(1 << 20); a.get(); print('here'); input()",
        RGPU_LEASE="shown",
        RGPU_MEMORY="64MiB",
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    (session,) = [one for one in listed(server)["sessions"] if one["lease_key"] == "shown"]
    assert session["seam"] == "cupy"
    top = [rgpu_command(), "top", "--json", "--server", server.unix]
    seen = json.loads(subprocess.check_output(top, timeout=60))["leases"]
    assert [one["seams"] for one in seen if one["key"] == "shown"] == [["cupy"]]
    (lease,) = [one for one in listed(server)["leases"] if one["lease_key"] == "shown"]
    assert (8 << 20) <= int(str(lease["usage"]["memory_used_bytes"])) < (9 << 20)  # type: ignore[index]
    assert holder.communicate("\n", timeout=60)[1] == ""
    wait_until(lambda: not listed(server)["sessions"])
    # The record keeps it when the session is over.
    wait_until(lambda: seams_of(server, "shown") == ["cupy"])


def test_the_lease_bounds_the_memory(server: Server) -> None:
    source = """
    import numpy as np
    import rgpu_client.cupy as cp
    kept = [cp.zeros(1 << 20) for _ in range(3)]
    kept[2].get()
    for make in (cp.ones, cp.empty, lambda size: cp.asarray(np.ones(size)), lambda size: cp.arange(size) * 2):
        try:
            make(6 << 20)
        except cp.cuda.memory.OutOfMemoryError as error:
            print(error)
    try:
        while len(kept) < 100:
            kept.append(kept[-1] + 1)
    except MemoryError:
        print(len(kept))
    kept.clear()
    print(float(cp.ones(6 << 20).sum()))
    """
    *refused, most, done = run(server.unix, source, RGPU_MEMORY="64MiB").splitlines()
    assert len(refused) == 4
    assert all("Out of memory allocating 50,331,648 bytes" in one for one in refused)
    assert most in ("7", "8")
    assert done == f"{6 << 20}.0"


@pytest.mark.parametrize(
    ("take", "library"),
    [
        pytest.param("lib.empty(40 << 20, 'u1')", "rgpu_client.cupy", id="cupy"),
        pytest.param(
            "lib.empty(40 << 20, dtype=lib.uint8, device='rgpu')",
            "rgpu_client.torch; import torch",
            marks=needs("torch"),
            id="torch",
        ),
    ],
)
def test_what_one_program_frees_another_of_its_lease_gets(
    server: Server, take: str, library: str
) -> None:
    """Also when the first one issues nothing any more, as a notebook that nobody touches."""
    source = f"""
    import {library} as lib
    for line in map(str.strip, open(0)):
        if line == "take":
            a = {take}
            a[:1] = 1
            assert int(a[:1].sum()) == 1
        else:
            del a
        print(line, flush=True)
    """
    both = [
        start(server.unix, source, RGPU_LEASE=library[12:16], RGPU_MEMORY="64MiB") for _ in range(2)
    ]
    try:
        for who, line in [(0, "take"), (0, "free"), (1, "take"), (1, "free"), (0, "take")]:
            stdin, stdout = both[who].stdin, both[who].stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(f"{line}\n")
            stdin.flush()
            said = stdout.readline()
            assert said == f"{line}\n", said or both[who].communicate(timeout=60)[1]
    finally:
        ends = [one.communicate(timeout=60)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], ends


def test_kernels_run_on_the_device(server: Server) -> None:
    source = """
    import rgpu_client.cupy as cp
    saxpy = cp.RawKernel(r'''
    extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }''', "saxpy")
    x, y = cp.arange(1000, dtype=cp.float32), cp.ones(1000, dtype=cp.float32)
    saxpy((4,), (256,), (cp.float32(2), x, y, 1000))
    print(float(y[999]))
    square = cp.ElementwiseKernel("T a", "T b", "b = a * a", "square")
    print(float(square(x)[9]))
    total = cp.ReductionKernel("T a", "T b", "a", "a + b", "b = a", "0", "total")
    print(float(total(x)))
    """
    assert run(server.unix, source).split() == ["1999.0", "81.0", "499500.0"]


def places_of(server: Server) -> int:
    """Opens the file of the places at which the one tenant with a session compiles."""
    assert server.process is not None
    folder = Path(f"/proc/{server.process.pid}/fd")
    (file,) = (one for one in folder.iterdir() if "rgpu-compile-places" in os.readlink(one))
    return os.open(file, os.O_RDWR | os.O_CLOEXEC)


def test_a_worker_in_its_sandbox_waits_for_a_place_to_compile(server: Server) -> None:
    source = """
    import rgpu_client.cupy as cp
    x = cp.arange(10)
    x.get()
    print("here")
    input()
    print(float(cp.ElementwiseKernel("T a", "T b", "b = 3 * a", "triple")(x)[9]))
    """
    program = start(server.unix, source)
    assert program.stdout is not None
    assert program.stdout.readline() == "here\n"
    places = places_of(server)
    try:
        fcntl.lockf(places, fcntl.LOCK_EX)  # all of them
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        wait_until(lambda: waited_for(places))
    finally:
        os.close(places)  # which unlocks them
    output, errors = program.communicate(timeout=120)
    assert (program.returncode, output) == (0, "27.0\n"), errors


def test_who_is_killed_leaves_nothing(server: Server) -> None:
    holder = start(
        server.unix, "import rgpu_client.cupy as cp; cp.zeros(9).get(); print('here'); input()"
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    wait_until(lambda: not listed(server)["sessions"])


def test_nothing_is_computed_for_who_is_killed(server: Server) -> None:
    """The session ends in the middle of an operation that cannot end, because the test has all
    places to compile. So what the client has sent after it is never begun.
    """
    source = """
    import rgpu_client.cupy as cp
    a = cp.arange(10)
    a.get()
    print("here")
    input()
    cp.ElementwiseKernel("T a", "T b", "b = 5 * a", "quintuple")(a) @ a
    a._session.issuer.flush()
    input()
    """
    holder = start(server.unix, source, RGPU_LEASE="killed")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    places = places_of(server)
    try:
        fcntl.lockf(places, fcntl.LOCK_EX)  # all of them
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        wait_until(lambda: waited_for(places))
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        wait_until(lambda: "killed" not in [one["lease_key"] for one in listed(server)["sessions"]])
        wait_until(lambda: not waited_for(places))
    finally:
        os.close(places)  # which unlocks them


def test_a_session_that_is_ended_says_why_at_the_line_that_needs_a_value(server: Server) -> None:
    source = """
    import rgpu_client.cupy as cp
    a = cp.zeros(9)
    a.get()
    print('here')
    input()
    try:
        a.get()
    except Exception as error:
        print(type(error).__name__, error)
    """
    holder = start(server.unix, source, RGPU_LEASE="ended")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    (lease,) = [one for one in listed(server)["leases"] if one["lease_key"] == "ended"]
    words = [rgpu_command(), "lease", "revoke", str(lease["lease_id"]), "--server", server.unix]
    subprocess.run(words, check=True, timeout=60, stdout=subprocess.DEVNULL)
    output, _ = holder.communicate("\n", timeout=60)
    assert output.startswith("SessionLostError the session has ended: "), output
    assert "revoked" in output


def test_a_library_that_the_node_lacks_is_named(server: Server) -> None:
    if find_spec("torch") is not None:
        pytest.skip("PyTorch is installed here")
    source = """
    from rgpu_client.arrays.opening import open_session
    from rgpu_common.arrays.seams import Seam
    try:
        open_session(Seam.TORCH)
    except Exception as error:
        print(type(error).__name__, error)
    """
    assert "NoSessionError this server does not execute arrays of torch: install rgpu there" in run(
        server.unix, source
    )


@needs("torch")
def test_a_program_that_says_cuda_runs(server: Server) -> None:
    source = """
import torch
assert torch.cuda.is_available()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
x = torch.ones(3, 4).cuda()
print(tuple(model(x).cpu().shape), torch.cuda.device_count(), torch.cuda.mem_get_info()[1] >> 20)
told = torch.cuda.get_device_properties(0)
assert (told.major, told.minor) == torch.cuda.get_device_capability()
print(told.name == torch.cuda.get_device_name(), told.total_memory >> 20)
at = torch.tensor([9], device=device)
try:
    x.index_select(0, at)
except IndexError:
    print("blocked")
"""
    words = [
        rgpu_command(),
        "run",
        "--server",
        server.unix,
        "--memory",
        "256MiB",
        "--torch",
        "--",
        sys.executable,
        "-c",
        source,
    ]
    output = subprocess.check_output(
        words,
        text=True,
        timeout=120,
        cwd="/",
        env=clients.environment(None, CUDA_LAUNCH_BLOCKING="1"),
    )
    assert output.splitlines() == ["(3, 2) 1 256", "True 256", "blocked"]


@needs("torch")
def test_pytorch_trains_on_the_node_as_on_this_machine(server: Server) -> None:
    source = """
    import torch, rgpu_client.torch

    def losses(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        x, y = torch.randn(32, 8).to(device), torch.randn(32, 1).to(device)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    print(losses("cpu") == losses("rgpu"))
    """
    assert run(server.unix, source) == "True"


@needs("torch")
def test_a_seed_holds_for_the_session_that_is_opened_later(server: Server) -> None:
    source = """
    import torch, rgpu_client.torch
    torch.manual_seed(7)
    first = torch.randn(3, device="rgpu").tolist()
    torch.manual_seed(7)
    print(first == torch.randn(3, device="rgpu").tolist() == torch.randn(3).tolist())
    """
    assert run(server.unix, source) == "True"
