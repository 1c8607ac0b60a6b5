"""The memory that pools, and frees from other contexts, hold by the device's own counters, against
the lease's limit and the bounds that docs/explanation/quotas-memory.md states.
"""

from __future__ import annotations

import pytest
from helpers.waiting import wait_until

from worker.client import LEGACY, Client
from worker.leased import (
    DEFAULT_POOL,
    LIMIT,
    MIB,
    OUT_OF_MEMORY,
    held,
    leased,
    load,
    pool_alloc,
    until_refused,
    with_table,
)  # fmt: skip


@pytest.mark.parametrize("pools", [1, 5])
def test_pools_hold_what_is_charged(pools: int) -> None:
    with leased() as (client, page):
        ids = [DEFAULT_POOL, *range(30, 29 + pools)]
        for pool in ids[1:]:
            client.call("rgpuPoolCreate", pool=pool, device=0, max_bytes=0)
        until_refused(lambda n: pool_alloc(client, ids[n % pools], 700_000))
        assert held(client, page) == page.used() <= LIMIT
        # All that is left is less than one growth.
        assert page.used() > LIMIT - 2 * MIB - 700_000


def test_a_pool_in_pieces_does_not_grow_past_the_limit() -> None:
    """Much is free in the pool, but no piece is large enough."""
    with leased() as (client, page):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        # RELEASE_THRESHOLD: the pool keeps freed memory.
        client.call("rgpuMemGetInfo")
        client.post("rgpuPoolSetAttribute", pool=30, attribute=4, value=(1 << 64) - 1)
        pieces: list[int] = []

        def one(_: int) -> int:
            answer = client.result("rgpuPoolAlloc", pool=30, bytes=MIB, stream=LEGACY)
            if answer.status == 0:
                pieces.append(int(answer.values["dptr"]))
            return answer.status

        until_refused(one)
        for address in pieces[::2]:
            client.post("rgpuPoolFree", dptr=address, stream=LEGACY)
        half = len(pieces[::2]) * MIB
        assert pool_alloc(client, 30, half + 8 * MIB) == OUT_OF_MEMORY
        assert held(client, page) <= LIMIT
        assert pool_alloc(client, 30, half - 2 * MIB) == 0, "what is unused was given up for it"
        assert held(client, page) == page.used() <= LIMIT


def test_a_stream_reuses_what_it_freed_although_the_lease_is_full() -> None:
    with leased() as (client, page):
        size = LIMIT - 4 * MIB
        for _ in range(8):
            answer = client.result("rgpuPoolAlloc", pool=DEFAULT_POOL, bytes=size, stream=LEGACY)
            assert answer.status == 0
            client.post("rgpuPoolFree", dptr=answer.values["dptr"], stream=LEGACY)
            assert held(client, page) <= LIMIT


def test_a_destroyed_pool_is_charged_until_its_last_allocation_is_freed() -> None:
    with leased() as (client, page):
        for pool in range(30, 36):
            client.call("rgpuPoolCreate", pool=pool, device=0, max_bytes=0)
            answer = client.result("rgpuPoolAlloc", pool=pool, bytes=20 * MIB, stream=LEGACY)
            client.post("rgpuPoolDestroy", pool=pool)
            if answer.status == OUT_OF_MEMORY:
                break
            address = int(answer.values["dptr"])
            client.upload(address, b"still there")
            assert client.download(address, 11) == b"still there"
        assert held(client, page) == page.used() == 60 * MIB
        client.post("rgpuPoolFree", dptr=address, stream=LEGACY)
        wait_until(lambda: page.used() == 40 * MIB)
        assert held(client, page) == 40 * MIB


@pytest.mark.parametrize("pool", [30, DEFAULT_POOL])
def test_a_pool_outlives_the_context_it_was_made_in(pool: int) -> None:
    """Allocations of another context stay and are charged; those of the first context are freed."""
    with leased() as (client, page):
        if pool != DEFAULT_POOL:
            client.call("rgpuPoolCreate", pool=pool, device=0, max_bytes=0)
        assert pool_alloc(client, pool, 20 * MIB) == 0
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.context = 11
        values = {"pool": pool, "bytes": 40 * MIB, "stream": LEGACY}
        address = int(client.call("rgpuPoolAlloc", **values)["dptr"])
        client.call("rgpuContextDestroy", ctx=10)
        assert held(client, page) == page.used() == 40 * MIB
        client.upload(address, b"still there")
        assert client.download(address, 11) == b"still there"
        assert pool_alloc(client, pool, 40 * MIB) == OUT_OF_MEMORY
        client.post("rgpuPoolFree", dptr=address, stream=LEGACY)
        assert pool_alloc(client, pool, 40 * MIB) == 0
        assert held(client, page) == page.used() == 40 * MIB


def test_a_destroyed_pool_goes_with_the_context_of_its_last_allocation() -> None:
    with leased() as (client, page):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        assert pool_alloc(client, 30, 20 * MIB) == 0
        client.post("rgpuPoolDestroy", pool=30)
        client.context = 11
        assert held(client, page) == page.used() == 20 * MIB
        client.call("rgpuContextDestroy", ctx=10)
        assert held(client, page) == page.used() == 0


def test_a_pool_without_any_context() -> None:
    with leased() as (client, page):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        client.post("rgpuPoolSetAttribute", pool=30, attribute=4, value=(1 << 64) - 1)
        assert pool_alloc(client, 30, 40 * MIB) == 0
        client.call("rgpuContextDestroy", ctx=10)
        assert page.used() == 40 * MIB, "above no threshold: the pool keeps it"
        client.call("rgpuPrimaryRetain", ctx=11, device=0, flags=0)
        client.context = 11
        assert held(client, page) == 40 * MIB
        client.post("rgpuPoolDestroy", pool=30)
        wait_until(lambda: page.used() == 0)
        assert held(client, page) == 0


def stands_still(client: Client) -> int:
    """A stream of the current context waits for ever; the address that it waits on."""
    flag = client.alloc(4096)
    client.upload(flag, bytes(4))
    client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
    client.wait_value(20, flag, 1)
    return flag


@pytest.mark.parametrize("free", ["plain", "in a stream", "of a pool", "a pool", "a module"])
def test_what_another_context_frees_is_charged_until_its_own_is_done(free: str) -> None:
    with leased() as (client, page):
        if free == "a module":
            assert load(client, 40, with_table(20 * MIB)) == 0
        flag = stands_still(client)
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0, context=11)
        if "pool" in free:
            values = {"pool": 30, "bytes": 20 * MIB, "stream": 20}
            block = int(client.call("rgpuPoolAlloc", **values)["dptr"])
        elif free != "a module":
            block = client.alloc(20 * MIB)
        used = page.used()
        assert used >= 20 * MIB
        client.context = 11
        if free in ("plain", "of a pool"):
            client.post("rgpuMemFree", dptr=block)
        elif free == "in a stream":
            client.post("rgpuPoolFree", dptr=block, stream=LEGACY)
        elif free == "a pool":
            client.post("rgpuPoolFree", dptr=block, stream=20)
        else:
            client.post("rgpuModuleUnload", module=40)
        client.post("rgpuPoolDestroy", pool=30)
        assert client.result("rgpuPing", echo=1).status == 0
        assert held(client, page) <= page.used() == used
        client.context = 10
        client.post("rgpuStreamCreate", stream=21, flags=1, priority=0)
        client.write_value(21, flag, 1)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        wait_until(lambda: held(client, page) == page.used() == 4096)
