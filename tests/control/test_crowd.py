"""Which connection makes room when places are few, and that many fast connections do not stop the
daemon.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from helpers.relay import INSIDE

from rgpu_common.crowds import Crowds, FairStore, of_largest_crowd
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.preface import Preface, encode_preface
from rgpu_server.config import Limits
from rgpu_server.core.identity import Require
from rgpu_server.identity.settings import Identity
from rgpu_server.service import sockets
from rgpu_server.service.callers import Caller
from rgpu_server.service.places import Places

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
SECONDS = 60


async def eventually(condition: Callable[[], bool]) -> None:
    """Lets the daemon, which is in this process, go on until it is so."""

    deadline = asyncio.get_running_loop().time() + SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("there", "newcomer", "leaves"),
    [
        ("", "a", None),
        ("a", "a", 0),
        ("a", "b", 0),
        ("abb", "c", 1),
        ("aabb", "c", 0),
        ("aabb", "b", 2),
        ("abc", "c", 2),
        ("abcc", "d", 2),
    ],
)
async def test_the_longest_there_of_the_largest_crowd(
    there: Iterable[str], newcomer: str, leaves: int | None
) -> None:
    assert of_largest_crowd(enumerate(there), newcomer) == leaves


async def test_a_store_loses_the_oldest_value_of_the_tenant_with_the_most() -> None:
    store: FairStore[int, str] = FairStore(4)
    for key, tenant in enumerate("babaaa"):
        store.put(key, tenant, tenant)
    assert store.items() == [(0, "b"), (2, "b"), (4, "a"), (5, "a")]
    store.put(2, "b", "again")
    assert store.items() == [(0, "b"), (4, "a"), (5, "a"), (2, "again")]
    assert store.pop(9) is None
    assert (store.pop(4), store.get(4), len(store)) == ("a", None, 3)


async def test_a_store_of_equal_tenants_loses_its_oldest_value() -> None:
    store: FairStore[int, int] = FairStore(3)
    for key in range(5):
        store.put(key, f"tenant-{key}", key)
    assert [key for key, _ in store.items()] == [2, 3, 4]


@pytest.mark.parametrize(
    ("there", "newcomer", "operator", "leaves"),
    [
        ("", "a", True, None),
        ("aabbb", "c", False, 4),
        ("aabbb", "a", False, None),
        ("aabbb", "b", False, None),
        ("aaab", "b", False, 2),
        ("ab", "c", False, None),
        ("ab", "c", True, 0),
    ],
)
async def test_the_newest_of_a_larger_crowd_gives_way(
    there: str, newcomer: str, operator: bool, leaves: int | None
) -> None:
    crowds = Crowds[int]()
    for number, origin in enumerate(there):
        crowds.come(number, origin)
    assert crowds.gives_way(newcomer, to_operator=operator) == leaves


async def test_crowds_that_come_and_go_are_as_large_as_they_are() -> None:
    chance, crowds = random.Random(3), Crowds[int]()
    there: dict[int, str] = {}
    for number in range(5000):
        if there and chance.random() < 0.48:
            gone = chance.choice(list(there))
            del there[gone]
            crowds.go(gone)
            crowds.go(gone)
        else:
            there[number] = chance.choice("abcdef")
            crowds.come(number, there[number])
        newcomer = chance.choice("abcdefg")
        leaves = crowds.of_largest(newcomer)
        if not there:
            assert leaves is None
            continue
        assert leaves is not None
        size = Counter(there.values())
        mine = there[leaves]
        assert leaves == min(one for one, origin in there.items() if origin == mine)
        grown = size + Counter({newcomer: int(newcomer in size)})
        assert size[mine] == max(size.values())
        assert grown[mine] == max(grown.values()) or newcomer not in size


async def test_who_is_slow_is_not_pushed_out_by_a_flood_from_elsewhere(serve: Serve) -> None:
    whole = encode_hello(Hello())
    limits, anybody = Limits(handshakes=4, handshake_seconds=60), Identity(require=Require.NEVER)
    async with serve(limits=limits, identity=anybody) as server:
        door = server.daemon.door

        async def come(address: str, first: bytes) -> Any:
            before = door.counters.connections
            lane = await server.lane(encode_preface(Preface("tls", f"{address}:1")) + first, INSIDE)
            await eventually(lambda: door.counters.connections > before)
            await eventually(lambda: all(guest.origin for guest in door._greeting.values()))
            return lane

        slow = await come("192.0.2.7", whole[:50])
        flood = [await come("198.51.100.9", b"") for _ in range(12)]
        # Another network of the same kind takes no more than its part either.
        flood += [await come("2001:db8::1", b"") for _ in range(12)]
        assert door.counters.dropped == 21
        slow.writer.write(whole[50:])
        assert (await slow.frame())[0].opcode == Handshake.WELCOME
        for lane in (slow, *flood):
            await lane.close()


async def test_the_door_lets_others_go_on_while_many_come(serve: Serve) -> None:
    async with serve() as server:
        counters = server.daemon.door.counters
        where = (server.tcp.host, server.tcp.port)
        # The daemon, in this thread, sees none of them before all are there.
        flood = [socket.create_connection(where) for _ in range(160)]
        turns = 0
        while counters.connections < len(flood):
            turns += 1
            await asyncio.sleep(0)
        assert turns >= len(flood) // 8
        for one in flood:
            one.close()


async def test_a_tunnel_that_is_never_empty_lets_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = 200
    loop = asyncio.get_running_loop()

    async def receive(*_: object) -> bytes:
        nonlocal left
        left -= 1
        return b"x" * (left > 0)

    async def send(*_: object) -> None:
        return None

    monkeypatch.setattr(loop, "sock_recv", receive)
    monkeypatch.setattr(loop, "sock_sendall", send)
    (client, _other), (inner, _another) = socket.socketpair(), socket.socketpair()
    carried = asyncio.ensure_future(sockets.tunnel(client, inner, b""))
    turns = 0
    while not carried.done():
        turns += 1
        await asyncio.sleep(0)
    await carried
    assert turns > 90
    _other.close()
    _another.close()


class Guests:
    """Guests of `Places`. here: the guests that have not been sent away."""

    def __init__(self, count: int) -> None:
        self.places = Places(count)
        self.here: list[str] = []

    def come(
        self, name: str, peer: str, tenant: str | None = None, *, operator: bool = False
    ) -> bool:
        """A connection comes; with a tenant, a call of it is let in. True if it has a place."""
        self.places.take(name, Caller("tls", peer), lambda: self.here.remove(name))
        self.here.append(name)
        return tenant is not None and self.places.admitted(name, tenant, operator=operator)

    def of(self, *tenants: str) -> list[str]:
        """Returns the connections of tenants that are open, the longest present first."""
        return [name for name in self.here if name.split()[0] in tenants]


async def test_strangers_of_one_network_do_not_push_out_another_ones() -> None:
    guests = Guests(3)
    guests.come("slow", "192.0.2.7")
    for number in range(9):
        guests.come(f"flood {number}", "198.51.100.9")
    assert guests.here == ["slow", "flood 7", "flood 8"]


async def test_a_tenant_with_most_places_makes_room_for_others() -> None:
    guests = Guests(4)
    for number in range(5):
        assert guests.come(f"alice {number}", "192.0.2.7", "alice")
    assert guests.of("alice") == ["alice 1", "alice 2", "alice 3", "alice 4"]
    assert guests.come("bob 0", "192.0.2.7", "bob")
    assert guests.come("bob 1", "192.0.2.7", "bob")
    assert guests.here == ["alice 3", "alice 4", "bob 0", "bob 1"]


@pytest.mark.parametrize("many", range(1, 8))
async def test_tenants_that_act_together_keep_no_other_one_out(many: int) -> None:
    guests = Guests(8)
    for number in range(40):
        guests.come(f"t{number % many} {number}", "192.0.2.7", f"t{number % many}")
    assert len(guests.here) == 8
    assert guests.come("carol", "192.0.2.8", "carol")
    # They do not get it back, however often they come again.
    for number in range(40):
        guests.come(f"t{number % many} x{number}", "192.0.2.7", f"t{number % many}")
    assert guests.of("carol") == ["carol"]
    assert guests.come("ops", "192.0.2.9", "ops", operator=True)


async def test_an_operator_comes_in_where_each_tenant_has_one_place() -> None:
    guests = Guests(4)
    for number in range(4):
        assert guests.come(f"t{number}", "192.0.2.7", f"t{number}")
    assert not guests.come("late", "192.0.2.7", "late")
    assert guests.come("ops", "192.0.2.7", "ops", operator=True)
    assert guests.of("t0", "t1", "t2", "t3", "ops") == ["t1", "t2", "t3", "ops"]


async def test_strangers_cost_no_tenant_its_connection() -> None:
    guests = Guests(8)
    for number in range(8):
        assert guests.come(f"alice {number}", "192.0.2.7", "alice")
    for number in range(100):
        guests.come(f"stranger {number}", f"198.51.100.{number}")
    assert len(guests.of("alice")) == 8
    assert len(guests.here) == 8 + 2
    # Nor do those that are let in without a proof of who they are.
    guests.places.take("nobody", Caller("tls", "203.0.113.1"), lambda: None)
    assert not guests.places.admitted("nobody", None)
    assert len(guests.of("alice")) == 8
    assert guests.come("bob", "192.0.2.8", "bob")


async def test_users_of_this_machine_are_told_apart() -> None:
    assert Caller("unix", "local", uid=1000).origin != Caller("unix", "local", uid=1001).origin
    assert Caller("tcp", "local").origin == "local"
    assert Caller("tls", "2001:db8::1").origin == Caller("tls", "2001:db8::2").origin
