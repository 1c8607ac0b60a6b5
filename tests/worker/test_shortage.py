"""Out of memory is reported once, before the answer: the lease is full, or the device itself is."""

from __future__ import annotations

import pytest

from rgpu_common.wire.messages import Notice
from worker.client import Client
from worker.leased import DEFAULT_POOL, DEVICE, LIMIT, MIB, leased, pool_alloc, until_refused


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
