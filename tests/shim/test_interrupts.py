"""Ctrl-C while a program waits for the GPU: it is told what for, and a second one ends it."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers import clients
from helpers.asking import running_on
from helpers.server import Server
from helpers.waiting import wait_until

# Spins until the device's own limit for a launch ends it.
SPIN = r"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 flag)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %a<2>;
  ld.param.u64 %a1, [flag];
AGAIN:
  ld.volatile.global.u32 %r1, [%a1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  ret;
}
"""
SOURCE = f"""
import signal, sys
BEFORE
cuda.open()
flag = cuda.alloc(4)
cuda.upload(flag, bytes(4))
spin = cuda.function(cuda.load({SPIN!r}.encode()), "spin")
cuda.launch(spin, 1, 1, flag)
try:
    print("waits", flush=True)
    cuda.synchronize()
except KeyboardInterrupt:
    print("interrupted", flush=True)
except CudaError as error:
    print("ended with", error.result, flush=True)
"""
TOLD = "rgpu: this program waits for the GPU, for "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("server") / "rgpu.toml"
    config.write_text("[emulated]\nlaunch_seconds = 4\n")
    with Server("--config", str(config)) as found:
        yield found


@contextmanager
def waiting(server: Server, before: str = "") -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A program that waits for its kernel, and what it says on stderr."""
    said: list[str] = []
    process = subprocess.Popen(
        clients.command(SOURCE.replace("BEFORE", before)), env=clients.environment(server.tcp),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        listening = threading.Thread(target=said.extend, args=(process.stderr,))
        listening.start()
        try:
            assert process.stdout.readline() == "waits\n"
            yield process, said
        finally:
            process.kill()
            listening.join()


def interrupted_until_told(process: subprocess.Popen[str], said: list[str]) -> None:
    """Sends SIGINT until the program is told of its wait, which is not long at first."""

    def told() -> bool:
        if process.poll() is None and not said:
            process.send_signal(signal.SIGINT)
        return any(line.startswith(TOLD) for line in said)

    wait_until(told)


def test_a_second_ctrl_c_ends_the_program_at_once(server: Server) -> None:
    # The handler of its own lets it wait on, also when SIGINT comes just before the wait.
    with waiting(server, "signal.signal(signal.SIGINT, lambda *_: None)") as (process, said):
        interrupted_until_told(process, said)
        # One of those that were sent may have been the second already.
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert "Ctrl-C again ends it at once" in said[0]
    wait_until(lambda: not running_on(server.tcp)["sessions"])


def test_the_programs_own_handler_runs_when_the_wait_is_over(server: Server) -> None:
    with waiting(server) as (process, said):
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert output == "interrupted\n", said
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("handler", "ends"), [("SIG_DFL", -signal.SIGINT), ("SIG_IGN", 0)]
)  # fmt: skip
def test_a_program_without_a_handler_is_left_alone(server: Server, handler: str, ends: int) -> None:
    with waiting(server, f"signal.signal(signal.SIGINT, signal.{handler})") as (process, said):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == ends
    assert not any(line.startswith(TOLD) for line in said)


def test_a_handler_that_the_program_sets_later_is_its_own(server: Server) -> None:
    before = "cuda.open(); signal.signal(signal.SIGINT, lambda *_: print('mine', flush=True))"
    with waiting(server, before) as (process, _):
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert output.startswith("mine\n")
