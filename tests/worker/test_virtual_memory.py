"""Virtual memory management at the worker: charges, and clients that follow no rule."""

import random
import struct
from collections.abc import Collection

import pytest
from helpers.waiting import wait_until

from worker.client import LEGACY, Client, session

LIMIT = 64 << 20
GRANULE = 2 << 20
NONE, READ_WRITE = 0, 3
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, NOT_SUPPORTED = 1, 2, 400, 801


def limited() -> tuple[str, str]:
    return ("--memory", str(LIMIT))


def free(client: Client) -> int:
    return int(client.call("rgpuMemGetInfo")["free"])


def reserve(client: Client, size: int) -> int:
    return int(client.call("rgpuAddressReserve", bytes=size, alignment=0, hint=0)["dptr"])


def mapped(client: Client, memory: int, size: int = GRANULE) -> int:
    """Memory that the client may use; returns its address."""
    place = reserve(client, size)
    client.call("rgpuMemCreate", memory=memory, device=0, bytes=size)
    client.call("rgpuMemMap", dptr=place, bytes=size, memory=memory)
    client.call("rgpuMemSetAccess", dptr=place, bytes=size, access=READ_WRITE)
    return place


def test_the_limit_is_hard() -> None:
    with session(*limited()) as client:
        client.call("rgpuMemCreate", memory=50, device=0, bytes=LIMIT - GRANULE)
        assert free(client) == GRANULE
        answer = client.result("rgpuMemCreate", memory=51, device=0, bytes=2 * GRANULE)
        assert answer.status == OUT_OF_MEMORY
        for size in (LIMIT + GRANULE, 1 << 63, (1 << 64) - GRANULE):
            answer = client.result("rgpuMemCreate", memory=51, device=0, bytes=size)
            assert answer.status == OUT_OF_MEMORY
        client.post("rgpuMemRelease", memory=50)
        client.call("rgpuMemCreate", memory=51, device=0, bytes=LIMIT)
        assert free(client) == 0


def test_released_memory_is_charged_while_it_is_mapped() -> None:
    with session(*limited()) as client:
        place = mapped(client, 50)
        client.post("rgpuMemRelease", memory=50)
        assert free(client) == LIMIT - GRANULE
        client.upload(place, b"still here")
        assert client.download(place, 10) == b"still here"
        client.post("rgpuMemUnmap", dptr=place, bytes=GRANULE)
        assert free(client) == LIMIT


def test_an_unmap_behind_running_work_keeps_memory_and_addresses() -> None:
    with session(*limited()) as client:
        flag, place = client.alloc(512), mapped(client, 50)
        client.upload(flag, struct.pack("<I", 0))
        for stream in (20, 21):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.wait_value(20, flag, 1)
        client.post("rgpuMemUnmap", dptr=place, bytes=GRANULE)
        client.post("rgpuMemRelease", memory=50)
        before = free(client)
        assert before == LIMIT - 4096 - GRANULE, "held until the work is complete"
        client.call("rgpuMemCreate", memory=51, device=0, bytes=GRANULE)
        again = client.post("rgpuMemMap", dptr=place, bytes=GRANULE, memory=51, thread=2)
        client.post("rgpuAddressFree", dptr=place, bytes=GRANULE, thread=3)
        client.write_value(21, flag, 1)
        assert client.wait(again).status in (0, INVALID_VALUE), "mapped, or the addresses are gone"


