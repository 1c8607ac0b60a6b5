"""The gate: device work waits for the lease's token; all other work goes on."""

import ctypes
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from worker.client import LEGACY, SECONDS, Client
from worker.warm import LIMIT, LeasePage, Pooled, open_session, pooled

NONE, SLICE, OPEN, RECALLED = 1, 3, 4, 5
MIB = 1 << 20
MS = 1_000_000
LONG_NS = 60_000_000_000
LOOP_GONE_NS = 6_000_000_000
FIELDS = (
    "workers",
    "active",
    "wanting",
    "near_end",
    "spent",
    "kernel_us",
    "in_flight_ns",
    "busy_ns",
    "held_back_ns",
    "oldest_alive_ns",
    "drained_ns",
)


class TokenPage(LeasePage):
    """The page with a token loop's hands on it."""

    def __init__(self) -> None:
        super().__init__(LIMIT)
        self.generation = 1
        self.native.rgpu_lease_claim_slot(self.address, ctypes.c_uint64(77))
        self.heartbeat(time.monotonic_ns() + LONG_NS)
        self.say(NONE)

    def heartbeat(self, now_ns: int) -> None:
        self.native.rgpu_token_heartbeat(self.address, ctypes.c_uint64(now_ns))

    def say(self, phase: int, slice_ns: int = 0) -> None:
        self.native.rgpu_token_write(
            self.address,
            phase,
            ctypes.c_uint64(self.generation),
            ctypes.c_uint64(time.monotonic_ns()),
            ctypes.c_uint64(slice_ns),
        )

    def grant(self, phase: int, slice_ns: int = 0) -> None:
        self.generation += 1
        self.say(phase, slice_ns)

    def demand(self) -> dict[str, int]:
        values = (ctypes.c_uint64 * len(FIELDS))()
        every, generation = ctypes.c_uint64((1 << 64) - 1), ctypes.c_uint64(self.generation)
        self.native.rgpu_token_demand(self.address, generation, every, values)
        return dict(zip(FIELDS, values, strict=True))

    def signalled(self, seconds: float) -> bool:
        """Whether a worker signals in this time; takes the signal."""
        ready, _, _ = select.select([self.signal_fd], [], [], seconds)
        if ready:
            os.eventfd_read(self.signal_fd)
        return bool(ready)

    def drain(self) -> None:
        """Takes signals of what has been looked at."""
        while self.signalled(0):
            pass

    def turn_over(self) -> None:
        """Waits until the slice is given back: work is left over, or none is."""
        deadline = time.monotonic() + SECONDS
        while True:
            said = self.demand()
            if not said["active"] and (said["spent"] or not said["wanting"]):
                return
            assert time.monotonic() < deadline, said
            self.signalled(0.2)

    def until(self, **wanted: int) -> dict[str, int]:
        """Waits, by signals like a loop, until the demand has these values; returns it."""
        deadline = time.monotonic() + SECONDS
        while True:
            said = self.demand()
            if all(said[field] == value for field, value in wanted.items()):
                return said
            assert time.monotonic() < deadline, said
            self.signalled(0.2)


@contextmanager
def gated() -> Iterator[tuple[Pooled, TokenPage, Client]]:
    page = TokenPage()
    with pooled() as warm:
        warm.hear()
        yield warm, page, open_session(warm, page)


def memset(client: Client, at: int, value: int, *, count: int = 4096, stream: int = LEGACY) -> None:
    client.post(
        "rgpuMemset",
        dst=at,
        pitch=0,
        element_bytes=1,
        value=value,
        width=count,
        height=1,
        stream=stream,
        synchronous=0,
    )


