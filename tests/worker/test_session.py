"""A session opens, is refused with a sentence, and its process ends with its client."""

import struct

import pytest

from rgpu_common.wire.fields import Band
from rgpu_common.wire.hello import OpcodeHash
from rgpu_common.wire.refused import Refused
from rgpu_common.wire.welcome import Welcome
from worker.client import BAND, DEVICE_BYTES, SECONDS, Gone, hello, session, worker

EVERYTHING = Band(1 << 16, (1 << 47) - (1 << 20))  # the worker itself lies in it


def attribute(welcome: Welcome, number: int) -> int:
    return dict(welcome.devices[0].attributes)[number]


def test_welcome_tells_the_device() -> None:
    with worker("--memory", str(256 << 20)) as client:
        welcome = client.open()
        assert isinstance(welcome, Welcome)
        assert welcome.band == BAND
        assert welcome.missing == ()
        assert welcome.memory_limit_bytes == 256 << 20
        assert len(welcome.secret) == 32
        device = welcome.devices[0]
        assert device.total_bytes == 256 << 20, "the quota, not the device"
        assert device.name == "rgpu emulated device"
        assert len(device.uuid) == 16
        assert device.default_pool >= 1 << 63


def test_attributes_promise_only_what_holds_over_the_wire() -> None:
    with worker() as client:
        welcome = client.open()
        assert isinstance(welcome, Welcome)
        zero = (
            88,
            89,
            91,
            96,
            100,
            101,
            119,
            124,
            127,
            129,
            132,
            136,
            20,
            133,
            18,
        )
        attributes = dict(welcome.devices[0].attributes)
        assert [n for n in zero if attributes.get(n, 0) != 0] == []
        assert {attribute(welcome, held) for held in (19, 41, 83, 102, 125)} == {1}
        assert attribute(welcome, 134) == -1
        bus = f"{attribute(welcome, 50):04x}:{attribute(welcome, 33):02x}:00.0"
        assert welcome.devices[0].pci_bus_id == bus


def test_whole_device_without_a_limit() -> None:
    with session() as client:
        info = client.call("rgpuMemGetInfo")
        assert info["total"] == DEVICE_BYTES
        assert 0 < int(info["free"]) <= DEVICE_BYTES


def test_another_wire_major_is_refused() -> None:
    with worker() as client:
        answer = client.open(hello(major=99))
        assert isinstance(answer, Refused)
        assert "99" in answer.sentence
        assert "same rgpu release" in answer.sentence
        client.ended()


def test_the_first_band_that_is_free_is_taken() -> None:
    with worker() as client:
        answer = client.open(hello(device_bands=(EVERYTHING, BAND, Band(BAND.base * 2, BAND.size))))
        assert isinstance(answer, Welcome)
        assert answer.band == BAND


def test_no_free_band_is_refused() -> None:
    with worker() as client:
        answer = client.open(hello(device_bands=(EVERYTHING,)))
        assert isinstance(answer, Refused)
        assert "address bands" in answer.sentence


def test_addresses_lie_in_the_band() -> None:
    with session() as client:
        address = client.alloc(1 << 20)
        assert BAND.base <= address < BAND.base + BAND.size


def test_opcodes_of_another_release_are_named() -> None:
    with worker() as client:
        answer = client.open(hello(opcodes=(OpcodeHash(0x0109, 1), OpcodeHash(0x7777, 2))))
        assert isinstance(answer, Welcome)
        assert answer.missing == (0x0109, 0x7777)


def test_a_stranger_is_not_answered() -> None:
    with worker() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nAccept: everything\r\n\r\n")
        with pytest.raises(Gone):
            client.frame()


@pytest.mark.parametrize("lane", ["command", "control", "bye"])
def test_the_process_ends_with_its_client(lane: str) -> None:
    with session() as client:
        client.alloc(1 << 20)
        if lane == "command":
            client.socket.close()
        elif lane == "control":
            client.control.socket.close()
        else:
            client.bye()
        assert client.process.wait(SECONDS) == 0


def test_the_process_ends_although_a_stream_never_will() -> None:
    with session() as client:
        address = client.alloc(4096)
        client.upload(address, struct.pack("<I", 0))
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.wait_value(20, address, 1)
        client.post("rgpuStreamSynchronize", stream=20)
        client.post("rgpuMemFree", dptr=address)
        assert client.call("rgpuPing", echo=3)["echo"] == 3
        client.bye()
        assert client.process.wait(SECONDS) == 0
