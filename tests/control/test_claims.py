"""Claims at the data port: the messages, and that a claim lives as long as its connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from rgpu_common.wire.claim import (
    Claim,
    Claimed,
    Place,
    decode_claimed,
    decode_place,
    encode_claimed,
    encode_place,
)
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import WireError
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.refused import decode_refused
from rgpu_server.core.policy import Policy

Serve = Callable[..., Any]
GIB = 1 << 30
DEADLINE_SECONDS = 60


async def claim(server: Any, key: str, memory: int = GIB, wait_ms: int = 0) -> Any:
    wishes = [Wish(WishKey.CLAIM, int(Claim.WANTED | Claim.OWN))]
    if wait_ms:
        wishes.append(Wish(WishKey.WAIT, wait_ms))
    return await server.hello(lease_key=key, memory_bytes=memory, wishes=tuple(wishes))


async def answer(lane: Any) -> Claimed | Place | str:
    header, head = await asyncio.wait_for(lane.frame(), DEADLINE_SECONDS)
    if header.opcode == Handshake.CLAIMED:
        return decode_claimed(head)
    if header.opcode == Handshake.PLACE:
        return decode_place(head)
    assert header.opcode == Handshake.REFUSED
    return decode_refused(head).sentence


def leases(server: Any) -> list[str]:
    return [lease.key.name for lease in server.daemon.conductor.node.leases]


@pytest.mark.asyncio
async def test_a_claim_is_answered_and_ends_with_its_connection(serve: Serve) -> None:
    async with serve() as server:
        lane = await claim(server, "a")
        claimed = await answer(lane)
        assert isinstance(claimed, Claimed)
        assert (claimed.key, claimed.device, claimed.memory_bytes) == ("a", 0, GIB)
        assert (claimed.device_bytes, claimed.share_limit_ppm) == (8 * GIB, 1_000_000)
        assert leases(server) == ["a"]
        await lane.close()
        await server.until(lambda: not leases(server))


@pytest.mark.asyncio
async def test_who_holds_a_lease_and_speaks_is_gone(serve: Serve) -> None:
    async with serve() as server:
        lane = await claim(server, "a")
        await answer(lane)
        lane.writer.write(b"what else")
        await server.until(lambda: not leases(server))
        with contextlib.suppress(ConnectionResetError):
            assert await lane.ended()
        await lane.close()


@pytest.mark.asyncio
async def test_who_waits_and_leaves_is_out_of_the_line(serve: Serve) -> None:
    async with serve() as server:
        first = await claim(server, "a", 8 * GIB)
        await answer(first)
        second = await claim(server, "b", GIB, wait_ms=60_000)
        assert await answer(second) == Place(
            1, 1, "a lease of 1 GiB does not fit on device 0: 0 B of its 8 GiB are free, 1 GiB too "
            "little; ask for less memory or wait until a lease ends",
        )  # fmt: skip
        third = await claim(server, "c", GIB, wait_ms=60_000)
        place = await answer(third)
        assert isinstance(place, Place)
        assert (place.place, place.waiting) == (2, 2)
        await second.close()
        place = await answer(third)
        assert isinstance(place, Place)
        assert (place.place, place.waiting) == (1, 1)
        await first.close()
        assert isinstance(await answer(third), Claimed)
        await third.close()


@pytest.mark.asyncio
async def test_a_claim_that_is_refused_is_closed(serve: Serve) -> None:
    async with serve(policy=Policy(warm_workers=1, max_waiting=(1, 1, 1))) as server:
        first = await claim(server, "a", 8 * GIB)
        await answer(first)
        waiting = await claim(server, "b", wait_ms=60_000)
        await answer(waiting)
        for key, memory, why in (("c", GIB, "1 claims wait in line"), ("d", 9 * GIB, "not fit")):
            lane = await claim(server, key, memory, wait_ms=60_000)
            said = await answer(lane)
            assert isinstance(said, str)
            assert why in said
            assert await lane.ended()
            await lane.close()
        await first.close()
        await waiting.close()


@pytest.mark.asyncio
async def test_a_server_that_stops_lets_its_claims_go(serve: Serve) -> None:
    async with serve() as server:
        lane = await claim(server, "a", 8 * GIB)
        await answer(lane)
        waiting = await claim(server, "b", wait_ms=60_000)
        await answer(waiting)
        server.daemon.stop(end_sessions=True)
        assert "the server is stopping" in str(await answer(waiting))
        assert await lane.ended()
        await lane.close()
        await waiting.close()


@pytest.mark.parametrize(
    ("frame", "decode"),
    [
        (encode_claimed(Claimed("1", "lease-1", "k", "t", "d", 3, 1, 2, 3, 4)), decode_claimed),
        (encode_place(Place(1, 2, "full")), decode_place),
    ],
)
def test_what_a_claim_hears_is_read_exactly(frame: bytes, decode: object) -> None:
    assert callable(decode)
    head = frame[40:]
    decode(head)
    for damaged in (*(head[:i] for i in range(len(head))), head + b"\0"):
        with pytest.raises(WireError):
            decode(damaged)
