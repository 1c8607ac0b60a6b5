"""Every message has the bytes that it had when the first release recorded them."""

from __future__ import annotations

import pytest
from helpers import channel_samples
from helpers.native_abi import channel_roundtrip, handshake_roundtrip
from helpers.wire_samples import heads, recorded

from cudaspec.load_messages import channels
from rgpu_common.wire.handshake import Handshake

NATIVE = [
    name for name in heads()
    if name.split()[0] in Handshake.__members__ and name not in ("CLAIMED", "PLACE", "ATTACHED")
]  # fmt: skip


def test_python_writes_the_recorded_bytes() -> None:
    assert heads() == recorded()


def test_every_handshake_message_is_recorded() -> None:
    assert {name.split()[0] for name in recorded()} >= set(Handshake.__members__) - {"PROBE"}


@pytest.mark.parametrize("name", NATIVE)
def test_cpp_reads_and_writes_the_recorded_bytes(name: str) -> None:
    head = recorded()[name]
    assert handshake_roundtrip(Handshake[name.split()[0]], head) == head


def test_python_writes_the_recorded_messages_of_channels() -> None:
    assert channel_samples.messages() == channel_samples.recorded()


@pytest.mark.parametrize("channel", channels())
def test_cpp_reads_and_writes_the_recorded_messages_of_channels(channel: str) -> None:
    head = 4 if channel == "worker" else 16
    for message in channels()[channel].own.messages:
        sample = channel_samples.recorded()[f"{channel} {message.name}"]
        assert int.from_bytes(sample[:4], "little") == message.opcode
        assert channel_roundtrip(channel, message.opcode, sample[head:]) == sample[head:]
