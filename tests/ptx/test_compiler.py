"""The compiler process over its socket."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.waiting import wait_until
from ptx.harness import HEADER as PTX
from typing_extensions import Self

from rgpu_emu.compile_cache import ObjectCache, open_folder
from rgpu_emu.compile_protocol import HEADER, LINK, LINKED, LOAD, LOADED, LOWER, LOWERED, Reader
from rgpu_emu.compile_sandbox import Report, own_user
from rgpu_emu.lower.abi import KERNEL_ABI
from rgpu_server.workers.compiler import first_report
from rgpu_server.workers.messages import Ready, decode_from_worker

KERNEL = (
    PTX
    + """
.global .align 4 .u32 counter = 7;
.visible .const .align 8 .b8 table[16] = {1, 2, 3};
.visible .entry add_one(.param .u64 p, .param .u32 n)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)


class Client:
    """One connection to a compiler."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(60)

    def ask(self, kind: int, body: bytes) -> tuple[int, Reader]:
        self.sock.sendall(HEADER.pack(kind, 0, len(body)) + body)
        return self.answer()

    def answer(self) -> tuple[int, Reader]:
        kind, _, size = HEADER.unpack(self._take(HEADER.size))
        return kind, Reader(self._take(size))

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def load(self, *inputs: str) -> tuple[int, str, bytes, Reader]:
        body = struct.pack("<I", len(inputs))
        for text in inputs:
            body += struct.pack("<I", len(text)) + text.encode()
        kind, reader = self.ask(LOAD, body)
        assert kind == LOADED
        return reader.u32(), reader.data().decode(), reader.data(), reader

    def lower(self, key: bytes, name: str) -> tuple[int, str, Reader]:
        body = struct.pack("<I", len(key)) + key + struct.pack("<I", len(name)) + name.encode()
        kind, reader = self.ask(LOWER, body)
        assert kind == LOWERED
        return reader.u32(), reader.data().decode(), reader


def start(
    cache: Path | None, flag: str, sock: socket.socket, *options: str
) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if k != "RGPU_EMU_CACHE"}
    if cache is not None:
        environment["RGPU_EMU_CACHE"] = str(cache)
    command = [sys.executable, "-m", "rgpu_emu.compiler", flag, str(sock.fileno()), *options]
    return subprocess.Popen(command, pass_fds=[sock.fileno()], env=environment)


class Accepting:
    """A compiler as the daemon has one: it gets a tenant's sessions and folder by descriptor."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.accept, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = start(None, "--accept-fd", theirs, *options)
        theirs.close()
        self.accept.settimeout(60)
        message = decode_from_worker(self.accept.recv(65536))
        assert isinstance(message, Ready)
        self.report = message.report
        self._folder: Path | None = folder
        self.clients: list[Client] = []

    def connect(self, debt: float = 0.0) -> Client:
        mine, yours = socket.socketpair()
        passed = [yours.fileno()]
        if self._folder is not None:
            passed.append(open_folder(self._folder, "tenant", own_user(self.process.pid)))
        socket.send_fds(self.accept, [f"{debt}".encode()], passed)
        yours.close()
        if self._folder is not None:
            os.close(passed[1])
            self._folder = None
        self.clients.append(Client(mine))
        return self.clients[-1]

    def jobs(self) -> list[int]:
        """Processes of the compiler's jobs."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.sock.close()
        self.accept.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    ours, theirs = socket.socketpair()
    process = start(tmp_path, "--fd", theirs)
    theirs.close()
    yield Client(ours)
    ours.close()
    assert process.wait(30) == 0


def test_load_tells_entries_and_globals(client: Client) -> None:
    result, log, key, reader = client.load(KERNEL)
    assert (result, log, len(key)) == (0, "", 32)
    assert [reader.u32() for _ in range(3)] == [1, 2, 0]
    assert reader.data() == b"add_one"
    assert struct.unpack("<4I", reader.data()) == (0, 8, 8, 4)
    total, shared, local, threads, version, target, _, const = (reader.u32() for _ in range(8))
    assert (total, shared, local, threads, version, target, const) == (12, 0, 0, 0, 80, 80, 16)
    assert (reader.u32(), reader.data()) == (0, b"")
    assert reader.data() == b"counter"
    assert struct.unpack("<IQII", reader.take(20)) == (1, 4, 4, 0)
    assert (reader.data(), reader.data()) == (struct.pack("<I", 7).rstrip(b"\0"), b"")
    assert reader.data() == b"table"
    assert struct.unpack("<IQII", reader.take(20)) == (2, 16, 8, 1)
    assert (reader.data(), reader.data()) == (b"\1\2\3", b"")
    reader.end()


def test_lower_gives_an_object(client: Client) -> None:
    _, _, key, _ = client.load(KERNEL)
    result, log, reader = client.lower(key, "add_one")
    assert (result, log) == (0, "")
    assert [reader.u32() for _ in range(5)] == [KERNEL_ABI, 0, 0, 0, 0]
    assert reader.data()[:4] == b"\x7fELF"
    assert reader.u32() == 0
    reader.end()


def test_refusals_keep_the_connection(client: Client) -> None:
    result, log, _, _ = client.load(
        PTX + ".entry k() { tex.2d.v4.f32.s32 {a,b,c,d}, [t, {x, y}]; ret; }"
    )
    assert result == 801
    assert "tex.2d.v4.f32.s32" in log
    result, log, _, _ = client.load(PTX + ".entry k()\n{\n  add.u32 a b;\n}")
    assert result == 218
    assert log.startswith("line 6: ")
    assert client.load(".version 10.0\n.target sm_80\n")[0] == 222
    assert client.load("\x7fELF....")[0] == 209
    assert client.lower(b"x" * 32, "k")[0] == 500
    _, _, key, _ = client.load(KERNEL)
    assert client.lower(key, "other")[0] == 500
    assert client.lower(key, "add_one")[0] == 0


GOOD = ".visible .entry good(.param .u64 p) { ret; }\n"


def test_an_unknown_instruction_refuses_its_kernel_alone(client: Client) -> None:
    bad = ".visible .entry bad(.param .u64 p)\n{\n  .reg .b32 %r<3>;\n  frobnicate.b32 %r1, %r2;\n  ret;\n}\n"
    result, log, key, reader = client.load(PTX + GOOD + bad)
    sentence = (
        "line 8: instruction 'frobnicate.b32' is not in the emulated device's instruction table, "
        "so the kernel 'bad' is refused"
    )
    assert (result, log) == (0, f"warning: {sentence}\n")
    assert [reader.u32() for _ in range(3)] == [2, 0, 0]
    refusals = {}
    for _ in range(2):
        name, _, _ = reader.data(), reader.data(), reader.take(32)
        refusals[name] = (reader.u32(), reader.data().decode())
    assert refusals == {b"good": (0, ""), b"bad": (801, sentence)}
    assert client.lower(key, "good")[0] == 0
    assert client.lower(key, "bad")[:2] == (801, sentence)


def test_link_answers(client: Client) -> None:
    text = KERNEL.encode()
    kind, reader = client.ask(LINK, struct.pack("<II", 1, len(text)) + text)
    assert (kind, reader.u32(), reader.data()) == (LINKED, 0, b"")


def test_the_second_process_finds_the_cache(tmp_path: Path) -> None:
    replies = []
    for _ in range(2):
        ours, theirs = socket.socketpair()
        process = start(tmp_path, "--fd", theirs)
        theirs.close()
        client = Client(ours)
        _, _, key, _ = client.load(KERNEL)
        replies.append(client.lower(key, "add_one")[2].take(20))
        ours.close()
        assert process.wait(30) == 0
    files = sorted(p.suffix for p in tmp_path.rglob("*") if p.is_file())
    assert replies[0] == replies[1]
    assert files == [".load", ".obj"]


def test_programs_that_share_a_folder_all_remember(tmp_path: Path) -> None:
    ends = [socket.socketpair() for _ in range(2)]
    processes = [start(tmp_path, "--fd", theirs) for _, theirs in ends]
    clients = [Client(ours) for ours, _ in ends]
    for client, (_, theirs) in zip(clients, ends, strict=True):
        theirs.close()
        assert client.load(KERNEL + "\n" * len(ends))[0] == 0
    for n, client in enumerate(clients):
        _, _, key, _ = client.load(KERNEL + f"// {n}\n")
        assert client.lower(key, "add_one")[0] == 0
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 5
    for client, process in zip(clients, processes, strict=True):
        client.sock.close()
        assert process.wait(30) == 0


def test_a_damaged_cache_file_is_not_used(tmp_path: Path, client: Client) -> None:
    _, _, key, _ = client.load(KERNEL)
    assert client.lower(key, "add_one")[0] == 0
    for path in tmp_path.rglob("*.obj"):
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    result, _, reader = client.lower(key, "add_one")
    reader.take(20)
    assert (result, reader.data()[:4]) == (0, b"\x7fELF")


def test_sessions_arrive_by_descriptor_and_do_not_disturb_each_other(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        first, second = compiler.connect(), compiler.connect()
        _, _, key, _ = first.load(KERNEL)
        first.sock.sendall(b"garbage that is no message header")
        assert second.load(KERNEL)[2] == key
        assert second.lower(key, "add_one")[0] == 0
        with pytest.raises(ConnectionResetError):
            first.answer()
    assert len(list((tmp_path / "tenant").iterdir())) == 2


def kernels(count: int) -> str:
    """A module of so many kernels, each a little different."""
    return PTX + "".join(
        f".visible .entry k{n}(.param .u64 p)\n{{ .reg .b64 %a; .reg .b32 %r<2>;"
        f" ld.param.u64 %a, [p]; ld.global.u32 %r1, [%a+{4 * n}]; st.global.u32 [%a], %r1; ret; }}\n"
        for n in range(count)
    )


def test_a_module_is_linked_once_for_all_its_kernels(tmp_path: Path) -> None:
    """One process has the module and lowers every kernel; what comes out is what a fresh one makes."""
    with Accepting(tmp_path / "one") as compiler:
        client = compiler.connect()
        _, _, key, _ = client.load(kernels(6))
        (job,) = compiler.jobs()
        objects = [lowered(client, key, f"k{n}") for n in range(6)]
        assert compiler.jobs() == [job]
    with Accepting(tmp_path / "two") as compiler:
        client = compiler.connect()
        client.load(kernels(6))
        for n in reversed(range(3)):
            client.load(kernels(1 + n) + "// another module ends the job\n")
            client.load(kernels(2 + n) + "// and another\n")
            assert lowered(client, key, f"k{n}") == objects[n]


def lowered(client: Client, key: bytes, name: str) -> bytes:
    result, log, reader = client.lower(key, name)
    assert (result, log) == (0, "")
    reader.take(20)
    return reader.data()


def test_one_tenant_has_two_processes_however_many_sessions_compile(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        clients = [compiler.connect() for _ in range(20)]
        for n, client in enumerate(clients):
            body = (kernels(40) + f"// {n}\n").encode()
            load = struct.pack("<II", 1, len(body)) + body
            client.sock.sendall(HEADER.pack(LOAD, 0, len(load)) + load)
        most = 0
        for client in clients:
            most = max(most, len(compiler.jobs()))
            kind, reader = client.answer()
            assert (kind, reader.u32()) == (LOADED, 0)
        assert most <= 2
        assert len(compiler.jobs()) == 2


def test_the_cache_of_a_tenant_has_one_bound_for_all_connections(tmp_path: Path) -> None:
    """Twenty connections store twice the bound."""
    limit = 256 << 10
    with Accepting(tmp_path, "--cache-bytes", str(limit)) as compiler:
        clients = [compiler.connect() for _ in range(20)]
        for n, client in enumerate(clients):
            data = ", ".join("7" for _ in range(20_000))
            text = kernels(1) + f".visible .global .align 1 .b8 data{n}[20000] = {{{data}}};\n"
            assert client.load(text)[0] == 0
            assert folder_bytes(tmp_path / "tenant") <= limit
        assert folder_bytes(tmp_path / "tenant") > limit // 2


def test_long_messages_come_from_one_session_at_a_time_and_none_blocks_the_others(
    tmp_path: Path,
) -> None:
    """One begins a message of 200 MB and stops; what others send beyond a little is not read."""
    with Accepting(tmp_path, "--wall-seconds", "5") as compiler:
        silent, other = compiler.connect(), compiler.connect()
        silent.sock.sendall(HEADER.pack(LOAD, 0, 200 << 20) + bytes(1 << 20))
        assert other.load(KERNEL)[0] == 0, "short messages need no turn"
        text = kernels(1) + "// " + "x" * (1 << 20) + "\n"
        assert other.load(text)[0] == 0
        with pytest.raises(ConnectionResetError):
            silent.answer()


def test_garbage_behind_a_request_ends_its_connection_alone(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        bad, good = compiler.connect(), compiler.connect()
        send_lower(bad, bad.load(big_module())[2])
        with contextlib.suppress(OSError):
            bad.sock.sendall(b"\xff" * (300 << 10))
        with pytest.raises(ConnectionResetError):
            bad.answer()
        wait_until(lambda: not compiler.jobs())
        assert good.load(KERNEL)[0] == 0


def test_a_compiler_without_sessions_keeps_no_process(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        client = compiler.connect()
        assert client.load(KERNEL)[0] == 0
        assert len(compiler.jobs()) == 1
        client.sock.close()
        wait_until(lambda: not compiler.jobs())
        assert compiler.connect().load(KERNEL + "\n")[0] == 0


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_another_process_with_the_same_folder_keeps_to_the_same_bound(tmp_path: Path) -> None:
    """The compiler of an earlier server may still store there."""
    one, two = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    caches = [ObjectCache(one, limit_bytes=100_000), ObjectCache(two, limit_bytes=100_000)]
    for n in range(40):
        caches[n % 2].put(f"{n}", bytes(9000))
        assert folder_bytes(tmp_path) <= 100_000
    assert caches[0].get("39") == bytes(9000)
    os.close(one)
    os.close(two)


def test_processor_time_is_the_limit_and_the_sentence_says_so(tmp_path: Path) -> None:
    with Accepting(tmp_path, "--seconds", "0.3") as compiler:
        client = compiler.connect()
        key = client.load(big_module())[2]
        result, log, _ = client.lower(key, "k")
        assert (result, log) == (
            801,
            "compiling took more than 0.3 s of processor time: make the kernel smaller",
        )
        assert client.load(KERNEL)[2] != key


def test_a_stopped_job_costs_no_processor_time_and_ends_by_the_clock(tmp_path: Path) -> None:
    with Accepting(tmp_path, "--wall-seconds", "3") as compiler:
        client = compiler.connect()
        send_lower(client, client.load(big_module())[2])
        os.kill(compiler.jobs()[0], signal.SIGSTOP)
        kind, reader = client.answer()
        assert (kind, reader.u32()) == (LOWERED, 801)
        sentence = reader.data().decode()
        assert sentence.startswith("after 3 s the compiler had been given ")
        assert "try again later" in sentence


def test_a_tenant_that_has_spent_its_processor_time_compiles_behind_all_others(
    tmp_path: Path,
) -> None:
    """Its debt comes from an earlier compiler of the same tenant."""
    with Accepting(tmp_path) as compiler:
        client = compiler.connect(debt=400.0)
        assert client.load(KERNEL)[0] == 0
        (job,) = compiler.jobs()
        assert os.sched_getscheduler(job) == os.SCHED_IDLE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up its user")
def test_the_waiting_process_has_no_rights(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        assert compiler.connect().load(KERNEL)[0] == 0
        for pid in (compiler.process.pid, *compiler.jobs()):
            facts = dict(
                line.split(":\t", 1)
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if ":\t" in line
            )
            assert {facts[f"Cap{kind}"].strip("0") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
            assert {int(user) for user in facts["Uid"].split()} == {own_user(compiler.process.pid)}
            assert facts["NoNewPrivs"] == "1"
        assert facts["Seccomp"] == "2"
        assert compiler.report == ""


def test_the_report_can_be_had_before_anybody_is_served() -> None:
    assert first_report() == ("" if os.geteuid() == 0 else OTHER_USER)


OTHER_USER = "own-user: the server does not run as root"


def test_what_a_machine_does_not_allow_is_reported_as_a_worker_does() -> None:
    report = Report()
    report.refused("system-calls", "prctl", errno.EPERM)
    report.add("own-user: the server does not run as root; system-calls: EPERM from prctl")
    assert report.text() == (
        "system-calls: EPERM from prctl; own-user: the server does not run as root"
    )


def big_module() -> str:
    lines = "".join(
        f"    fma.rn.f64 %d{n % 7}, %d{n % 5}, %d{n % 3}, %d1;\n" for n in range(150_000)
    )
    return PTX + ".entry k()\n{\n .reg .f64 %d<8>;\n" + lines + " ret;\n}\n"


def send_lower(client: Client, key: bytes) -> None:
    body = struct.pack("<I", len(key)) + key + struct.pack("<I", 1) + b"k"
    client.sock.sendall(HEADER.pack(LOWER, 0, len(body)) + body)


def test_a_killed_request_is_tried_once_more_and_then_answered(tmp_path: Path) -> None:
    """A job that dies (as by its rlimits) is a refusal, not the end; memory that it held from
    requests before is no reason.
    """
    with Accepting(tmp_path) as compiler:
        client = compiler.connect()
        send_lower(client, client.load(big_module())[2])
        (first,) = compiler.jobs()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: compiler.jobs() not in ([first], []))
        os.kill(compiler.jobs()[0], signal.SIGKILL)
        kind, reader = client.answer()
        assert (kind, reader.u32()) == (LOWERED, 801)
        assert b"status -9" in reader.data()
        assert client.load(KERNEL)[0] == 0


ONE_PROCESS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_machine_without_processes_is_a_refusal() -> None:
    """fork fails: the request is refused with a sentence, the connection stays."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "rgpu_emu.compiler", "--fd", str(theirs.fileno())]
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_PROCESS, *command], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    client = Client(ours)
    for text in (KERNEL, KERNEL + "\n"):
        result, log, _, _ = client.load(text)
        assert (result, "no process for the compiler" in log) == (2, True)
    ours.close()
    assert process.wait(30) == 0
