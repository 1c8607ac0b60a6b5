"""Contexts that a client creates twice, or destroys while it still gives them work."""

from __future__ import annotations

import sys

from helpers.ends import ended

from worker.client import Client, Gone, worker
from worker.images import put_image

INVALID_CONTEXT = 201
INVALID_HANDLE = 400
MIB = 1 << 20


def test_the_primary_context_has_one_id_at_a_time() -> None:
    """The driver counts retains: under a second id, memory would outlive its charge."""
    with worker("--memory", str(64 * MIB)) as client:
        client.start()  # it is retained as 10
        for number in range(3):
            second = client.result("rgpuPrimaryRetain", ctx=100 + number, device=0, flags=0)
            assert second.status == INVALID_CONTEXT
        client.alloc(50 * MIB)
        client.call("rgpuContextDestroy", ctx=10)
        client.call("rgpuPrimaryRetain", ctx=11, device=0, flags=0)
        client.context = 11
        assert client.call("rgpuMemGetInfo")["free"] == 64 * MIB


def test_a_failed_retain_leaves_the_primary_context_free() -> None:
    with worker() as client:
        client.start()
        client.call("rgpuContextDestroy", ctx=10)
        assert client.result("rgpuPrimaryRetain", ctx=1 << 40, device=0, flags=0).status != 0
        client.call("rgpuPrimaryRetain", ctx=12, device=0, flags=0)


# Loading it takes long enough for two threads to create a context meanwhile.
LARGE = b"".join(
    [b".version 7.0\n.target sm_70\n.address_size 64\n"]
    + [b".visible .entry k%d(.param .u64 p) { ret; }\n" % number for number in range(3000)]
)


def test_two_threads_get_one_context_of_one_id() -> None:
    with worker(RGPU_EMU_COMPILER=f"{sys.executable} -m rgpu_emu.compiler") as client:
        client.start()
        put_image(client, 900, LARGE)
        load = client.post(
            "rgpuModuleLoad", thread=2, module=901, image=900, options=b"", info_log_bytes=0,
            error_log_bytes=0,
        )  # fmt: skip
        pair = [
            client.post("rgpuContextCreate", thread=thread, ctx=1000, device=0, flags=0)
            for thread in (3, 4)
        ]
        assert sorted(client.wait(one).status for one in pair) == [0, INVALID_HANDLE]
        assert client.wait(load).status == 0


def test_an_id_may_be_used_again() -> None:
    """The worker's threads tell the new context from the old one."""
    with worker() as client:
        client.start()
        for value in range(1, 20):
            client.call("rgpuContextCreate", ctx=1000, device=0, flags=0)
            client.context = 1000
            at = client.alloc(4096)
            client.upload(at, bytes([value]) * 4096)
            assert client.download(at, 4096) == bytes([value]) * 4096
            client.call("rgpuContextDestroy", ctx=1000)
            client.context = 10


def storm(client: Client, rounds: int) -> None:
    """Threads create, use and destroy contexts with few ids in all orders."""
    for number in range(rounds):
        ctx = 50 + number % 3
        client.post("rgpuContextCreate", thread=2 + number % 2, ctx=ctx, device=0, flags=0)
        client.post("rgpuStreamCreate", context=ctx, stream=3000 + number, flags=1, priority=0)
        client.post("rgpuMemset", context=ctx, thread=3, dst=4096, pitch=0, element_bytes=1,
                    value=1, width=64, height=1, stream=2, synchronous=0)  # fmt: skip
        client.post("rgpuThreadGone", gone=3)
        client.post("rgpuContextDestroy", thread=4 + number % 2, ctx=50 + (number + 1) % 3)


def test_a_worker_outlives_contexts_in_any_order() -> None:
    with worker() as client:
        client.start()
        storm(client, 400)
        try:
            client.call("rgpuPing", echo=7)
        except Gone:  # an error of the session is an answer, a crash is none
            ended(client.process)
        assert client.process.poll() in (None, 0)
