"""Out of memory is reported once, before the answer: the lease is full, or the device itself is."""

from __future__ import annotations

import pytest

from rgpu_common.wire.messages import Notice
from worker.client import LEGACY, Client
from worker.leased import (
    DEFAULT_POOL,
    DEVICE,
    LIMIT,
    MIB,
    OUT_OF_MEMORY,
    leased,
    pool_alloc,
    until_refused,
)


def told(client: Client) -> list[str]:
    """The reasons that have come so far."""
    logs = [fields for notice, fields, _ in client.notices if notice is Notice.LOG]
    assert all(fields["level"] == 1 for fields in logs)
    return [str(fields["text"]) for fields in logs]


def test_a_full_lease_is_told_once() -> None:
    with leased() as (client, _):
        for _ in range(2):
            until_refused(lambda _: client.result("rgpuMemAlloc", bytes=8 * MIB).status)
        (said,) = told(client)
        whole = f"{LIMIT // MIB} MiB"
        assert said.startswith(f"the lease of this container: {whole} of {whole} used, 8 MiB more")


def test_a_full_device_is_told_apart_from_a_full_lease() -> None:
    with leased(4 * DEVICE) as (client, _):
        piece = DEVICE // 4
        until_refused(lambda _: client.result("rgpuMemAlloc", bytes=piece).status)
        (said,) = told(client)
        assert said.startswith(
            f"the device is full: it has no room for {piece // MIB} MiB, although"
        )


@pytest.mark.parametrize("limit", [LIMIT, 4 * DEVICE])
def test_a_pool_that_cannot_grow_is_told_once(limit: int) -> None:
    with leased(limit) as (client, _):
        piece = min(limit, DEVICE) // 4
        for _ in range(2):
            until_refused(lambda _: pool_alloc(client, DEFAULT_POOL, piece))
        (said,) = told(client)
        assert said.startswith("the device is full" if limit > DEVICE else "the lease of this")


def test_memory_that_is_freed_in_time_is_not_told() -> None:
    with leased() as (client, _):
        piece = LIMIT // 2
        for _ in range(4):
            address = client.alloc(piece)
            client.post("rgpuMemFree", dptr=address)
        assert told(client) == []


def test_a_pool_at_its_own_maximum_is_told_apart_from_a_full_device() -> None:
    with leased() as (client, page):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=8 * MIB)
        granted = until_refused(lambda _: pool_alloc(client, 30, MIB))
        assert granted == 8
        assert pool_alloc(client, 30, 100 * MIB) == OUT_OF_MEMORY
        assert told(client) == [
            "a memory pool of this program is full: it holds 8 MiB, its maxSize is 8 MiB, and "
            "1 MiB more were asked for; free memory of this pool, or create it with a larger "
            "maxSize"
        ]
        assert page.used() >= 8 * MIB
        assert client.result("rgpuMemAlloc", bytes=8 * MIB).status == 0


def test_a_pool_whose_maximum_is_below_what_is_asked_for_is_told_even_if_the_lease_is_smaller() -> (
    None
):
    with leased() as (client, _):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=3 * MIB)
        assert pool_alloc(client, 30, LIMIT + MIB) == OUT_OF_MEMORY
        (said,) = told(client)
        assert said.startswith("a memory pool of this program is full: it holds 0 B, its maxSize")


def test_a_pool_at_its_maximum_gives_what_is_free_in_it() -> None:
    with leased() as (client, _):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=8 * MIB)
        # RELEASE_THRESHOLD: the pool keeps freed memory.
        client.post("rgpuPoolSetAttribute", pool=30, attribute=4, value=(1 << 64) - 1)
        for _ in range(4):
            answer = client.result("rgpuPoolAlloc", pool=30, bytes=8 * MIB, stream=LEGACY)
            assert answer.status == 0
            client.post("rgpuPoolFree", dptr=answer.values["dptr"], stream=LEGACY)
        assert told(client) == []
