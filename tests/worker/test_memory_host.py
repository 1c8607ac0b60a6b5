"""Host memory of the worker that no lease is charged for: bounded, whatever the client asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from rgpu_common.wire.codec import encode_command
from worker.client import LEGACY, Client, session
from worker.images import PTX, put_image

MIB = 1 << 20
MOST = 262_144  # handles
OUT_OF_MEMORY = 2


def resident(client: Client) -> int:
    """Bytes of host memory that the worker has in use."""
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def post_all(client: Client, commands: Iterable[tuple[str, dict[str, int]]]) -> None:
    """Posts many commands and reads what comes back now and then."""
    burst = bytearray()
    for count, (name, values) in enumerate(commands):
        client.seq += 1
        burst += encode_command(
            name, values, seq=client.seq, thread=1, context=client.context, bulk=b""
        )
        if count % 500 == 499:
            client.send(burst)
            burst.clear()
            client.result("rgpuPing", echo=1)
    client.send(burst)


def test_handles_have_one_limit_in_all() -> None:
    with session() as client:
        before = resident(client)
        events = range(1000, 1000 + MOST + 2000)
        post_all(client, (("rgpuEventCreate", {"event": n, "flags": 0}) for n in events))
        assert client.result("rgpuContextSynchronize", ctx=10).status == OUT_OF_MEMORY
        assert client.result("rgpuMemAlloc", bytes=16).status == OUT_OF_MEMORY
        assert (
            client.result("rgpuPoolCreate", pool=7, device=0, max_bytes=0).status == OUT_OF_MEMORY
        )
        assert resident(client) - before < MOST << 10
        post_all(client, (("rgpuEventDestroy", {"event": n}) for n in events[:2100]))
        client.alloc(16)


def test_failed_creations_are_bounded_too() -> None:
    with session() as client:
        before = resident(client)
        most = MOST + MOST // 4
        streams = range(1000, 1000 + most + 1000)
        values = {"flags": 0, "priority": 0}
        post_all(client, (("rgpuStreamCreate", {"stream": n, **values}) for n in streams))
        assert client.result("rgpuContextSynchronize", ctx=10).status == OUT_OF_MEMORY
        assert resident(client) - before < most << 10


def test_an_event_that_was_recorded_is_below_its_kilobyte() -> None:
    count = 20_000
    with session() as client:
        before = resident(client)
        events = range(1000, 1000 + count)
        post_all(client, (("rgpuEventCreate", {"event": n, "flags": 0}) for n in events))
        record = {"stream": LEGACY, "flags": 0, "version": 1}
        post_all(client, (("rgpuEventRecord", {"event": n, **record}) for n in events))
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert resident(client) - before < count << 10


def test_what_a_linker_holds_counts_as_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGPU_EMU_COMPILER", f"{sys.executable} -m rgpu_emu.compiler")
    with session() as client:
        padded = PTX + b"\n" * (50 * MIB)
        for link in range(70, 74):
            client.call(
                "rgpuLinkCreate", link=link, options=b"", info_log_bytes=0, error_log_bytes=0
            )
            put_image(client, 39, padded)
            client.call("rgpuLinkAddData", link=link, type=1, image=39, name=b"a.ptx", options=b"")
        put_image(client, 39, padded)
        put_image(client, 38, padded)
        assert client.result("rgpuContextSynchronize", ctx=10).status == OUT_OF_MEMORY
        client.post("rgpuLinkDestroy", link=70)
        client.post("rgpuLinkDestroy", link=71)
        put_image(client, 37, padded)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
