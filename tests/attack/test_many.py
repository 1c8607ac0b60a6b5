"""Tenants that try to take more than they were granted, by many leases or many sessions."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.asking import running_on
from helpers.figures import figures
from helpers.needs import needs
from helpers.server import Server
from quota.tenant import MS, Run, tenants, union

from attack.door import Lane
from rgpu_common.wire.welcome import Welcome

pytestmark = pytest.mark.measures

MIB = 1 << 20
LONG = 100 * MS
LEASES = 16


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("taking") / "rgpu.toml"
    config.write_text("[sessions]\nmax = 8\nresume_grace_seconds = 0\n")
    with Server("--config", str(config)) as running:
        yield running


def longest_wait(runs: list[Run]) -> int:
    return max(later.begin - run.end for run, later in itertools.pairwise(runs))


def test_a_storm_of_small_leases_takes_one_tenants_share(server: Server) -> None:
    """One tenant has 90 %. Another tenant has many leases of 1 ppm that all launch a long kernel at
    the same moment. The first tenant waits for one or two of these kernels, not for all.
    """
    wish = {"share_request_ppm": 1, "memory_bytes": 8 * MIB, "tenant": "storm"}
    leases = [{"lease_key": f"storm-{n}", **wish} for n in range(LEASES)]
    owner = {"lease_key": "v", "share_request_ppm": 900_000, "memory_bytes": 64 * MIB}
    with (
        tenants(server, {**owner, "tenant": "owner"}) as (victim,),
        tenants(server, *leases) as all_,
    ):
        for _ in range(1200):
            victim.hold(2 * MS)
        for lease in all_:
            lease.hold(LONG)
            lease.hold(LONG)
        ours = victim.runs()
        theirs = [run for lease in all_ for run in lease.runs()]
    assert len(theirs) == 2 * LEASES
    begin, end = ours[0].begin, ours[-1].end
    with figures():
        assert any(begin < run.begin < end for run in theirs), "they ran one after the other"
        assert longest_wait(ours) <= 2.5 * LONG
        assert union(theirs, begin, end) <= 0.15 * (end - begin) + 2 * LONG


@needs("root")  # who may look into a worker
def test_no_worker_can_write_what_its_lease_was_granted(server: Server) -> None:
    """Checks the mappings of the lease's page and the descriptors of a worker with a session."""
    with tenants(server, {"lease_key": "page", "memory_bytes": 64 * MIB}):
        # Workers of earlier sessions may be about to end.
        sessions = running_on(server.tcp)["sessions"]
        (pid,) = (one["worker_pid"] for one in sessions if one["lease_key"] == "page")
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        rights = [line.split()[1] for line in maps if "memfd:rgpu-lease" in line]
        assert sorted(rights) == ["r--s", "rw-s"]
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if "rgpu-lease" not in os.readlink(fd):
                continue
            flags = Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text().split("flags:")[1]
            writes = int(flags.split()[0], 8) & os.O_ACCMODE != os.O_RDONLY
            assert not writes or fd.stat().st_size == 8192


def test_one_tenant_does_not_get_every_session(small_server: Server) -> None:
    lanes = []
    try:
        for n in range(8):
            lanes.append(Lane(small_server.tcp))
            answer = lanes[-1].hello(tenant="greedy", lease_key=f"k{n}", memory_bytes=MIB)
            if n < 4:
                assert isinstance(answer, Welcome), answer
                continue
            assert isinstance(answer, tuple), answer
            assert "'greedy' has 4 sessions" in answer[1].sentence
            assert "sessions.per_tenant" in answer[1].sentence
        code, output, errors = clients.run(small_server.tcp, 'print(cuda.result("cuInit", 0))')
        assert (code, output) == (0, "0\n"), errors
    finally:
        for lane in lanes:
            lane.close()