def test_ranges_of_others_and_parts_are_refused() -> None:
    with session() as client:
        place, plain = mapped(client, 50, 2 * GRANULE), client.alloc(4 * GRANULE)
        inside = -(-plain // GRANULE) * GRANULE
        client.call("rgpuMemCreate", memory=51, device=0, bytes=GRANULE)
        for at, size in (
            (inside, GRANULE),  # memory of another kind
            (place, GRANULE),  # mapped already
            (place + 4096, GRANULE),
            (place, GRANULE + 4096),
            ((1 << 64) - GRANULE, 2 * GRANULE),
            (0, GRANULE),
            (place, 0),
        ):
            answer = client.result("rgpuMemMap", dptr=at, bytes=size, memory=51)
            assert answer.status == INVALID_VALUE, (at, size)
            answer = client.result("rgpuMemSetAccess", dptr=at, bytes=size, access=READ_WRITE)
            assert answer.status == INVALID_VALUE, (at, size)
        answer = client.result("rgpuMemMap", dptr=place, bytes=GRANULE, memory=99)
        assert answer.status == INVALID_HANDLE
        answer = client.result("rgpuMemSetAccess", dptr=place, bytes=2 * GRANULE, access=2)
        assert answer.status == INVALID_VALUE


def test_posted_commands_that_name_nothing_change_nothing() -> None:
    with session() as client:
        place = mapped(client, 50)
        for name, values in (
            ("rgpuMemUnmap", {"dptr": place, "bytes": 2 * GRANULE}),
            ("rgpuMemUnmap", {"dptr": place, "bytes": 4096}),
            ("rgpuMemUnmap", {"dptr": 0, "bytes": (1 << 64) - 1}),
            ("rgpuAddressFree", {"dptr": place, "bytes": GRANULE}),
            ("rgpuAddressFree", {"dptr": place, "bytes": 0}),
            ("rgpuMemFree", {"dptr": place}),
            ("rgpuPoolFree", {"dptr": place, "stream": LEGACY}),
        ):
            client.post(name, **values)  # type: ignore[arg-type]
            assert client.result("rgpuMemGetInfo").status == INVALID_VALUE, name
        client.upload(place, b"whole")
        assert client.download(place, 5) == b"whole"


def test_copies_need_access_to_all_of_the_range() -> None:
    with session() as client:
        place = reserve(client, 3 * GRANULE)
        for part in range(3):
            client.call("rgpuMemCreate", memory=50 + part, device=0, bytes=GRANULE)
            client.call("rgpuMemMap", dptr=place + part * GRANULE, bytes=GRANULE, memory=50 + part)
        client.call("rgpuMemSetAccess", dptr=place, bytes=2 * GRANULE, access=READ_WRITE)
        client.upload(place + GRANULE - 4, b"together")
        assert client.download(place + GRANULE - 4, 8) == b"together"
        answer = client.result(
            "rgpuCopyDtoH", src=place + 2 * GRANULE - 4, pitch=0, width=8, height=1, stream=LEGACY
        )
        assert answer.status == INVALID_VALUE
        client.call("rgpuMemSetAccess", dptr=place, bytes=3 * GRANULE, access=NONE)
        answer = client.result("rgpuCopyDtoH", src=place, pitch=0, width=8, height=1, stream=LEGACY)
        assert answer.status == INVALID_VALUE


def test_addresses_have_a_limit() -> None:
    with session() as client:
        for size in (1 << 62, 0, 4095, (1 << 64) - 4096):
            answer = client.result("rgpuAddressReserve", bytes=size, alignment=0, hint=0)
            assert answer.status in (INVALID_VALUE, OUT_OF_MEMORY), size
        answer = client.result("rgpuAddressReserve", bytes=GRANULE, alignment=3, hint=0)
        assert answer.status == INVALID_VALUE
        places = [reserve(client, 4 << 30) for _ in range(4)]
        assert len(set(places)) == 4


class Model:
    """What a session has, in units of a granule."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self.client, self.rng = client, rng
        self.reserved: dict[int, int] = {}  # base -> granules
        self.mapped: dict[int, tuple[int, int]] = {}  # base -> (granules, memory)
        self.memories: dict[int, int] = {}  # with a handle -> granules
        self.sizes: dict[int, int] = {}
        self.last = 100

    def charged(self) -> int:
        held = {memory for _, memory in self.mapped.values()} | set(self.memories)
        return sum(self.sizes[memory] for memory in held) * GRANULE

    def pick(self, things: Collection[int]) -> int:
        return self.rng.choice(sorted(things)) if things else 3

    def reserve(self) -> None:
        size = self.rng.randint(1, 6)
        self.reserved[reserve(self.client, size * GRANULE)] = size

    def create(self) -> None:
        self.last += 1
        size = self.rng.randint(1, 4)
        room = self.charged() + size * GRANULE <= LIMIT
        values = {"memory": self.last, "device": 0, "bytes": size * GRANULE}
        answer = self.client.result("rgpuMemCreate", **values)
        assert answer.status == (0 if room else OUT_OF_MEMORY)
        if room:
            self.memories[self.last] = self.sizes[self.last] = size

    def map(self) -> None:
        memory = self.pick(self.memories)
        place = self.pick(self.reserved) + self.rng.randint(0, 3) * GRANULE
        size = self.rng.randint(1, 4)
        inside = any(
            base <= place and place + size * GRANULE <= base + count * GRANULE
            for base, count in self.reserved.items()
        )
        clear = all(
            other + count * GRANULE <= place or place + size * GRANULE <= other
            for other, (count, _) in self.mapped.items()
        )
        good = inside and clear and size <= self.memories.get(memory, 0)
        values = {"dptr": place, "bytes": size * GRANULE, "memory": memory}
        assert (self.client.result("rgpuMemMap", **values).status == 0) == good
        if good:
            self.mapped[place] = (size, memory)

    def access(self) -> None:
        place = self.pick(self.mapped)
        size = self.mapped.get(place, (1, 0))[0]
        values = {"dptr": place, "bytes": size * GRANULE, "access": READ_WRITE}
        status = self.client.result("rgpuMemSetAccess", **values).status
        assert (status == 0) == (place in self.mapped)
        if status == 0:
            self.client.upload(place + size * GRANULE - 8, struct.pack("<Q", place))

    def unmap(self) -> None:
        place = self.pick(self.mapped)
        size = self.mapped.pop(place, (1, 0))[0]
        self.client.post("rgpuMemUnmap", dptr=place, bytes=size * GRANULE)

    def release(self) -> None:
        memory = self.pick(self.memories)
        self.memories.pop(memory, None)
        self.client.post("rgpuMemRelease", memory=memory)

    def unreserve(self) -> None:
        base = self.pick(self.reserved)
        size = self.reserved.get(base, 1)
        self.client.post("rgpuAddressFree", dptr=base, bytes=size * GRANULE)
        end = base + size * GRANULE
        if not any(base <= place < end for place in self.mapped):
            self.reserved.pop(base, None)

    def step(self) -> None:
        steps = (self.reserve, self.create, self.map, self.map, self.access, self.unmap)
        self.rng.choice((*steps, self.release, self.unreserve))()
        # Errors of posted commands; the answer is due when the frees before it are carried out.
        self.client.result("rgpuContextSynchronize", ctx=10)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_calls_follows_the_model(seed: int) -> None:
    with session(*limited()) as client:
        model = Model(client, random.Random(seed))
        for _ in range(300):
            model.step()
        wait_until(lambda: free(client) == LIMIT - model.charged())
        while model.mapped:
            model.unmap()
        while model.memories:
            model.release()
        wait_until(lambda: free(client) == LIMIT)


def test_shareable_memory_of_a_client_that_follows_no_rule() -> None:
    """This session has no daemon, so nothing can be imported; exports and charges are the same."""
    generator = random.Random(7)
    with session(*limited()) as client:
        for kinds in (0, 2, 3, 8, 1 << 31):
            answer = client.result(
                "rgpuMemCreateShared", memory=50, device=0, bytes=GRANULE, handles=kinds
            )
            assert answer.status == NOT_SUPPORTED
        client.call("rgpuMemCreateShared", memory=50, device=0, bytes=GRANULE, handles=1)
        client.call("rgpuMemCreate", memory=51, device=0, bytes=GRANULE)
        assert free(client) == LIMIT - 2 * GRANULE
        token = bytes(client.call("rgpuIpcExportMappable", memory=50)["token"])  # type: ignore[arg-type]
        assert bytes(client.call("rgpuIpcExportMappable", memory=50)["token"]) == token  # type: ignore[arg-type]
        for memory, result in ((51, INVALID_VALUE), (52, INVALID_HANDLE), (0, INVALID_HANDLE)):
            assert client.result("rgpuIpcExportMappable", memory=memory).status == result
        tokens = [token, token[:-1], token + b"x", b"", bytes(64), b"\xff" * 64]
        tokens += [generator.randbytes(generator.randrange(200)) for _ in range(100)]
        for bad in tokens:
            assert client.result("rgpuIpcImportMappable", memory=60, token=bad).status in (
                NOT_SUPPORTED,
                INVALID_HANDLE,
            )
        for memory in (50, 51):  # a name that is in use
            assert client.result("rgpuIpcImportMappable", memory=memory, token=token).status != 0
        # An export ends with its memory, and is then not charged.
        place = reserve(client, GRANULE)
        client.call("rgpuMemMap", dptr=place, bytes=GRANULE, memory=50)
        client.post("rgpuMemRelease", memory=50)
        client.post("rgpuMemRelease", memory=51)
        client.post("rgpuMemUnmap", dptr=place, bytes=GRANULE)
        wait_until(lambda: free(client) == LIMIT)
        for _ in range(300):
            client.call("rgpuMemCreateShared", memory=53, device=0, bytes=GRANULE, handles=1)
            client.call("rgpuIpcExportMappable", memory=53)
            client.post("rgpuMemRelease", memory=53)
        wait_until(lambda: free(client) == LIMIT)