def test_device_work_waits_for_the_token_and_questions_do_not() -> None:
    with gated() as (_, page, client):
        at = client.alloc(4096)
        memset(client, at, 7)
        sync = client.post("rgpuStreamSynchronize", stream=LEGACY)
        said = page.until(wanting=1)
        assert said["active"] == 0
        assert client.call("rgpuMemGetInfo")["free"] == LIMIT - 4096
        assert sync not in client.replies
        page.grant(SLICE, LONG_NS)
        assert client.wait(sync).status == 0
        assert client.download(at, 4096) == bytes([7]) * 4096
        # The session returns the token by itself when it has no more work.
        said = page.until(active=0, wanting=0)
        assert said["spent"] == 0
        assert said["busy_ns"] > 0
        assert said["held_back_ns"] > 0
        assert said["in_flight_ns"] == 0


def test_what_is_held_back_keeps_its_order() -> None:
    with gated() as (_, page, client):
        client.post("rgpuStreamCreate", stream=5, flags=1, priority=0)
        at = client.alloc(8192)
        client.upload(at, b"a" * 8192)
        for number in range(300):
            memset(client, at + number, number % 251, count=1, stream=5 if number % 2 else LEGACY)
        read = client.post("rgpuCopyDtoH", src=at, pitch=0, width=300, height=1, stream=LEGACY)
        synchronize = client.post("rgpuContextSynchronize", ctx=10)
        page.until(wanting=1)
        page.grant(OPEN)
        assert client.wait(synchronize).status == 0
        client.wait(read)
        assert client.download(at, 300) == bytes(n % 251 for n in range(300))


def test_an_open_grant_needs_no_message() -> None:
    with gated() as (_, page, client):
        at = client.alloc(4096)
        memset(client, at, 1)
        page.until(wanting=1)
        page.grant(OPEN)
        client.call("rgpuStreamSynchronize", stream=LEGACY)
        page.drain()
        for value in range(50):
            memset(client, at, value)
            client.call("rgpuStreamSynchronize", stream=LEGACY)
        assert not page.signalled(0.1)
        page.say(RECALLED)
        assert page.until(active=0, wanting=0)["in_flight_ns"] == 0
        memset(client, at, 9)
        page.until(active=0, wanting=1)


def test_a_recall_waits_for_what_is_on_the_device() -> None:
    with gated() as (_, page, client):
        client.post("rgpuStreamCreate", stream=5, flags=1, priority=0)
        at = client.alloc(4096)
        memset(client, at, 0)
        page.until(wanting=1)
        page.grant(OPEN)
        client.call("rgpuStreamSynchronize", stream=LEGACY)
        client.wait_value(5, at, 0x01010101)
        memset(client, at + 64, 2, count=64, stream=5)
        client.call("rgpuMemGetInfo")  # it has been decoded
        page.drain()
        page.say(RECALLED)
        assert not page.signalled(0.05)
        assert page.demand()["active"] == 1
        client.write_value(LEGACY, at, 0x01010101)  # no device work
        assert page.until(active=0)["wanting"] == 0


def test_a_slice_that_is_over_is_given_back_with_the_rest_held() -> None:
    with gated() as (_, page, client):
        at = client.alloc(32 << 20)
        for value in range(200):
            memset(client, at, value, count=32 << 20)
        sync = client.post("rgpuStreamSynchronize", stream=LEGACY)
        page.until(wanting=1)
        turns = 0
        while sync not in client.replies:
            if page.demand()["wanting"]:
                page.grant(SLICE, 5_000_000)
                turns += 1
                page.turn_over()
            if select.select([client.socket], [], [], 0.001)[0]:
                client.take(client.frame())
        assert client.wait(sync).status == 0
        assert turns > 1
        page.grant(OPEN)
        assert client.download(at, 16) == bytes([199]) * 16


def test_waits_for_what_is_complete_go_on() -> None:
    with gated() as (_, page, client):
        client.post("rgpuEventCreate", event=30, flags=0)
        client.post("rgpuEventCreate", event=31, flags=0)
        client.post("rgpuEventRecord", event=30, stream=LEGACY, version=1, flags=0)
        at = client.alloc(4096)
        memset(client, at, 1)
        client.post("rgpuEventRecord", event=31, stream=LEGACY, version=1, flags=0)
        page.until(wanting=1)
        client.call("rgpuEventSynchronize", event=30)
        late = client.post("rgpuEventSynchronize", event=31)
        client.call("rgpuMemGetInfo")
        assert late not in client.replies
        page.grant(OPEN)
        assert client.wait(late).status == 0


