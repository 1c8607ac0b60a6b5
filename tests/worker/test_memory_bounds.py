"""The memory that the device holds, by its own counters, against the lease's limit. Each path alone
is driven until it is refused, and must stay within the bound that docs/explanation/quotas-memory.md
states.
"""

from __future__ import annotations

import struct

import pytest
from helpers.waiting import wait_until

from worker.client import LEGACY, Client
from worker.images import PTX, put_image
from worker.leased import (
    DEFAULT_POOL,
    DEVICE,
    INVALID_VALUE,
    LIMIT,
    MIB,
    OUT_OF_MEMORY,
    held,
    leased,
    load,
    pool_alloc,
    until_refused,
    view,
    with_table,
)


@pytest.mark.parametrize(
    ("size", "limit"), [(100_000, LIMIT), (3 * MIB + 1, LIMIT), (4096, LIMIT // 16)]
)
def test_plain_memory_is_exact(size: int, limit: int) -> None:
    with leased(limit) as (client, page):
        count = until_refused(lambda _: client.result("rgpuMemAlloc", bytes=size).status)
        taken = (size + 4095) // 4096 * 4096
        assert count == limit // taken
        assert held(client, page, limit) == page.used() == count * taken


def test_many_small_allocations_are_charged_what_they_take() -> None:
    """A page each on the emulated device, though the program asked for 16 bytes."""
    limit = 8 * MIB
    with leased(limit) as (client, page):
        count = until_refused(lambda _: client.result("rgpuMemAlloc", bytes=16).status)
        assert count == limit // 4096
        assert held(client, page, limit) == limit


def test_pitched_memory_is_exact() -> None:
    with leased() as (client, page):
        arguments = {"width": 1000, "height": 1001, "element_bytes": 4}
        until_refused(lambda _: client.result("rgpuMemAllocPitch", **arguments).status)
        # The widest pitch that a device could have is what has to be free.
        assert LIMIT - 1001 * 1024 - 4096 <= held(client, page) == page.used() <= LIMIT


@pytest.mark.parametrize("what", ["Module", "Library"])
def test_code_and_its_data_are_charged(what: str) -> None:
    with leased() as (client, page):
        size = 9 * MIB
        count = until_refused(lambda n: load(client, 100 + n, with_table(size), what))
        each, rest = divmod(held(client, page), count)
        assert rest == 0
        assert size <= each < size + 16_384
        assert count == LIMIT // (each + 4096), "beside its data, a page of code each"
        assert held(client, page) <= page.used() <= LIMIT


def test_the_image_of_a_module_without_data_is_charged() -> None:
    limit = MIB
    with leased(limit) as (client, page):
        padded = PTX + b"\n" * 100_000
        count = until_refused(lambda n: load(client, 100 + n, padded))
        assert count == limit // ((len(padded) + 4096 + 4095) // 4096 * 4096)
        assert held(client, page, limit) <= page.used() <= limit


def test_a_library_in_every_context() -> None:
    """The library's data is placed in each context at its first use there, by any call."""
    with leased() as (client, page):
        assert load(client, 50, with_table(20 * MIB), "Library") == 0
        client.call("rgpuLibraryGetKernel", library=50, name=b"add", kernel=51)
        for n in range(11, 16):
            client.call("rgpuContextCreate", ctx=n, device=0, flags=0)
            client.context = n
            status = client.result("rgpuKernelGetFunction", kernel=51, function=100 + n).status
            assert held(client, page) <= page.used() <= LIMIT
            if status == OUT_OF_MEMORY:
                break
        assert n == 13
        client.call("rgpuContextDestroy", ctx=10)
        assert held(client, page) == page.used() == 0


def test_the_stack_is_one_figure() -> None:
    """Limit and largest launch share one pool of local memory; a lower limit gives it back."""
    limit = 256 * MIB
    with leased(limit) as (client, page):
        assert load(client, 40, PTX) == 0
        client.call("rgpuModuleGetFunction", module=40, name=b"deep", function=41)
        out = client.alloc(4096)
        base = held(client, page, limit)
        launch = {
            "function": 41, "kernel": 0, "grid_x": 1, "grid_y": 1, "grid_z": 1, "block_x": 32,
            "block_y": 1, "block_z": 1, "shared_bytes": 0, "stream": LEGACY, "flags": 0,
            "params": struct.pack("<Q", out),
        }  # fmt: skip
        client.post("rgpuLaunch", **launch)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        deep = held(client, page, limit) - base
        assert deep >= 16384 * 2048
        charged = page.used() - deep
        for value, most in ((20_000, 2), (500_000, OUT_OF_MEMORY), (17_000, 0), (1024, 0)):
            status = client.result("rgpuContextSetLimit", limit=0, value=value).status
            assert status in (0, most)
            assert held(client, page, limit) <= page.used() <= limit
        assert page.used() == charged, "the limit took it back, with what the launch had needed"
        assert held(client, page, limit) == base


@pytest.mark.parametrize("what", [1, 2])
def test_limits_are_charged_by_their_value(what: int) -> None:
    with leased() as (client, page):
        for value in (16 * MIB, LIMIT + 1, LIMIT, 4 * MIB):
            status = client.result("rgpuContextSetLimit", limit=what, value=value).status
            assert status == (OUT_OF_MEMORY if value > LIMIT else 0)
            assert page.used() == (16 * MIB if value > LIMIT else value)
            assert held(client, page) <= page.used()


TAKES = b"""
.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 address);
.visible .entry take(.param .u64 out, .param .u64 bytes)
{
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [out];
    ld.param.u64 %d1, [bytes];
    {
        .param .b64 a; st.param.b64 [a], %d1;
        .param .b64 b;
        call.uni (b), malloc, (a);
        ld.param.b64 %d2, [b];
    }
    st.global.u64 [%d0], %d2;
    ret;
}
.visible .entry give(.param .u64 address, .param .u64 unused)
{
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [address];
    {
        .param .b64 a; st.param.b64 [a], %d0;
        call.uni free, (a);
    }
    ret;
}
"""


def run(client: Client, function: int, *params: int) -> None:
    shape = {f"{kind}_{axis}": 1 for kind in ("grid", "block") for axis in "xyz"}
    client.post(
        "rgpuLaunch", function=function, kernel=0, **shape, shared_bytes=0, stream=LEGACY,
        flags=0, params=struct.pack("<2Q", *params),
    )  # fmt: skip
    assert client.result("rgpuContextSynchronize", ctx=client.context).status == 0


def test_the_heap_of_kernels_is_charged_while_they_hold_it() -> None:
    """All contexts share the heap, and it does not end with one of them."""
    with leased() as (client, page):
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        heap = {"limit": 2, "context": 11}
        assert client.result("rgpuContextSetLimit", value=32 * MIB, **heap).status == 0
        client.call("rgpuContextDestroy", ctx=11)
        assert load(client, 40, TAKES) == 0
        for function, name in ((41, b"take"), (42, b"give")):
            client.call("rgpuModuleGetFunction", module=40, name=name, function=function)
        out = client.alloc(4096)
        device, used = held(client, page), page.used()
        assert used >= 32 * MIB
        run(client, 41, out, 20 * MIB)
        (address,) = struct.unpack("<Q", client.download(out, 8))
        assert address != 0
        assert held(client, page) == device, "set aside: what kernels do with it hides no load"
        heap["context"] = 10
        assert client.result("rgpuContextSetLimit", value=MIB, **heap).status == INVALID_VALUE
        assert client.result("rgpuContextGetLimit", **heap).values["value"] == 32 * MIB
        assert page.used() == used
        run(client, 42, address, 0)
        assert client.result("rgpuContextSetLimit", value=MIB, **heap).status == 0
        assert page.used() == used - 31 * MIB


def test_every_path_at_once() -> None:
    with leased() as (client, page):
        client.call("rgpuPoolCreate", pool=30, device=0, max_bytes=0)
        refused = 0
        for n in range(60):
            results = (
                client.result("rgpuMemAlloc", bytes=300_000).status,
                pool_alloc(client, 30, 400_000),
                pool_alloc(client, DEFAULT_POOL, 100_000),
                client.result("rgpuMemAllocPitch", width=99, height=999, element_bytes=4).status,
                load(client, 100 + n, with_table(500_000), ("Module", "Library")[n % 2]),
            )
            assert set(results) <= {0, OUT_OF_MEMORY}
            refused += OUT_OF_MEMORY in results
            free, total = view(client)
            assert 0 <= free <= total == LIMIT
        assert refused > 10
        assert held(client, page) <= page.used() <= LIMIT


def test_loads_among_allocations_and_frees_of_other_threads() -> None:
    """Memory that other threads free while a module is measured must not hide the memory that the
    module takes.
    """
    with leased() as (client, page):
        for n in range(25):
            big = client.result("rgpuMemAlloc", bytes=20 * MIB)
            pooled_ = client.result("rgpuPoolAlloc", pool=DEFAULT_POOL, bytes=15 * MIB, stream=1)
            put_image(client, 39, with_table(MIB + n))
            loading = client.post(
                "rgpuModuleLoad", module=100 + n, image=39, options=b"", info_log_bytes=0,
                error_log_bytes=0, thread=2,
            )  # fmt: skip
            if big.status == 0:
                client.post("rgpuMemFree", dptr=big.values["dptr"])
            if pooled_.status == 0:
                client.post("rgpuPoolFree", dptr=pooled_.values["dptr"], stream=LEGACY)
            waiting = client.post("rgpuContextSynchronize", ctx=10, thread=3)
            again = client.post("rgpuMemAlloc", bytes=5 * MIB)
            assert client.wait(loading).status in (0, OUT_OF_MEMORY)
            assert client.wait(waiting).status == 0
            answer = client.wait(again)
            assert page.used() <= LIMIT
            # The device releases freed memory when the work before it is complete.
            wait_until(lambda: held(client, page) <= page.used())
            if answer.status == 0:
                client.post("rgpuMemFree", dptr=answer.values["dptr"])
        for n in range(25):
            client.post("rgpuModuleUnload", module=100 + n)
        client.result("rgpuContextSynchronize", ctx=10)
        wait_until(lambda: view(client)[0] == LIMIT)
        assert held(client, page) == page.used() == 0


# --- the view, and a limit that changes


def test_the_view_is_the_quota_and_never_more_than_the_device() -> None:
    with leased(DEVICE * 2) as (client, _):
        assert view(client) == (DEVICE, DEVICE)


def test_a_limit_lowered_below_use() -> None:
    """Nothing new until it is below again, and nothing is taken away."""
    with leased() as (client, page):
        blocks = [client.alloc(10 * MIB) for _ in range(6)]
        page.set_limit(25 * MIB)
        assert view(client) == (0, 25 * MIB)
        assert client.result("rgpuMemAlloc", bytes=16).status == OUT_OF_MEMORY
        assert pool_alloc(client, DEFAULT_POOL, 16) == OUT_OF_MEMORY
        client.upload(blocks[0], b"kept")
        assert client.download(blocks[0], 4) == b"kept"
        for block in blocks[1:]:
            assert client.result("rgpuMemAlloc", bytes=16 * MIB).status == OUT_OF_MEMORY
            client.post("rgpuMemFree", dptr=block)
        client.alloc(15 * MIB)
        assert view(client) == (0, 25 * MIB)


def test_a_raised_limit_is_usable_at_once_on_every_path() -> None:
    with leased() as (client, page):
        assert pool_alloc(client, DEFAULT_POOL, 40 * MIB) == 0
        assert pool_alloc(client, DEFAULT_POOL, 40 * MIB) == OUT_OF_MEMORY
        page.set_limit(3 * LIMIT)
        assert pool_alloc(client, DEFAULT_POOL, 40 * MIB) == 0, "no cap of old in the pool"
        client.alloc(100 * MIB)
        assert view(client) == (12 * MIB, 3 * LIMIT)


def test_the_view_holds_while_the_limit_jumps() -> None:
    with leased() as (client, page):
        client.alloc(30 * MIB)
        for n in range(200):
            sequence = client.post("rgpuMemGetInfo")
            page.set_limit((1 + n % 7) * 10 * MIB)
            answer = client.wait(sequence).values
            assert 0 <= int(answer["free"]) <= int(answer["total"]) <= DEVICE
