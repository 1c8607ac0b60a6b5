"""A tenant that has CUDA C++ compiled in many sessions at once: its bound is the tenant's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers.server import Server, patient_server
from helpers.waiting import wait_until

from attack.array_lane import ArrayLane, V, worker_of
from rgpu_common.arrays.messages import Tag
from rgpu_server.config import CompilerLimits

MIB = 1 << 20
SESSIONS = 5
BOUND = CompilerLimits().processes
SMALL = 'extern "C" __global__ void one(int* x) { *x = 1; }'
# Makes 2 ** 60 types, one within the other: the compiler never comes to an end.
ENDLESS = """
template <int N, long K> struct Tree {
    static constexpr long any = Tree<N - 1, 2 * K>::any | Tree<N - 1, 2 * K + 1>::any;
};
template <long K> struct Tree<0, K> { static constexpr long any = K; };
extern "C" __global__ void one(long* x) { *x = Tree<60, 1>::any; }
"""
SERVER = "rgpu_server.arrays.nvrtc_server"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with patient_server() as running:
        yield running


def compiled(lane: ArrayLane, source: str) -> int:
    """Has a kernel compiled; returns its id at once."""
    return lane.run("kernel.compile", [V, V, [Tag.LIST]], [source, "one"])


def parent(pid: int) -> int:
    """Returns the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def jobs(server: Server, workers: set[int]) -> int:
    """How many processes compile for these workers. Each is the child of one that starts them, and
    that is the child of its worker.
    """
    starters = set(server.called(SERVER))
    return sum(
        (starter := parent(one)) in starters and parent(starter) in workers for one in starters
    )


def test_sessions_of_one_tenant_compile_within_its_bound_and_others_beside(server: Server) -> None:
    """A regression: each session compiled with 2 GiB and a processor of its own."""
    with ExitStack() as stack:
        hostile: list[ArrayLane] = []
        workers: set[int] = set()
        for number in range(SESSIONS):
            tenant = {"lease_key": f"k{number}", "memory_bytes": 16 * MIB}
            hostile.append(stack.enter_context(ArrayLane(server, "mallory", **tenant)))
            workers.add(worker_of(server, hostile[-1]))
        bob = stack.enter_context(ArrayLane(server, "bob", memory_bytes=16 * MIB))
        *endless, last = hostile
        for lane in endless:
            compiled(lane, ENDLESS)
        wait_until(lambda: jobs(server, workers) >= BOUND)
        asked = compiled(last, SMALL)
        kernel = compiled(bob, SMALL)
        seen = {jobs(server, workers)}
        bob.done(kernel)
        seen.add(jobs(server, workers))
        assert max(seen) <= BOUND, "bob's kernel was compiled beside what mallory may"
        # The places of sessions that have ended come back.
        for lane in endless:
            lane.close()
        last.done(asked)
        wait_until(lambda: jobs(server, workers) == 0)
