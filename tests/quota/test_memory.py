"""A tenant that wants more memory than it has, by every way there is, and one that never stops."""

from __future__ import annotations

import threading

import pytest
from helpers.figures import figures
from helpers.server import Server
from helpers.waiting import wait_until

from quota.tenant import MS, Tenant, in_thread, part, tenants
from rgpu_client.control import ControlClient

pytestmark = pytest.mark.measures

MIB = 1 << 20
LIMIT = 64 * MIB
PIECE = MIB // 2
OUT_OF_MEMORY = 2
STACK_SIZE = 0
LEASE = {"lease_key": "a", "memory_bytes": LIMIT, "share_request_ppm": 300_000}
VICTIM = {"lease_key": "v", "memory_bytes": LIMIT, "share_request_ppm": 700_000}


def plain(tenant: Tenant, size: int) -> int:
    return tenant.result("rgpuMemAlloc", bytes=size).status


def pitched(tenant: Tenant, size: int) -> int:
    return tenant.result(
        "rgpuMemAllocPitch", width=4096, height=size // 4096, element_bytes=4
    ).status


def pooled(tenant: Tenant, size: int) -> int:
    pool = tenant.welcome.devices[0].default_pool
    return tenant.result("rgpuPoolAlloc", pool=pool, bytes=size, stream=1).status


def stack(tenant: Tenant, size: int) -> int:
    return tenant.result("rgpuContextSetLimit", limit=STACK_SIZE, value=size // 64).status


PATHS = (plain, pitched, pooled, stack)


def used(control: ControlClient) -> int:
    return next(int(x.used_memory_bytes) for x in control.leases() if x.key == "a")


def test_every_path_at_once(server: Server, control: ControlClient) -> None:
    """Four processes of one lease, each by another path, until each is refused ten times."""
    with tenants(server, *[LEASE] * len(PATHS), VICTIM) as (*takers, victim):
        statuses: dict[str, list[int]] = {path.__name__: [] for path in PATHS}

        def take(number: int) -> None:
            path, said = PATHS[number], statuses[PATHS[number].__name__]
            while said.count(0) < 200 and len(said) - said.count(0) < 10:
                said.append(path(takers[number], PIECE))

        threads = [threading.Thread(target=take, args=(n,)) for n in range(len(PATHS))]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, used(control))
            threads[0].join(0.02)
        for thread in threads:
            thread.join()
        # A pool that may have room is asked first, and grows by one allocation if its room is in
        # pieces. That is undone (docs/explanation/quotas-memory.md).
        assert most <= LIMIT + PIECE
        for name, said in statuses.items():
            assert set(said) <= {0, OUT_OF_MEMORY}, (name, said)
        # Together they reached the limit, and none could take memory of the neighbour.
        wait_until(lambda: used(control) <= LIMIT)
        assert used(control) > LIMIT - 2 * MIB
        assert plain(victim, 48 * MIB) == 0
        for taker in takers:
            info = taker.call("rgpuMemGetInfo")
            assert 0 <= int(info["free"]) <= int(info["total"]) == LIMIT


def test_a_storm_of_allocations(server: Server, control: ControlClient) -> None:
    """One tenant allocates and frees as fast as it can. Its neighbour keeps its time, and no memory
    is lost.
    """
    with tenants(server, LEASE, VICTIM) as (taker, victim):
        pool = taker.welcome.devices[0].default_pool
        before = used(control)

        def storm(over: threading.Event) -> None:
            while not over.is_set():
                at = taker.alloc(4 * MIB)
                taker.post("rgpuMemFree", dptr=at)
                at = int(taker.call("rgpuPoolAlloc", pool=pool, bytes=MIB, stream=1)["dptr"])
                taker.post("rgpuPoolFree", dptr=at, stream=1)

        with in_thread(storm):
            for _ in range(300):
                victim.hold(2 * MS)
            runs = victim.runs()
        taker.synchronize()
        taker.post("rgpuPoolTrim", pool=pool, keep=0)
        taker.synchronize()
        assert used(control) <= before + 4 * MIB
        assert plain(taker, 48 * MIB) == 0
        with figures():
            assert part(runs, runs[0].begin, runs[-1].end) >= 0.5
