"""The processes of scenarios: fresh ones, that start in a few milliseconds.

A process that has imported Python, the scenarios and their packages, but has never loaded the device,
forks one for each scenario.  All of them ask one compiler, which gets their sockets as it gets the
sockets of sessions from the daemon, and which remembers what it has compiled.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Self

from emu.device import SECONDS, TESTS, Device

if TYPE_CHECKING:
    from ptx.compiling import Accepting

# The processor time after which a compiler slows down, which it must not do to a run of tests.
BURST_SECONDS = 1_000_000
_MESSAGE_BYTES = 1 << 16
_TOO_LATE = "did not end"


class Scenarios:
    """Runs scenarios in child processes, one at a time."""

    def __init__(self) -> None:
        self._compiler: Accepting | None = None
        self._line: socket.socket | None = None
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def run(self, module: str, name: str, settings: dict[str, str]) -> None:
        """Runs one scenario in a fresh process with these variables; it must end with 0."""
        with tempfile.TemporaryFile() as output:
            if "LD_PRELOAD" in settings:
                end = _executed(module, name, settings, output.fileno())
            else:
                end = self._forked(module, name, settings, output.fileno())
            output.seek(0)
            told = output.read().decode(errors="replace")
        assert end == "0", f"{name} ended with {end}:\n{told}"

    def _forked(self, module: str, name: str, settings: dict[str, str], output: int) -> str:
        if self._line is None:
            self._line = self._start()
        message = json.dumps([module, name, settings]).encode()
        with self._session() as session:
            socket.send_fds(self._line, [message], [session.fileno(), output])
        return self._line.recv(_MESSAGE_BYTES).decode() or "no answer: the process that forks ended"

    def _session(self) -> socket.socket:
        """Returns the scenario's end of a new connection to the compiler."""
        from ptx.compiling import Accepting

        if self._compiler is None:
            folder = self._kept.enter_context(tempfile.TemporaryDirectory(prefix="rgpu-test-"))
            made = Accepting(Path(folder), "--burst", str(BURST_SECONDS))
            self._compiler = self._kept.enter_context(made)
        client = self._compiler.connect()
        self._compiler.clients.remove(client)
        client.sock.setblocking(True)
        return client.sock

    def _start(self) -> socket.socket:
        """Starts the process that forks."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = f"from emu.children import fork_scenarios; fork_scenarios({theirs.fileno()})"
        process = subprocess.Popen(
            [sys.executable, "-c", command],
            env=_environment(),
            pass_fds=[theirs.fileno()],
            cwd="/",
        )
        theirs.close()
        ours.settimeout(2 * SECONDS)
        self._kept.callback(_has_ended_well, process)
        return self._kept.enter_context(ours)


def _has_ended_well(process: subprocess.Popen[bytes]) -> None:
    assert process.wait(SECONDS) == 0


def _environment() -> dict[str, str]:
    """The variables of all scenarios.  BLAS without threads: only the forking thread lives on."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("RGPU_EMU_")}
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "RGPU_EMU_CHILD": "1", "OPENBLAS_NUM_THREADS": "1"}


def _executed(module: str, name: str, settings: dict[str, str], output: int) -> str:
    """Runs a scenario whose variables count before Python starts.  Its device starts a compiler."""
    command = f"from emu.children import run_scenario; run_scenario({module!r}, {name!r})"
    compiler = f"{sys.executable} -m rgpu_emu.compiler"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**_environment(), "RGPU_EMU_COMPILER": compiler, **settings},
        cwd="/",
        stdout=output,
        stderr=output,
        timeout=SECONDS,
        check=False,
    )
    return str(done.returncode)


def fork_scenarios(descriptor: int) -> None:
    """Forks a process for each scenario that is asked for, until nobody can ask any more.

    The forked process returns from here as well, so that it ends as every Python program does.
    """
    line = socket.socket(fileno=descriptor)
    while True:
        data, fds, _, _ = socket.recv_fds(line, _MESSAGE_BYTES, 2)
        if not data:
            return
        module, name, settings = json.loads(data)
        # A module that cannot be imported fails in the scenario's process, which says why.
        with suppress(Exception):
            importlib.import_module(f"emu.{module}")
        pid = os.fork()
        if pid == 0:
            line.close()
            _become(settings, fds)
            run_scenario(module, name)
            return
        for fd in fds:
            os.close(fd)
        line.send(_end_of(pid).encode())


def _become(settings: dict[str, str], fds: list[int]) -> None:
    compiler, output = fds
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update(settings)
    os.environ["RGPU_EMU_COMPILER_FD"] = str(compiler)


def run_scenario(module: str, name: str) -> None:
    """Runs a scenario in this process."""
    getattr(importlib.import_module(f"emu.{module}"), name)(Device())
    sys.stdout.flush()


def _end_of(pid: int) -> str:
    """Waits for a child; returns its exit code, or says that it did not end in time."""
    pidfd = os.pidfd_open(pid)
    try:
        waiting = select.poll()
        waiting.register(pidfd, select.POLLIN)
        late = not waiting.poll(SECONDS * 1000)
    finally:
        os.close(pidfd)
    if late:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return _TOO_LATE if late else str(code)