def test_a_wild_session_gives_the_token_back() -> None:
    with gated() as (_, page, client):
        at = client.alloc(4096)
        memset(client, at, 1)
        page.until(wanting=1)
        page.grant(OPEN)
        client.call("rgpuStreamSynchronize", stream=LEGACY)
        client.wait_value(LEGACY, at, 5)
        memset(client, at, 2)
        client.call("rgpuMemGetInfo")
        assert page.demand()["active"] == 1
        client.send(b"garbage" * 100)
        assert "bytes that are not a frame" in client.sticky()
        client.ended()


@pytest.mark.parametrize("request_ppm", [0, 300_000])
def test_without_a_loop_a_lease_limits_itself(request_ppm: int) -> None:
    with gated() as (_, page, client):
        page.native.rgpu_lease_set_shares(page.address, request_ppm, 1_000_000)
        at = client.alloc(4096)
        page.heartbeat(time.monotonic_ns() - LOOP_GONE_NS)
        memset(client, at, 3)
        assert client.download(at, 4096) == bytes([3]) * 4096
        # A new loop finds the holder that is on the device, and may recall the token.
        page.heartbeat(time.monotonic_ns() + LONG_NS)
        page.grant(RECALLED)
        page.until(active=0)
        memset(client, at, 4)
        page.until(wanting=1)


def test_a_worker_that_is_not_scheduled_asks_nobody() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        at = client.alloc(4096)
        memset(client, at, 6)
        assert client.download(at, 4096) == bytes([6]) * 4096
        assert not select.select([page.signal_fd], [], [], 0)[0]


PLACE = {"pitch": 0, "height": 1, "stream": LEGACY}
BOTH = {"dst_pitch": MIB, "src_pitch": MIB, "width": MIB, "height": 16, "stream": LEGACY}


@pytest.mark.parametrize(
    ("name", "arguments", "expected_us"),
    [
        ("rgpuMemset", {"element_bytes": 4, "value": 1, "width": 4 * MIB, "synchronous": 0}, 335),
        ("rgpuCopyDtoD", {"synchronous": 0, **BOTH}, 335),
        ("rgpuCopyHtoDPull", {"width": 16 * MIB}, 1677),
        ("rgpuCopyDtoHLater", {"width": 16 * MIB}, 1677),
        ("rgpuCopyDtoH", {"width": 16 * MIB}, 26),  # its pieces ask one by one
    ],
)
def test_copies_and_sets_ask_for_as_long_as_they_take(
    name: str, arguments: dict[str, int], expected_us: int
) -> None:
    with gated() as (_, page, client):
        at = client.alloc(32 * MIB)
        places = {"src": at} if "DtoH" in name else {"dst": at}
        if name == "rgpuCopyDtoD":
            places = {"dst": at, "src": at + 16 * MIB}
        else:
            arguments = {**PLACE, **arguments}
        client.post(name, **places, **arguments)
        assert page.until(wanting=1)["kernel_us"] == expected_us


def test_work_is_charged_from_where_it_begins_on_the_device() -> None:
    """Not from where it was put into its stream, which may have to wait."""
    with gated() as (_, page, client):
        for stream in (5, 6):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        at = client.alloc(4096)
        page.grant(SLICE, LONG_NS)
        memset(client, at, 0, stream=5)
        client.call("rgpuStreamSynchronize", stream=5)
        begin = page.until(active=0)["busy_ns"]
        page.grant(SLICE, LONG_NS)
        client.wait_value(5, at, 1)
        memset(client, at + 64, 1, count=64, stream=5)
        started = time.monotonic_ns()
        while time.monotonic_ns() - started < 50 * MS:
            client.call("rgpuMemGetInfo")
        client.write_value(6, at, 1)
        client.call("rgpuStreamSynchronize", stream=5)
        assert 0 < page.until(active=0)["busy_ns"] - begin < 50 * MS
