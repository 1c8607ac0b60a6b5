"""The compiler process over its socket: messages, refusals and connections."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.waiting import wait_until
from ptx.compiling import (
    KERNEL,
    Accepting,
    Client,
    big_module,
    kernels,
    lowered,
    send_lower,
    start,
)
from ptx.harness import HEADER as PTX

from rgpu_common.wire.compiler import (
    EntryInfo,
    GlobalInfo,
    GlobalScope,
    GlobalSpace,
    Head,
    Link,
    Linked,
    Loaded,
    Lowered,
    MessageType,
    ParamInfo,
    decode_linked,
    encode_link,
    put_head,
)
from rgpu_emu.lower.abi import KERNEL_ABI


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    ours, theirs = socket.socketpair()
    process = start(tmp_path, "--fd", theirs)
    theirs.close()
    yield Client(ours)
    ours.close()
    assert process.wait(30) == 0


def test_load_tells_entries_and_globals(client: Client) -> None:
    loaded = client.load(KERNEL)
    entry = EntryInfo(
        "add_one", (ParamInfo(0, 8), ParamInfo(8, 4)), param_bytes=12, ptx_version=80, target=80,
        registers=loaded.entries[0].registers, const_bytes=16,
    )  # fmt: skip
    counter = GlobalInfo("counter", size=4, align=4, scope=GlobalScope.MODULE, initial=b"\7")
    table = GlobalInfo("table", GlobalSpace.CONST, 16, 8, GlobalScope.PROGRAM, b"\1\2\3")
    assert loaded == Loaded(key=loaded.key, entries=(entry,), globals=(counter, table))
    assert any(loaded.key)


def test_lower_gives_an_object(client: Client) -> None:
    key = client.load(KERNEL).key
    answer = client.lower(key, "add_one")
    assert answer == Lowered(abi=KERNEL_ABI, object=answer.object)
    assert answer.object[:4] == b"\x7fELF"


def test_refusals_keep_the_connection(client: Client) -> None:
    loaded = client.load(PTX + ".entry k() { tex.2dms.v4.f32.s32 {a,b,c,d}, [t, {n,x,y,y}]; ret; }")
    assert loaded.result == 801
    assert "tex.2dms.v4.f32.s32' needs multisample textures" in loaded.log
    loaded = client.load(PTX + ".entry k()\n{\n  add.u32 a b;\n}")
    assert loaded.result == 218
    assert loaded.log.startswith("line 6: ")
    assert client.load(".version 10.0\n.target sm_80\n").result == 222
    assert client.load("\x7fELF....").result == 209
    assert client.lower(b"x" * 32, "k").result == 500
    key = client.load(KERNEL).key
    assert client.lower(key, "other").result == 500
    assert client.lower(key, "add_one").result == 0


GOOD = ".visible .entry good(.param .u64 p) { ret; }\n"


def test_an_instruction_that_the_device_lacks_refuses_its_kernel_alone(client: Client) -> None:
    bad = ".visible .entry bad(.param .u64 p)\n{\n  .reg .b32 %r<3>;\n  mapa.u32 %r1, %r2, 0;\n  ret;\n}\n"
    loaded = client.load(PTX + GOOD + bad)
    sentence = (
        "line 8: instruction 'mapa.u32' needs clusters of blocks, so sm_90, and the emulated "
        "device is sm_80, so the kernel 'bad' is refused"
    )
    assert (loaded.result, loaded.log) == (0, f"warning: {sentence}\n")
    refusals = {entry.name: (entry.refusal, entry.why) for entry in loaded.entries}
    assert refusals == {"good": (0, ""), "bad": (801, sentence)}
    assert client.lower(loaded.key, "good").result == 0
    bad_one = client.lower(loaded.key, "bad")
    assert (bad_one.result, bad_one.log) == (801, sentence)


WRONG = {
    "frobnicate.b32 %r1, %r2;": "'frobnicate.b32' is not an instruction of PTX 9.0: correct its name",
    "add.s8 %r1, %r2, %r1;": "instruction 'add.s8' is not in PTX 9.0: no form of add has .s8; the forms of add are in "
    "https://docs.nvidia.com/cuda/parallel-thread-execution/#integer-arithmetic-instructions-add",
    "add.s32 %rd1, %r1, %r2;": "instruction 'add.s32': the register %rd1 (.b64) does not fit the instruction's type "
    "of 32 bits: use a register of that width, or convert with cvt",
    "add.s32 %f1, %r1, %r2;": "instruction 'add.s32': the register %f1 (.f32) holds a floating-point number, and .s32 "
    "is an integer: convert it with cvt, or move its bits with mov.b32",
    "ld.global.u32 %r1, [%f1];": "instruction 'ld.global.u32': the register %f1 (.f32) cannot hold an address: declare "
    "it as .b64",
    "cp.async.ca.shared.global [%rd1], [%rd1], 5;": "instruction 'cp.async.ca.shared.global': cp.async copies 4, 8 or "
    "16 bytes",
    "shfl.sync.down.b32 %rd1, %r1, 1, 31, 0xffffffff;": "instruction 'shfl.sync.down.b32': the register %rd1 (.b64) "
    "does not fit the instruction's type of 32 bits: use a register of that width, or convert with cvt",
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_wrong_instructions_refuse_the_module_when_it_is_loaded(client: Client, line: str) -> None:
    bad = (
        ".visible .entry bad(.param .u64 p)\n{\n.reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f32 %f<3>;\n"
        f"  cp.async.ca.shared.global [%rd1], [%rd1], 4;\n  {line}\n  ret;\n}}\n"
    )
    loaded = client.load(PTX + GOOD + bad)
    assert (loaded.result, loaded.log) == (218, f"line 9: {WRONG[line]}")


def test_an_instruction_of_a_later_version_is_told_apart(client: Client) -> None:
    bad = ".visible .entry bad() { frobnicate.b32; ret; }\n"
    for version, result in (("9.0", 218), ("9.1", 222)):
        loaded = client.load(f".version {version}\n.target sm_80\n.address_size 64\n{bad}")
        assert loaded.result == result
        assert loaded.log.startswith("line 4: 'frobnicate.b32' is not an instruction of PTX 9.0")
    assert loaded.log.endswith("The module is PTX 9.1: compile it for PTX 9.0 or earlier")


def test_link_answers(client: Client) -> None:
    answer = client.ask(encode_link(Link((KERNEL.encode(),))), MessageType.LINKED)
    assert decode_linked(answer) == Linked()


def test_a_damaged_cache_file_is_not_used(tmp_path: Path, client: Client) -> None:
    key = client.load(KERNEL).key
    assert client.lower(key, "add_one").result == 0
    for path in tmp_path.rglob("*.obj"):
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    assert lowered(client, key, "add_one")[:4] == b"\x7fELF"


def test_sessions_arrive_by_descriptor_and_do_not_disturb_each_other(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        first, second = compiler.connect(), compiler.connect()
        key = first.load(KERNEL).key
        first.sock.sendall(b"garbage that is no message header")
        assert second.load(KERNEL).key == key
        assert second.lower(key, "add_one").result == 0
        with pytest.raises(ConnectionResetError):
            first.answer(MessageType.LOADED)
    assert len(list((tmp_path / "tenant").iterdir())) == 2


def test_long_messages_come_from_one_session_at_a_time_and_none_blocks_the_others(
    tmp_path: Path,
) -> None:
    """One session starts a message of 200 MB and stops. Of other long messages only the first bytes
    are read meanwhile.
    """
    with Accepting(tmp_path, "--wall-seconds", "5") as compiler:
        silent, other = compiler.connect(), compiler.connect()
        silent.sock.sendall(put_head(Head(MessageType.LOAD, 200 << 20)) + bytes(1 << 20))
        assert other.load(KERNEL).result == 0, "short messages need no turn"
        text = kernels(1) + "// " + "x" * (1 << 20) + "\n"
        assert other.load(text).result == 0
        with pytest.raises(ConnectionResetError):
            silent.answer(MessageType.LOADED)


def test_garbage_behind_a_request_ends_its_connection_alone(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        bad, good = compiler.connect(), compiler.connect()
        send_lower(bad, bad.load(big_module()).key)
        with contextlib.suppress(OSError):
            bad.sock.sendall(b"\xff" * (300 << 10))
        with pytest.raises(ConnectionResetError):
            bad.answer(MessageType.LOWERED)
        wait_until(lambda: not compiler.jobs())
        assert good.load(KERNEL).result == 0
