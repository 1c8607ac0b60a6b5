"""The gate: device work waits for the lease's token; all other work goes on."""

import select
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.preload import preload
from helpers.waiting import wait_until

from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import LEGACY, Client
from worker.graphs import MAGIC, graph, instantiate, wait_value
from worker.images import PTX, launch
from worker.leased import leased, load
from worker.token_page import LONG_NS, NONE, OPEN, RECALLED, SLICE, TokenPage
from worker.warm import LIMIT, LeasePage, Pooled, open_session, pooled

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
MS = 1_000_000
LOOP_GONE_NS = 6_000_000_000


@contextmanager
def gated(*options: str, **environment: str) -> Iterator[tuple[Pooled, TokenPage, Client]]:
    page = TokenPage()
    with pooled(*options, **environment) as warm:
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


def test_the_token_stays_until_the_admitted_work_is_on_the_device(tmp_path: Path) -> None:
    """A thread that the machine stops between the admission of a command and its launch must not
    launch when the token has gone back: another lease has the device then.
    """
    slow = preload(HERE / "slow_decoder.cc", tmp_path)
    with gated("--no-sandbox", **slow) as (_, page, client):
        at = client.alloc(4096)
        for turn in range(1, 6):
            before = page.demand()["busy_ns"]
            memset(client, at, turn)
            page.until(wanting=1)
            page.grant(SLICE, LONG_NS)
            while not (said := page.demand())["active"] and said["busy_ns"] == before:
                page.signalled(0)
            page.say(RECALLED)
            # The worker gives the token back when its work is complete, and no sooner.
            assert page.until(active=0, wanting=0)["busy_ns"] > before, turn


def test_a_launch_asks_again_after_pools_made_room_for_its_stack(tmp_path: Path) -> None:
    """Pools give up memory without the worker's lock, so the token may go back meanwhile. The
    launch then waits for the next grant.
    """
    page, ptx = TokenPage(), PTX.replace(b"16384", b"4096").replace(b"16000", b"4000")
    page.set_limit(768 * MIB)
    # Between two of five pools this test must get a processor, also on a busy machine.
    slow = {**preload(HERE / "slow_decoder.cc", tmp_path), "RGPU_TEST_SLOW_US": "40000"}
    with leased(page=page, **slow) as (client, _):
        assert load(client, 40, ptx) == 0
        client.call("rgpuModuleGetFunction", module=40, name=b"deep", function=41)
        out = client.alloc(4096)
        pools = range(30, 35)
        for pool in pools:
            client.call("rgpuPoolCreate", pool=pool, device=0, max_bytes=0)
            # RELEASE_THRESHOLD: the pool keeps freed memory.
            client.post("rgpuPoolSetAttribute", pool=pool, attribute=4, value=(1 << 64) - 1)
            taken = client.call("rgpuPoolAlloc", pool=pool, bytes=8 * MIB, stream=LEGACY)
            client.post("rgpuPoolFree", dptr=taken["dptr"], stream=LEGACY)
        before = page.used()
        page.grant(OPEN)
        launch(client, struct.pack("<Q", out))
        client.call("rgpuContextSynchronize", ctx=10)
        stack = page.used() - before
        client.call("rgpuContextSetLimit", limit=0, value=1024)
        assert page.used() == before
        page.say(RECALLED)
        busy_ns = page.until(active=0, wanting=0)["busy_ns"]

        page.set_limit(before + stack - MIB)  # the pools have more than that
        launch(client, struct.pack("<Q", out))
        page.until(wanting=1)
        page.grant(SLICE, LONG_NS)
        while not page.demand()["active"]:
            page.signalled(0)
        page.say(RECALLED)
        assert page.until(active=0, wanting=1)["busy_ns"] == busy_ns
        page.grant(SLICE, LONG_NS)
        assert page.until(active=0, wanting=0)["busy_ns"] > busy_ns


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
        # A graph that leaves the order of its waits open counts as work while it waits.
        waits = [wait_value(at, 0x01010101), wait_value(at + 4, 0x01010101)]
        assert instantiate(client, 50, MAGIC + graph(waits)) == 0
        client.post("rgpuGraphLaunch", exec=50, stream=5, delivers=0)
        memset(client, at + 64, 2, count=64, stream=5)
        client.call("rgpuMemGetInfo")  # it has been decoded
        page.drain()
        page.say(RECALLED)
        assert not page.signalled(0.05)
        assert page.demand()["active"] == 1
        client.write_value(LEGACY, at, 0x01010101)  # no device work
        client.write_value(LEGACY, at + 4, 0x01010101)
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
    waits = 500 * MS  # far more than the work takes, also on a busy machine
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
        while time.monotonic_ns() - started < waits:
            client.call("rgpuMemGetInfo")
        client.write_value(6, at, 1)
        client.call("rgpuStreamSynchronize", stream=5)
        assert 0 < page.until(active=0)["busy_ns"] - begin < waits


def test_a_stream_goes_on_without_the_token_only_if_the_drivers_queue_is_full(
    tmp_path: Path,
) -> None:
    """A thread has the executor's lock for long, because it trims a pool.  The stream that stood
    still waits for the lock and then for the token.
    """
    started = tmp_path / "started"
    slow = preload(HERE / "slow_trim.cc", tmp_path) | {"TRIM_STARTED": str(started)}
    with gated("--no-sandbox", **slow) as (_, page, client):
        for stream in (5, 6):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        at = client.alloc(2 * MIB)
        pooled_at = client.call("rgpuPoolAlloc", pool=1 << 63, bytes=8 * MIB, stream=6)["dptr"]
        client.call("rgpuStreamSynchronize", stream=6)
        page.grant(SLICE, LONG_NS)
        client.post("rgpuCopyHtoDPull", dst=at, pitch=0, width=4096, height=1, stream=5)
        memset(client, at + MIB, 1, count=MIB, stream=5)
        pull, _ = client.notice(Notice.PULL)
        page.until(active=0)  # what stands still is set aside
        page.say(NONE)
        before = page.demand()["busy_ns"]
        client.post("rgpuPoolFree", dptr=pooled_at, stream=6)
        trimmed = client.post("rgpuStreamSynchronize", stream=6)
        wait_until(started.exists)
        answer = {"pull": pull["pull"], "offset": pull["offset"]}
        client.control.send(encode_message(Control.PULL_DATA, answer, bulk=bytes(4096)))
        assert client.wait(trimmed).status == 0
        page.until(active=0, wanting=1)
        assert page.demand()["busy_ns"] == before
        page.grant(SLICE, LONG_NS)
        client.call("rgpuStreamSynchronize", stream=5)
        assert page.demand()["busy_ns"] > before
