"""One of a program's two servers is hostile. The other device works on, and its server's bytes and
access token are not for the hostile one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import clients
from helpers.server import Server
from helpers.two_devices import HEAD

from rgpu_common.wire.codec import Value, encode_piece
from rgpu_common.wire.frame import Frame, Kind
from rgpu_common.wire.hello import Hello
from rgpu_common.wire.messages import Notice, encode_message
from rgpu_common.wire.welcome import Attribute, Welcome
from shim.fake_server import Answer, FakeServer, reply, take_frame

LOST = 911
SIZE = 4096
# Device 0 is of a good server, device 1 of the hostile one.
START = (
    HEAD
    + f"""
size = {SIZE}
current(1)
far = cuda.alloc(size)
current(0)
near, own = cuda.alloc(size), made("cuStreamCreate", 1)
cuda.upload(near, b"secret" + bytes(size - 6))
fill = cuda.function(cuda.load(PTX), "fill")
"""
    + r"""
def works(value):
    assert launch(fill, near + 64, value, own) == 0
    cuda("cuStreamSynchronize", own)
    return word(near + 64) == value

def copy(to, source, stream):
    return cuda.result("cuMemcpyPeerAsync", c_uint64(to[0]), contexts[to[1]], c_uint64(source[0]),
                       contexts[source[1]], c_size_t(size), stream)

def copied(result):  # the copy is over in the good device's stream, whatever came of it
    assert result in (0, 911), result
    cuda("cuStreamSynchronize", own)
    current(1)
    lost = cuda.result("cuCtxSynchronize")
    current(0)
    return lost, works(5), cuda.download(near, 6)
"""
)
Respond = Callable[[FakeServer, str, dict[str, Value], Frame], Iterator[Answer]]


@pytest.fixture(scope="module")
def good() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as server:
        yield server


class Second(FakeServer):
    """A fake server that changes its welcome, and keeps the client's HELLO."""

    change: Callable[[Welcome], Welcome] = staticmethod(lambda welcome: welcome)
    hello: Hello

    def _welcome(self, hello: Hello) -> Welcome:
        self.hello = hello
        return self.change(super()._welcome(hello))


def _second(respond: Respond | None = None) -> Second:
    """Returns a server with one allocation. `respond` answers what it wants to, and yields nothing
    for other commands.
    """

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        answers = list(respond(server, name, values, frame)) if respond is not None else []
        yield from answers
        if answers or not frame.header.flags & 1:
            return
        if name == "rgpuMemAlloc":
            yield reply(frame, name, dptr=server.band.base)
        else:
            yield reply(frame, name)

    server = Second(script)
    return server


def _run(good: Server, second: FakeServer, source: str, head: str = START, **extra: str) -> tuple[
    str, str
]:  # fmt: skip
    variables = {
        "RGPU_DEVICE": f"0@{good.tcp},0@{second.address}", "RGPU_LEASE": "hostile",
        "RGPU_MEMORY": "100MiB", "RGPU_MEMORY_CREDIT": "0",
    }  # fmt: skip
    code, output, errors = clients.run(None, head + dedent(source), **{**variables, **extra})
    assert code == 0, errors
    return output.strip(), errors


def _delivery(name: str, frame: Frame, offset: int, count: int) -> bytes:
    return encode_piece(Kind.DELIVERY, name, offset, b"x" * count, seq=frame.header.seq, last=False)


def _beyond(_: FakeServer, name: str, __: dict[str, Value], frame: Frame) -> Iterator[Answer]:
    if name == "rgpuCopyDtoHLater":
        yield _delivery(name, frame, SIZE - 8, 16)


def _too_far(_: FakeServer, name: str, __: dict[str, Value], frame: Frame) -> Iterator[Answer]:
    if name == "rgpuCopyDtoHLater":
        yield _delivery(name, frame, (1 << 64) - 8, 16)


def _twice(_: FakeServer, name: str, __: dict[str, Value], frame: Frame) -> Iterator[Answer]:
    if name == "rgpuCopyDtoHLater":
        yield _delivery(name, frame, 0, SIZE)
        yield _delivery(name, frame, 0, SIZE)


def _calls_twice(
    server: FakeServer, name: str, __: dict[str, Value], frame: Frame
) -> Iterator[Answer]:
    if name == "rgpuHostFunction":
        for _ in range(2):
            yield encode_message(Notice.CALLBACK, {"callback": 1}, seq=frame.header.seq)


@pytest.mark.parametrize("lie", [_beyond, _too_far, _twice, _calls_twice])
def test_a_lie_about_a_copy_ends_the_liars_session(good: Server, lie: Respond) -> None:
    with _second(lie) as second:
        output, errors = _run(
            good, second, "print(copied(copy((near, 0), (far, 1), own)), word(near + 64))"
        )
    lost, works, *_ = output.strip("(").split(", ")
    assert (lost, works) == (str(LOST), "True"), output
    assert "for this device" in errors


