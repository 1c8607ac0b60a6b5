"""Says which end of a process is right, and lets no test pass beside a wrong one.

A process that crashes never ends rightly, unless a test has planted the crash. `watch` looks, after
each test, at every process that the tests have started, at what those have left behind, and at the
logs of servers, which say how their own processes ended. Tests say more by `ended` and `stopped`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
SANITIZERS_EXIT_CODE = 99  # tests/sanitize/run.py
SECONDS = 60.0
# How names in /dev/shm begin that rgpu and what it loads do not give.
_OF_OTHERS = ("psm_", "sem.", "pymp-", "torch_", ".org.chromium.", ".com.google.")
# What servers and compilers log of a process of theirs that a signal has ended.
_LOGGED = re.compile(
    r"(?:process (?P<pid>\d+), was ended by|ended with|a job died:) (?P<name>SIG[A-Z]+)"
)
# ioctl(PIDFD_GET_INFO) of Linux 6.15: how a process ended that is nobody's child here.
_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
_WITH_EXIT = 1 << 3


class WrongEndError(AssertionError):
    """A process has ended as it must not."""


def ended(
    process: subprocess.Popen[Any],
    right: int | Collection[int] | None = 0,
    seconds: float = SECONDS,
) -> int:
    """Waits for the end of a process and returns its exit code.

    right: the exit codes that are right; a negative one is a signal that the test has sent. None:
    every exit code, but no signal and no sanitizer's finding. A process that does not end in time
    is killed.
    """
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.wait()
        # What the test failed for before, if it did, is shown too.
        raise WrongEndError(f"{_name(process)} did not end within {seconds:g} s") from error
    if right is None:
        wrong = code < 0 or code == SANITIZERS_EXIT_CODE
    else:
        wrong = code not in ((right,) if isinstance(right, int) else right)
    if wrong:
        raise WrongEndError(f"{_name(process)} {_how(code)}")
    return code


def stopped(
    process: subprocess.Popen[Any],
    right: int | Collection[int] | None = 0,
    seconds: float = SECONDS,
    number: signal.Signals = signal.SIGTERM,
) -> int:
    """As `ended`, after a signal that asks the process to end. Signals that a test has sent before
    are right ends, too.
    """
    codes = {right} if isinstance(right, int) else {*(right or range(256))}
    codes |= {-sent for sent in watch.sent(process.pid)}
    process.send_signal(number)
    return ended(process, codes, seconds)


def killed(process: subprocess.Popen[Any]) -> None:
    """Kills a process, which must not have crashed before."""
    process.kill()
    process.wait()
    if process.returncode != -signal.SIGKILL:
        ended(process, None)


def plant(*signals: signal.Signals) -> None:
    """Says that the test which runs now makes a process end by one of these signals."""
    watch.planted |= {*signals}


class Watch:
    """What has been started, which signals have been sent, and which logs are read."""

    def __init__(self) -> None:
        self.planted: set[int] = set()
        self._processes: list[subprocess.Popen[Any]] = []
        self._sent: dict[int, set[int]] = {}
        self._left: dict[int, int] = {}
        self._logs: list[tuple[Sequence[str], int]] = []

    def install(self) -> None:
        """Notes every process that is started from now on, and every signal that is sent."""
        _Started.note = self._note
        subprocess.Popen = _Started  # type: ignore[misc]
        os.kill = self._noting(os.kill, lambda pid: [pid])
        os.killpg = self._noting(os.killpg, self._group)
        signal.pidfd_send_signal = self._noting(signal.pidfd_send_signal, _of_pidfd)

    def _note(self, process: subprocess.Popen[Any]) -> None:
        self._processes.append(process)
        # Until a process gets the same number, who waits for the end of this one may ask.
        self._sent.pop(process.pid, None)

    def sent(self, pid: int) -> set[int]:
        """Returns the signals that this process has sent to another one."""
        return self._sent.get(pid, set())

    def log(self, lines: Sequence[str]) -> None:
        """Reads what a server logs from now on, until `read_out`."""
        self._logs.append((lines, len(lines)))

    def read_out(self, lines: Sequence[str]) -> None:
        """Reads a log for the last time."""
        wrong = [*self._in_logs(lines)]
        self._logs = [known for known in self._logs if known[0] is not lines]
        if wrong:
            raise WrongEndError("\n".join(wrong))

    def check(self) -> None:
        """Raises WrongEndError for all that has ended wrongly since the last call."""
        wrong = [*self._of_processes(), *self._of_left(), *self._in_logs()]
        if wrong:
            raise WrongEndError("\n".join(wrong))

    def _of_processes(self) -> Iterator[str]:
        for process in list(self._processes):
            code = _status(process)
            if code is None:
                continue
            self._processes.remove(process)
            if self._is_wrong(code, self.sent(process.pid)):
                yield f"{_name(process)} {_how(code)}, which no test asked for"

    def _of_left(self) -> Iterator[str]:
        for pidfd, pid in list(self._left.items()):
            if not select.select([pidfd], [], [], 0)[0]:
                continue
            code = _status_by(pidfd)
            os.close(pidfd)
            del self._left[pidfd]
            if code is not None and -code in CRASHES - self.planted:
                yield f"process {pid}, which a process of the test left behind, {_how(code)}"

    def _in_logs(self, only: Sequence[str] | None = None) -> Iterator[str]:
        for at, (lines, read) in enumerate(self._logs):
            if only is None or lines is only:
                new = lines[read:]
                self._logs[at] = (lines, read + len(new))
                yield from (f"a server says: {line.strip()}" for line in new if self._tells(line))

    def _tells(self, line: str) -> bool:
        """Whether a line of a log tells of a crash that no test has caused."""
        found = _LOGGED.search(line)
        if found is None or not hasattr(signal, found["name"]):
            return False
        sent = self.sent(int(found["pid"] or 0))
        return getattr(signal, found["name"]) in CRASHES - self.planted - sent

    def _is_wrong(self, code: int, sent: Collection[int]) -> bool:
        # Shells and `rgpu run` pass a signal on as 128 and its number.
        number = -code if code < 0 else code - 128
        return code == SANITIZERS_EXIT_CODE or number in CRASHES - self.planted - {*sent}

    def _noting(self, send: Callable[..., None], pids: Callable[[int], list[int]]) -> Any:
        def noted(whom: int, number: int, *more: Any) -> None:
            for pid in pids(whom) if number else []:
                self._sent.setdefault(pid, set()).add(number)
                self._keep_children(pid)
            send(whom, number, *more)

        return noted

    def _group(self, group: int) -> list[int]:
        found = []
        for process in self._processes:
            with contextlib.suppress(OSError):
                if os.getpgid(process.pid) == group:
                    found.append(process.pid)
        return found

    def _keep_children(self, pid: int) -> None:
        """Watches the descendants of a process of ours that may end now: init gets them."""
        if all(process.pid != pid for process in self._processes):
            return
        known = set(self._left.values())
        for child in descendants(pid):
            if child not in known:
                with contextlib.suppress(OSError):
                    self._left[os.pidfd_open(child)] = child


class _Started(subprocess.Popen):  # type: ignore[type-arg]
    """A process that `watch` knows."""

    note: Callable[[subprocess.Popen[Any]], None]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _Started.note(self)


def shared_files() -> set[str]:
    """Returns the files in /dev/shm, without those of browsers and of Python's multiprocessing:
    whatever else runs on this machine may keep such files as long as it likes.
    """
    return {name for name in os.listdir("/dev/shm") if not name.startswith(_OF_OTHERS)}


def left_files() -> set[str]:
    """Returns those shared files that no process has mapped or open. Who made them has left them
    behind; other tests have theirs open.
    """
    held: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            held.update(re.findall(r" /dev/shm/(\S+)", (process / "maps").read_text()))
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    held.add(os.readlink(link).removeprefix("/dev/shm/"))
    return shared_files() - held


def descendants(pid: int) -> list[int]:
    """Returns the process ids of all descendants of a process."""
    found: list[int] = []
    pending = [pid]
    while pending:
        children: list[int] = []
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pending.pop()}/task").iterdir():
                with contextlib.suppress(OSError):
                    children += [int(c) for c in (task / "children").read_text().split()]
        pending += children
        found += children
    return found


def _status(process: subprocess.Popen[Any]) -> int | None:
    """Returns the exit status of a process, which stays as it is; None while it runs."""
    if process.returncode:
        return process.returncode
    # 0 is also what a daemon sets for a process that it lets go.
    try:
        got = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return process.returncode or 0
    if got is None:
        return None
    return got.si_status if got.si_code == os.CLD_EXITED else -got.si_status


def _status_by(pidfd: int) -> int | None:
    """Returns the exit status of a process that others wait for; None if the kernel keeps none."""
    try:
        answer = fcntl.ioctl(pidfd, _GET_INFO, struct.pack("Q56x", _WITH_EXIT))
    except OSError:
        return None
    mask, status = struct.unpack("Q52xi", answer)
    return os.waitstatus_to_exitcode(status) if mask & _WITH_EXIT else None


def _of_pidfd(pidfd: int) -> list[int]:
    try:
        text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    except OSError:
        return []
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:")]


def _name(process: subprocess.Popen[Any]) -> str:
    words = process.args if isinstance(process.args, list | tuple) else [process.args]
    return f"process {process.pid} ({' '.join(map(str, words))[:200]})"


def _how(code: int) -> str:
    if code == SANITIZERS_EXIT_CODE:
        return "ended by a sanitizer's finding"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


watch = Watch()
