"""The jobs of one tenant's compiler: their number, their bounds, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from helpers.waiting import wait_until
from ptx.compiling import (
    KERNEL,
    Accepting,
    Client,
    big_module,
    kernels,
    lowered,
    send_lower,
)

from rgpu_common.wire.compiler import (
    Load,
    Lower,
    MessageType,
    decode_loaded,
    decode_lowered,
    encode_load,
    encode_lower,
)


def test_a_module_is_linked_once_for_all_its_kernels(tmp_path: Path) -> None:
    """One process has the module and lowers every kernel. Its objects are those of a fresh
    process.
    """
    with Accepting(tmp_path / "one") as compiler:
        client = compiler.connect()
        key = client.load(kernels(6)).key
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


def test_one_tenant_has_two_processes_however_many_sessions_compile(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        clients = [compiler.connect() for _ in range(20)]
        for n, client in enumerate(clients):
            body = (kernels(40) + f"// {n}\n").encode()
            client.sock.sendall(encode_load(Load((body,))))
        most = 0
        for client in clients:
            most = max(most, len(compiler.jobs()))
            assert decode_loaded(client.answer(MessageType.LOADED)).result == 0
        assert most <= 2
        assert len(compiler.jobs()) == 2


def test_a_compiler_without_sessions_keeps_no_process(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        client = compiler.connect()
        assert client.load(KERNEL).result == 0
        assert len(compiler.jobs()) == 1
        client.sock.close()
        wait_until(lambda: not compiler.jobs())
        assert compiler.connect().load(KERNEL + "\n").result == 0


def test_processor_time_is_the_limit_and_the_sentence_says_so(tmp_path: Path) -> None:
    with Accepting(tmp_path, "--seconds", "0.3") as compiler:
        client = compiler.connect()
        key = client.load(big_module()).key
        answer = client.lower(key, "k")
        assert (answer.result, answer.log) == (
            801,
            "compiling took more than 0.3 s of processor time: make the kernel smaller",
        )
        assert client.load(KERNEL).key != key


def test_a_stopped_job_costs_no_processor_time_and_ends_by_the_clock(tmp_path: Path) -> None:
    with Accepting(tmp_path, "--wall-seconds", "5") as compiler:
        client = compiler.connect()
        key = client.load(kernels(1)).key
        (job,) = compiler.jobs()
        os.kill(job, signal.SIGSTOP)
        client.sock.sendall(encode_lower(Lower(key, "k0")))
        answer = decode_lowered(client.answer(MessageType.LOWERED))
        assert answer.result == 801
        sentence = answer.log
        assert sentence.startswith("after 5 s the compiler had been given 0.0 s of processor time")
        assert "try again later" in sentence


def test_a_tenant_that_has_spent_its_processor_time_compiles_behind_all_others(
    tmp_path: Path,
) -> None:
    """The debt comes from an earlier compiler of the same tenant."""
    with Accepting(tmp_path) as compiler:
        client = compiler.connect(debt=400.0)
        assert client.load(KERNEL).result == 0
        (job,) = compiler.jobs()
        assert os.sched_getscheduler(job) == os.SCHED_IDLE


def test_a_killed_request_is_tried_once_more_and_then_answered(tmp_path: Path) -> None:
    """A job that dies (as by its rlimits) is a refusal, not the end; memory that it held from
    requests before is no reason.
    """
    with Accepting(tmp_path) as compiler:
        client = compiler.connect()
        send_lower(client, client.load(big_module()).key)
        (first,) = compiler.jobs()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: compiler.jobs() not in ([first], []))
        os.kill(compiler.jobs()[0], signal.SIGKILL)
        answer = decode_lowered(client.answer(MessageType.LOWERED))
        assert answer.result == 801
        assert answer.log.startswith(
            "the compiler's process ended with status -9 at the kernel 'k': "
        )
        assert client.load(KERNEL).result == 0


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
        loaded = client.load(text)
        assert (loaded.result, "no process for the compiler" in loaded.log) == (2, True)
    ours.close()
    assert process.wait(30) == 0