def test_too_few_bytes_of_a_synchronous_copy_end_the_liars_session(good: Server) -> None:
    def few(_: FakeServer, name: str, __: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuCopyDtoH":
            yield encode_piece(Kind.DATA, name, 0, b"x" * 8, seq=frame.header.seq, last=False)
            yield reply(frame, name)

    source = """
    print(cuda.result("cuMemcpyDtoD_v2", c_uint64(near), c_uint64(far), c_size_t(size)))
    print(works(3), cuda.download(near, 6))
    """
    with _second(few) as second:
        output, _ = _run(good, second, source)
    assert output == f"{LOST}\nTrue b'secret'"


def test_bytes_that_have_not_come_are_zeros_for_who_asks_early(good: Server) -> None:
    """The hostile server asks for the bytes of a copy to it at once. The good device's stream is
    held, so they have not come: it gets zeros, and not what the process had in that memory before.
    """
    seen: list[bytes] = []

    def early(server: FakeServer, name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuCopyHtoDPull":
            pull = {"pull": 1, "offset": 0, "bytes": SIZE}
            yield encode_message(Notice.PULL, pull, seq=frame.header.seq)
        elif name == "rgpuMemGetInfo":
            while not seen:
                seen.append(take_frame(server.control).bulk)
            yield reply(frame, name, free=1, total=2)

    source = """
    gate = cuda.alloc(4)
    cuda.upload(gate, bytes(4))
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = c_void_p, [c_size_t]
    libc.free.argtypes = [c_void_p]
    blocks = [libc.malloc(size) for _ in range(64)]
    for block in blocks:
        ctypes.memset(block, 0x5a, size)
    for block in blocks:
        libc.free(block)
    cuda("cuStreamWaitValue32_v2", own, c_uint64(gate), 1, 0)
    assert copy((far, 1), (near, 0), own) == 0
    current(1)
    cuda.memory()  # the hostile server answers when it has the bytes
    current(0)
    print(cuda.download(near, 6))
    """
    with _second(early) as second:
        output, _ = _run(good, second, source)
    assert output == "b'secret'"
    assert seen == [bytes(SIZE)]


def test_a_copy_that_is_never_answered_holds_only_its_stream(good: Server) -> None:
    """Until the hostile server goes."""

    def silent(_: FakeServer, name: str, __: dict[str, Value], ___: Frame) -> Iterator[Answer]:
        if name == "rgpuMemFree":
            raise ConnectionAbortedError  # the server ends
        yield from ()

    source = """
    stream = made("cuStreamCreate", 1)
    assert copy((near, 0), (far, 1), stream) == 0
    print([works(turn) for turn in range(3)], cuda.result("cuStreamQuery", stream))
    cuda.free(far)
    cuda("cuStreamSynchronize", stream)
    print(copied(0)[:2])
    """
    with _second(silent) as second:
        output, _ = _run(good, second, source)
    assert output == f"[True, True, True] 600\n({LOST}, True)"


@pytest.mark.parametrize("lacks", ["device", "band"])
def test_a_server_that_is_not_fit_is_named(good: Server, lacks: str) -> None:
    why = {
        "device": "its server granted no device",
        "band": "its server does not keep its addresses",
    }
    with _second() as second:
        if lacks == "device":
            second.change = lambda welcome: welcome._replace(devices=())  # type: ignore[method-assign]
        else:
            second.with_band = False
        named = f"device 0@{second.address} cannot be one of several: {why[lacks]}"
        output, errors = _run(good, second, 'print(cuda.result("cuInit", 0))', head="")
    assert output == "801"
    assert named in errors


def test_endless_credit_is_not_kept_account_of(good: Server) -> None:
    def endless(welcome: Welcome) -> Welcome:
        return welcome._replace(stream_credits=(1 << 32) - 1, stream_credit_bytes=(1 << 64) - 1)

    source = """
    current(1)
    cuda("cuMemsetD8Async", c_uint64(far), 1, c_size_t(size), None)
    current(0)
    print(works(1))
    """
    with _second() as second:
        second.change = endless  # type: ignore[method-assign]
        output, _ = _run(good, second, source)
    assert output == "True"


def test_a_copied_identity_is_told_apart(good: Server) -> None:
    """Another server's UUID and bus id are not this device's."""
    source = """
    uuids = [create_string_buffer(16) for _ in range(3)]
    for device in range(3):
        cuda("cuDeviceGetUuid_v2", uuids[device], device)
    buses = []
    for device in range(3):
        bus = create_string_buffer(32)
        cuda("cuDeviceGetPCIBusId", bus, 32, device)
        buses.append(bus.value)
        assert number("cuDeviceGetByPCIBusId", bus) == device
        assert number("cuDeviceGetAttribute", 50, device) == int(bus.value[:4], 16)
    print(len({uuid.raw for uuid in uuids}), len(set(buses)))
    """

    def with_domain(welcome: Welcome) -> Welcome:
        (device,) = welcome.devices
        attributes = (*device.attributes, Attribute(50, 0))
        return welcome._replace(devices=(device._replace(attributes=attributes),))

    with _second() as second, _second() as third:
        second.change = third.change = with_domain  # type: ignore[method-assign]
        devices = f"0@{good.tcp},0@{second.address},0@{third.address}"
        output, _ = _run(good, second, source, RGPU_DEVICE=devices)
    assert output == "3 3"


def test_each_server_sees_its_own_access_token(good: Server, tmp_path: Path) -> None:
    """And one without a file of its own sees the one for all."""
    token = tmp_path / "token"
    token.write_text("only-for-second\n")
    source = 'print(cuda.result("cuInit", 0))'
    with _second() as second, _second() as third:
        more = {
            "RGPU_DEVICE": f"0@{second.address},0@{third.address}", "RGPU_TOKEN": "for-all",
            "RGPU_TOKEN_FILES": f"elsewhere:1=/nowhere;{second.address}={token}",
        }  # fmt: skip
        output, _ = _run(good, second, source, head="", **more)
        assert (second.hello.access_token, third.hello.access_token) == (
            "only-for-second", "for-all",
        )  # fmt: skip
    assert output == "0"
    with _second() as second:
        token.write_text("\n")
        more = {"RGPU_TOKEN_FILES": f"{second.address}={token}"}
        output, errors = _run(good, second, source, head="", **more)
    assert output == "1"
    assert "(RGPU_TOKEN_FILES) holds no access token" in errors
