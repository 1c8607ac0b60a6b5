"""Memory: charged before, released after, refused past the limit; the program reads its quota."""

import struct

from worker.client import LEGACY, session

LIMIT = 64 << 20
OUT_OF_MEMORY = 2
RESERVED = 5  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT


def limited() -> tuple[str, str]:
    return ("--memory", str(LIMIT))


def test_the_limit_is_hard_and_the_view_is_the_quota() -> None:
    with session(*limited()) as client:
        assert client.call("rgpuMemGetInfo") == {"free": LIMIT, "total": LIMIT}
        first = client.alloc(40 << 20)
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT - (40 << 20)
        assert client.result("rgpuMemAlloc", bytes=25 << 20).status == OUT_OF_MEMORY
        client.alloc(24 << 20)
        assert client.call("rgpuMemGetInfo")["free"] == 0
        assert client.result("rgpuMemAlloc", bytes=1).status == OUT_OF_MEMORY
        client.post("rgpuMemFree", dptr=first)
        assert client.alloc(40 << 20)


def test_allocations_take_whole_pages() -> None:
    with session(*limited()) as client:
        client.alloc(1)
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT - 4096


def test_sizes_past_counting_are_refused() -> None:
    with session(*limited()) as client:
        for size in (LIMIT + 1, 1 << 63, (1 << 64) - 1):
            assert client.result("rgpuMemAlloc", bytes=size).status == OUT_OF_MEMORY
        assert client.result("rgpuMemAlloc", bytes=0).status == 1
        pitched = {"width": 1 << 40, "height": 1 << 40, "element_bytes": 4}
        assert client.result("rgpuMemAllocPitch", **pitched).status == OUT_OF_MEMORY
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT


def test_pitched_memory_is_charged_as_it_is() -> None:
    with session(*limited()) as client:
        reply = client.call("rgpuMemAllocPitch", width=100, height=64, element_bytes=4)
        pitch = int(reply["pitch"])
        assert pitch >= 100
        charged = LIMIT - int(client.call("rgpuMemGetInfo")["free"])
        assert charged == (pitch * 64 + 4095) // 4096 * 4096
        client.post("rgpuMemFree", dptr=reply["dptr"])
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT


def test_a_free_behind_running_work_is_carried_out_when_the_work_is_done() -> None:
    """The free does not stop the decoder, and memory comes back only when it is really free."""
    with session(*limited()) as client:
        flag, block = client.alloc(512), client.alloc(60 << 20)
        client.upload(flag, struct.pack("<I", 0))
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuStreamCreate", stream=21, flags=1, priority=0)
        client.wait_value(20, flag, 1)
        client.post("rgpuMemFree", dptr=block)
        assert int(client.call("rgpuMemGetInfo")["free"]) < (60 << 20), "still held"
        again = client.post("rgpuMemAlloc", bytes=60 << 20, thread=2)
        client.write_value(21, flag, 1)
        assert client.wait(again).status == 0


def test_a_freed_address_is_no_longer_the_sessions() -> None:
    with session() as client:
        address = client.alloc(4096)
        client.post("rgpuMemFree", dptr=address)
        client.post("rgpuMemFree", dptr=address)
        assert client.result("rgpuMemGetInfo").status == 1


def test_pools_are_charged_by_what_they_hold() -> None:
    with session(*limited()) as client:
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        reply = client.call("rgpuPoolAlloc", pool=30, bytes=3 << 20, stream=LEGACY)
        held = int(client.call("rgpuPoolGetAttribute", pool=30, attribute=RESERVED)["value"])
        assert held >= 3 << 20
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT - held
        assert (
            client.result("rgpuPoolAlloc", pool=30, bytes=LIMIT, stream=LEGACY).status
            == OUT_OF_MEMORY
        )
        client.post("rgpuPoolFree", dptr=reply["dptr"], stream=LEGACY)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert client.alloc(LIMIT - (1 << 20)), "what the pool holds unused goes to who needs it"


def test_the_default_pool_is_a_capped_one() -> None:
    with session(*limited()) as client:
        default = 1 << 63
        reply = client.call("rgpuPoolAlloc", pool=default, bytes=1 << 20, stream=LEGACY)
        client.upload(int(reply["dptr"]), b"pooled")
        assert client.download(int(reply["dptr"]), 6) == b"pooled"
        assert (
            client.result("rgpuPoolAlloc", pool=default, bytes=LIMIT, stream=LEGACY).status
            == OUT_OF_MEMORY
        )
        client.post("rgpuPoolDestroy", pool=default)
        assert client.result("rgpuMemGetInfo").status == 1


def test_destroying_a_pool_gives_its_memory_back() -> None:
    with session(*limited()) as client:
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        reply = client.call("rgpuPoolAlloc", pool=30, bytes=40 << 20, stream=LEGACY)
        client.post("rgpuPoolFree", dptr=reply["dptr"], stream=LEGACY)
        client.post("rgpuPoolDestroy", pool=30)
        assert client.alloc(LIMIT)


def test_limits_that_take_device_memory_are_charged() -> None:
    """Stack for all resident threads is never free."""
    with session(*limited()) as client:
        assert client.result("rgpuContextSetLimit", limit=0, value=64 << 10).status == OUT_OF_MEMORY
        assert client.result("rgpuContextSetLimit", limit=0, value=1024).status == 0
        assert client.result("rgpuContextSetLimit", limit=2, value=16 << 20).status == 0
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT - (16 << 20)
        assert client.result("rgpuContextSetLimit", limit=2, value=8 << 20).status == 0
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT - (8 << 20)


def test_a_context_takes_everything_with_it() -> None:
    with session(*limited()) as client:
        client.alloc(32 << 20)
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        client.call("rgpuPoolAlloc", pool=30, bytes=8 << 20, stream=LEGACY)
        client.post("rgpuStreamCreate", stream=20, flags=0, priority=0)
        client.post("rgpuEventCreate", event=21, flags=0)
        client.call("rgpuContextDestroy", ctx=10)
        assert client.result("rgpuMemGetInfo").status == 201
        client.call("rgpuPrimaryRetain", ctx=12, device=0, flags=0)
        client.context = 12
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT
        assert client.result("rgpuStreamSynchronize", stream=20).status == 400
        assert client.alloc(LIMIT)
