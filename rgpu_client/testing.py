"""The device that the pytest plugin gives to a run of tests."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rgpu_client.offers import devices
from rgpu_client.own_server import emulated_server
from rgpu_client.preload import connect
from rgpu_client.program_environment import HIDE_NVJITLINK, rgpu_variables
from rgpu_client.session.check import wait_seconds
from rgpu_client.sizes import parse_limit_of_memory
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.units import format_bytes

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from rgpu_client.lease import Lease
    from rgpu_common.units import Memory

# The address of the server that the run has started, for the processes that it starts.
_SERVER = "RGPU_PYTEST"
# Variables that stay set beside an emulated device: they do not say which device is used, or how.
_KEPT = (_SERVER, HIDE_NVJITLINK, "RGPU_LOG", "RGPU_TRACE")
_MEMORY = "1GiB"
# numba-cuda warns that it does not find the nvJitLink that an emulated device cannot use.
_NO_NVJITLINK = "ignore:(libnvJitLink|cuda.bindings.nvjitlink):RuntimeWarning"
# xdist replaces a process that crashed while the lease of that process may still be there.
_SPARE = 2


class TestDevice:
    """A device for the tests of this process, or for those of the processes that it starts.

    lease: the lease of this process; None in a process that runs no tests.
    """

    __test__ = False  # not a class of tests, whatever its name

    def __init__(self, options: Namespace) -> None:
        self._emulated = bool(options.rgpu_emulated)
        self._server: str | None = options.rgpu_server
        self._memory: str | None = options.rgpu_memory
        self._wait: str | None = options.rgpu_wait
        self._spread = _spreads(options)
        self._left = ExitStack()
        self.lease: Lease | None = None

    def open_early(self) -> None:
        """Connects, unless other processes run the tests."""
        with _as_pytest_says():
            self._check()
            if not self._spread or os.environ.get(_SERVER):
                self._connect()

    def open(self, config: pytest.Config) -> None:
        """Starts a server for the processes that run the tests, now that their number is known."""
        if self._emulated:
            config.addinivalue_line("filterwarnings", _NO_NVJITLINK)
        if self.lease is not None:
            return
        processes = _processes(config.option)
        with _as_pytest_says():
            if not processes:  # pytest_xdist_auto_num_workers said so
                self._connect()
            elif self._emulated:
                self._start(processes)
            else:
                self._check_room(processes)

    def close(self) -> None:
        """Ends the server and restores the variables."""
        self._left.close()

    def words(self) -> str:
        """Returns a line for the head of pytest's output."""
        if self.lease is not None:
            memory = format_bytes(self.lease.memory_bytes)
            return f"{self.lease.device}, {memory}, {self.lease.path}"
        if self._emulated:
            return f"an emulated device, {self._memory or _MEMORY} for each process"
        return f"{self._server}, a lease for each process"

    def _check(self) -> None:
        if self._emulated and self._server is not None:
            raise UsageError("--rgpu-emulated and --rgpu-server name two devices: give one of them")
        if self._memory is not None:
            size = self._size(self._memory)
            if self._emulated and not size.bytes:
                raise UsageError("--rgpu-memory: give a size, as 2GiB, for an emulated device")
        if self._wait is not None:
            self._seconds()

    def _check_room(self, processes: int) -> None:
        """Asks the server before any process does: pytest-xdist replaces a process that is refused,
        again and again, and buries the sentence in tracebacks.
        """
        offered = devices(self._server)
        if self._memory is None or self._seconds():
            return
        size = self._size(self._memory)
        room = sum(one.free_bytes // max(size.of(one.memory_bytes), 1) for one in offered)
        if room < processes:
            raise UsageError(
                f"{processes} test processes want {self._memory} each, and the server has room for "
                f"{room}: ask for less (--rgpu-memory), run fewer processes, or let them wait "
                "(--rgpu-wait)"
            )

    def _size(self, text: str) -> Memory:
        try:
            return parse_limit_of_memory(text)
        except UsageError as error:
            raise UsageError(f"--rgpu-memory: {error}") from None

    def _connect(self) -> None:
        address, memory = self._server, self._memory
        if self._emulated:
            address = os.environ.get(_SERVER) or self._start(1)
            self._left.enter_context(_only_for_the_emulated_device())
            memory = memory or _MEMORY
        lease = self.lease = connect(address, memory=memory, wait=self._seconds())
        self._left.callback(lease.give_up)

    def _start(self, processes: int) -> str:
        size = parse_limit_of_memory(self._memory or _MEMORY).bytes * (processes + _SPARE)
        address = self._left.enter_context(emulated_server(size))
        os.environ[_SERVER] = address
        self._left.callback(os.environ.pop, _SERVER, None)
        return address

    def _seconds(self) -> float:
        if self._wait is None:
            return 0.0
        try:
            return wait_seconds(self._wait)
        except UsageError:
            raise UsageError(f"--rgpu-wait takes seconds, not {self._wait!r}") from None


@contextmanager
def _only_for_the_emulated_device() -> Iterator[None]:
    """Within the block no variable leads to another server, or asks it for a size."""
    before = rgpu_variables(os.environ)
    for name in before:
        if name not in _KEPT:
            del os.environ[name]
    # numba-cuda would send machine code, which an emulated device does not run.
    os.environ.setdefault(HIDE_NVJITLINK, "1")
    try:
        yield
    finally:
        for name in rgpu_variables(os.environ):
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _as_pytest_says() -> Iterator[None]:
    """pytest prints a UsageError of its own as one line."""
    try:
        yield
    except RgpuError as error:
        said = re.sub(r"the argument (server|memory)\b", r"--rgpu-\1", str(error))
        said = said.replace("pass wait=True", "give --rgpu-wait=SECONDS")
        raise pytest.UsageError(f"rgpu: {said}") from None


def _spreads(options: Namespace) -> bool:
    """True if pytest-xdist was asked to run the tests in other processes."""
    if getattr(options, "numprocesses", None):
        return True
    return bool(getattr(options, "tx", None)) and getattr(options, "dist", "no") != "no"


def _processes(options: Any) -> int:
    """Returns how many processes pytest-xdist will start; 0 if this process runs the tests."""
    if not getattr(options, "tx", None) or getattr(options, "dist", "no") == "no":
        return 0
    counts = (spec.partition("*")[0] for spec in options.tx)
    return sum(int(count) if count.isdigit() else 1 for count in counts)
