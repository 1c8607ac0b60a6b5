"""The gateway process and hostile clients: others are served, and memory stays bounded."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest
from helpers.agent import Agent
from helpers.gateway import Gateway, receive
from helpers.http2 import HELLO, STREAM_WINDOW, Error, Flag, Kind, Raw, message, request, reset
from helpers.needs import needs
from helpers.waiting import wait_until

from rgpu_common.tunnel.chunk import OPEN, encode

MIB = 1 << 20
LIST_DEVICES = "/rgpu.v1.DeviceService/ListDevices"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running
        serves(running)


def serves(gateway: Gateway) -> None:
    """Asserts that the bytes of another client pass both ways."""
    word = os.urandom(8)
    with Agent(gateway.address) as agent, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(agent.unix.removeprefix("unix:"))
        client.sendall(word)
        while True:
            inner, _ = gateway.accept()
            with inner, contextlib.suppress(AssertionError):
                if receive(inner, 8) == word:
                    inner.sendall(word)
                    assert receive(client, 8) == word
                    return


@needs("root")  # who may see the descriptors of the gateway
def test_streams_hold_their_windows_and_no_more(gateway: Gateway) -> None:
    """The daemon accepts none of the tunnels, so their bytes wait in the gateway."""
    before = gateway.resident_bytes()
    count = 400
    piece = encode(bytes(16000))
    with Raw(gateway.target, HELLO) as raw:
        for stream in range(1, 2 * count + 1, 2):
            raw.say(request(OPEN, stream), message(piece, stream) * (STREAM_WINDOW // 16100))
        raw.answers()
        assert gateway.resident_bytes() - before < 2 * count * STREAM_WINDOW + 32 * MIB
    serves(gateway)
    wait_until(lambda: gateway.descriptors() < 40)


def test_what_nobody_takes_of_the_api(gateway: Gateway) -> None:
    """A request is as long as a window, until the daemon takes it."""
    with Raw(gateway.target, HELLO, request(LIST_DEVICES)) as raw:
        raw.say(message(bytes(8000)))
        inner, _ = gateway.accept()
        with inner:
            raw.say(message(bytes(8000)) * (STREAM_WINDOW // 8000))
            assert raw.hears_number(Kind.RST_STREAM, 1) == Error.FLOW_CONTROL
            raw.answers()


def test_calls_of_the_api_that_are_given_up(gateway: Gateway) -> None:
    """The daemon gets the cancellation of these calls, and nothing is left of them."""
    with Raw(gateway.target, HELLO) as raw:
        streams = range(1, 400, 2)
        for stream in streams:
            last = message(b"", stream, Flag.END_STREAM)
            raw.say(request(LIST_DEVICES, stream), last)
        inner, _ = gateway.accept()
        with inner:
            raw.say(*(reset(Error.CANCEL, stream) for stream in streams))
            raw.answers()
            # It speaks HTTP/2 behind the preface, and none of the calls is left.
            assert receive(inner, 24).startswith(b"PRI * HTTP/2.0")
            raw.say(request(OPEN, 1001), message(encode(b"on"), 1001))
            other, _ = gateway.accept()
            with other:
                assert receive(other, 2) == b"on"


@needs("root")  # who may see the descriptors of the gateway
def test_who_is_silent_keeps_nothing(gateway: Gateway) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            raw = stack.enter_context(Raw(gateway.target, HELLO))
            raw.hears(Kind.SETTINGS)
        serves(gateway)
    wait_until(lambda: gateway.descriptors() < 40)
