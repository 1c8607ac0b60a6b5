"""One message of each kind with a value in every field. `tests/wire/recorded.txt` holds their bytes."""

from __future__ import annotations

from pathlib import Path

from rgpu_common.wire.attach import Attach, encode_attach, encode_attached
from rgpu_common.wire.claim import Claimed, Place, encode_claimed, encode_place
from rgpu_common.wire.fields import Band, Wish, WishKey
from rgpu_common.wire.frame import HEADER_BYTES
from rgpu_common.wire.hello import Hello, OpcodeHash, encode_hello
from rgpu_common.wire.messages import Control, Notice, encode_message
from rgpu_common.wire.observe import (
    Observe,
    Observed,
    ObservedProcess,
    Reading,
    ReadingKey,
    encode_observe,
    encode_observed,
)
from rgpu_common.wire.preface import Preface, encode_preface
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.resume import Lane, Resume, Resumed, encode_resume, put_resumed
from rgpu_common.wire.shm import Shm, put_shm
from rgpu_common.wire.welcome import Attribute, DeviceInfo, Welcome, encode_welcome

RECORDED = Path(__file__).parents[1] / "wire/recorded.txt"
SECRET = bytes(range(32))
HELLO = Hello(
    major=1, minor=2, release="0.1.0", access_token="a token", lease_key="lease", tenant="tenant ä",
    container="container", program="/usr/bin/python3", pid=42, device=-1, memory_bytes=1 << 33,
    share_request_ppm=250_000, share_limit_ppm=1_000_000, resume_session=5, resume_seq=6,
    device_bands=(Band(0x2000_0000_0000, 1 << 40),), pinned_bands=(Band(0x4000_0000_0000, 1 << 30),),
    opcodes=(OpcodeHash(0x0301, 0x12345678), OpcodeHash(0x0302, 9)),
    wishes=(Wish(WishKey.SHM, 1), Wish(99, (1 << 64) - 1)),
)  # fmt: skip
WELCOME = Welcome(
    session=7, secret=SECRET, release="0.1.0", band=Band(0x2000_0000_0000, 1 << 40),
    pinned=Band(0x4000_0000_0000, 1 << 30), stream_credits=512, stream_credit_bytes=64 << 20,
    memory_limit_bytes=2 << 30, driver_version=13000, missing=(0x0301, 0xFFFF),
    devices=(
        DeviceInfo(
            name="rgpu emulated device", uuid=bytes(range(16)), total_bytes=8 << 30,
            pci_bus_id="0000:01:00.0", attributes=(Attribute(1, 1024), Attribute(2, -1)),
            default_pool=1 << 63, least_priority=0, greatest_priority=-5,
        ),
        DeviceInfo(name="another"),
    ),
    note="a note", grants=(Wish(WishKey.RESUMABLE, 10_000),),
)  # fmt: skip
CLAIMED = Claimed(
    release="0.1.0", lease_id="lease-1", key="key", tenant="tenant", device=1,
    device_name="rgpu emulated device", device_bytes=8 << 30, memory_bytes=2 << 30,
    share_request_ppm=250_000, share_limit_ppm=500_000,
)  # fmt: skip
OBSERVE = Observe(
    major=1, minor=2, access_token="a token", lease_key="lease", tenant="tenant ä",
    container="container", device=1, memory_bytes=1 << 33, memory_ppm=250_000,
)  # fmt: skip
OBSERVED = Observed(
    release="0.1.0", driver="580.65.06", cuda_version=13000, lease_id="lease-1", tenant="tenant",
    device=1, name="rgpu emulated device", uuid="GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
    pci_bus_id="5ee9:01:00.0", mig="1g.10gb", compute_major=8, compute_minor=6,
    memory_limit_bytes=2 << 30, memory_used_bytes=1 << 30, share_request_ppm=250_000,
    share_limit_ppm=500_000, share_ppm=123_456, clock_ns=1 << 40,
    processes=(ObservedProcess(42, 1 << 20, 7, "python train.py"), ObservedProcess(43)),
    readings=(Reading(ReadingKey.POWER_MW, 650_400), Reading(99, (1 << 64) - 1)),
)  # fmt: skip


def heads() -> dict[str, bytes]:
    """Returns the name of each message and the head of its sample."""
    frames = {
        "HELLO": encode_hello(HELLO),
        "HELLO of minor 0": encode_hello(Hello(minor=0)),
        "WELCOME": encode_welcome(WELCOME),
        "WELCOME without grants": encode_welcome(Welcome()),
        "REFUSED": encode_refused(46, "no\nlease"),
        "ATTACH": encode_attach(Attach(9, SECRET)),
        "ATTACHED": encode_attached(),
        "RESUME": encode_resume(Resume(7, SECRET, Lane.CONTROL, 3, 2, 1 << 40)),
        "PREFACE": encode_preface(Preface("tls", "192.0.2.7:5123", "alice", True)),
        "CLAIMED": encode_claimed(CLAIMED),
        "OBSERVE": encode_observe(OBSERVE),
        "OBSERVED": encode_observed(OBSERVED),
        "OBSERVED of nothing": encode_observed(Observed()),
        "PLACE": encode_place(Place(2, 5, "a device with 2 GiB free")),
        "NOTICE CREDIT": encode_message(Notice.CREDIT, {"stream": 1, "completed": 2}),
        "NOTICE COMPLETED": encode_message(
            Notice.COMPLETED, {"object": 1, "version": 2, "time_ns": 3}
        ),
        "NOTICE STICKY": encode_message(Notice.STICKY, {"context": 1, "sentence": "a\nb"}),
        "NOTICE PULL": encode_message(Notice.PULL, {"pull": 1, "offset": 2, "bytes": 3}),
        "NOTICE CALLBACK": encode_message(Notice.CALLBACK, {"callback": 1}),
        "NOTICE LOG": encode_message(Notice.LOG, {"level": 1, "text": "ä\x1b"}),
        "NOTICE ACK": encode_message(Notice.ACK),
        "NOTICE COMPILED": encode_message(Notice.COMPILED, {"ns": 1, "name": "kernel"}),
        "CONTROL BYE": encode_message(Control.BYE),
        "CONTROL CANCEL": encode_message(Control.CANCEL, {"seq": 1}),
        "CONTROL PULL_DATA": encode_message(Control.PULL_DATA, {"pull": 1, "offset": 2}),
        "CONTROL CALLBACK_DONE": encode_message(Control.CALLBACK_DONE, {"callback": 1}),
        "CONTROL KEEP_ALIVE": encode_message(Control.KEEP_ALIVE),
        "CONTROL COPY_DONE": encode_message(Control.COPY_DONE, {"ticket": 1}),
    }
    return {name: frame[HEADER_BYTES:] for name, frame in frames.items()} | {
        "RESUMED": put_resumed(Resumed(1 << 41)),
        "SHM": put_shm(Shm(0, "no\x7fmemory")),
    }


def recorded() -> dict[str, bytes]:
    """Returns the bytes that wire version 1.2 has had since its first release."""
    rows = (line.rpartition(" ") for line in RECORDED.read_text().splitlines())
    return {name: bytes.fromhex(head.strip("-")) for name, _, head in rows}
