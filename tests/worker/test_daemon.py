"""The worker as the daemon starts it: control socket, lease page, sandbox."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

from rgpu_common.wire.hello import put_hello
from rgpu_common.wire.resume import Resume as ClientResume
from rgpu_common.wire.resume import put_resume
from rgpu_common.wire.welcome import Welcome, decode_welcome
from rgpu_common.wire.worker import (
    Assign,
    Attach,
    End,
    Ended,
    Opened,
    Ready,
    Refused,
    Resume,
    encode_assign,
    encode_attach,
    encode_end,
    encode_resume,
)
from worker.client import (
    BAND,
    SECONDS,
    hello,
    part,
    worker_command,
)
from worker.images import launch
from worker.warm import LIMIT, LeasePage, open_session, pooled


def status(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Returns the fields of /proc/PID/status of the process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_a_warm_worker_gets_one_session_and_ends_with_it() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        assert isinstance(warm.hear(), Ready)
        client = warm.assign(page)
        assert warm.hear() == Opened(BAND)
        welcome: Welcome = decode_welcome(client.frame().head)
        assert (welcome.session, welcome.secret) == (77, b"s" * 32)
        assert (welcome.stream_credits, welcome.stream_credit_bytes) == (256, 8 << 20)
        assert welcome.memory_limit_bytes == LIMIT
        assert client.control.frame().header.opcode == 5
        client.bye()
        assert isinstance(warm.hear(), Ended)
        assert warm.process.wait(SECONDS) == 0


@needs("root")  # who may look into a worker
def test_it_is_made_small_before_a_client_is_heard() -> None:
    with pooled() as warm:
        warm.hear()
        state = status(warm.process)
        assert state["NoNewPrivs"] == "1"
        assert state["Seccomp"] == "2"
        assert state["CoreDumping"] == "0"
        assert int(state["Uid"].split()[0]) >= 0x60000000
        assert int(state["CapEff"], 16) == int(state["CapPrm"], 16) == 0
        limits = Path(f"/proc/{warm.process.pid}/limits").read_text()
        assert "Max core file size        0                    0" in limits
        held = sorted(int(n) for n in os.listdir(f"/proc/{warm.process.pid}/fd"))
        assert len(held) <= 7, (
            "stdin, stdout, stderr, the control socket, the pipes of what kernels print on stdout "
            "and on stderr, the log"
        )


def test_a_session_works_inside_the_sandbox() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        address = client.alloc(1 << 20)
        assert page.used() == 1 << 20
        client.upload(address, b"data" * 1000)
        assert client.download(address, 4000) == b"data" * 1000
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuMemFree", dptr=address)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert page.used() == 0
        client.bye()
        assert warm.process.wait(SECONDS) == 0


PTX = b""".version 7.8
.target sm_80
.address_size 64
.visible .entry set(.param .u64 out)
{
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [out];
    st.global.u32 [%d0], 11;
    ret;
}
"""


def test_kernels_run_inside_the_sandbox_on_the_tenants_compiler() -> None:
    page = LeasePage(LIMIT)
    ours, theirs = socket.socketpair()
    compiler = subprocess.Popen(
        [sys.executable, "-m", "rgpu_emu.compiler", "--fd", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        cwd="/",
    )
    theirs.close()
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page, compiler=ours.fileno())
        ours.close()
        client.post("rgpuImagePut", image=39, offset=0, total=len(PTX), bulk=PTX)
        client.call(
            "rgpuModuleLoad", module=40, image=39, options=b"", info_log_bytes=0, error_log_bytes=0
        )
        client.call("rgpuModuleGetFunction", module=40, name=b"set", function=41)
        out = client.alloc(512)
        launch(client, struct.pack("<Q", out), threads=1)
        assert client.download(out, 4) == struct.pack("<I", 11)
        client.bye()
        assert warm.process.wait(SECONDS) == 0
    assert compiler.wait(SECONDS) == 0


def test_two_workers_share_the_limit_of_their_lease() -> None:
    """Memory that one worker frees is available to the other."""
    page = LeasePage(LIMIT)
    with pooled() as one, pooled() as two:
        one.hear()
        two.hear()
        first, second = open_session(one, page, 0), open_session(two, page, 1)
        block = first.alloc(LIMIT * 6 // 10)
        assert second.result("rgpuMemAlloc", bytes=LIMIT * 6 // 10).status == 2
        assert second.call("rgpuMemGetInfo")["free"] == LIMIT - page.used()
        first.post("rgpuMemFree", dptr=block)
        assert first.result("rgpuContextSynchronize", ctx=10).status == 0
        assert second.result("rgpuMemAlloc", bytes=LIMIT * 6 // 10).status == 0


def test_a_resize_is_seen_at_once() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        page.set_limit(LIMIT * 2)
        assert client.call("rgpuMemGetInfo")["total"] == LIMIT * 2
        assert client.alloc(LIMIT + 4096)


def test_the_daemon_ends_a_session_with_its_reason() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        warm.control.send(encode_end(End(46, "the lease expired; ask for a longer one")))
        assert client.sticky() == "the lease expired; ask for a longer one"
        client.ended()
        assert warm.process.returncode == 0


@pytest.mark.parametrize("count", [0, 3, 6])
def test_an_assign_without_its_descriptors_is_refused(count: int) -> None:
    """A worker reads no message of the daemon whose descriptors are not those of its row."""
    with pooled() as warm, open(os.devnull) as file:
        warm.hear()
        message = encode_assign(Assign(hello=put_hello(hello())))
        socket.send_fds(warm.control, [message], [file.fileno()] * count)
        assert warm.process.wait(SECONDS) == 2


def test_a_message_that_does_not_fit_its_row_does_nothing() -> None:
    page = LeasePage(LIMIT)
    end = encode_end(End(46, "over"))
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        warm.hear()
        head = put_resume(ClientResume(session=77, secret=b"s" * 32))
        for message in (
            encode_attach(Attach()),
            encode_resume(Resume(head)),
            end + b"\0",
            end[:-1],
        ):
            warm.control.send(message)
        assert client.call("rgpuPing", echo=4)["echo"] == 4
        warm.control.send(end)
        assert client.sticky() == "over"


def test_a_session_outlives_the_daemon() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        warm.control.close()
        assert client.call("rgpuPing", echo=4)["echo"] == 4
        assert client.alloc(4096)
        client.bye()
        assert warm.process.wait(SECONDS) == 0


def test_a_warm_worker_ends_with_its_daemon() -> None:
    with pooled() as warm:
        warm.hear()
        warm.control.close()
        assert warm.process.wait(SECONDS) == 0


def test_a_hello_that_does_not_fit_is_refused_to_both() -> None:
    page = LeasePage(LIMIT)
    with pooled() as warm:
        warm.hear()
        client = warm.assign(page, head=put_hello(hello(major=7)), attach=False)
        answer = warm.hear()
        assert isinstance(answer, Refused)
        assert answer.status == 803
        assert client.frame().header.status == 803
        assert warm.process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "usage"),
        (["--library", "/nowhere/libcuda.so.1", "--control-fd", "0"], "cannot load"),
        (["--library", "x", "--control-fd", "no number"], "usage"),
    ],
)
def test_bad_arguments_are_told(arguments: list[str], sentence: str) -> None:
    program = worker_command()[0]
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr


def test_our_own_client_library_is_refused() -> None:
    """A worker on the shim would serve itself."""
    shim = part("rgpu_client/lib/libcuda.so.1")
    done = subprocess.run(
        [worker_command()[0], "--library", str(shim), "--control-fd", "0"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "serve itself" in done.stderr
