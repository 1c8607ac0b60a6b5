"""Client processes that do what a test says, step by step, and share memory and events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from helpers import clients
from helpers.ends import killed

START = """
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from helpers.ipc import Ipc, hear, say
cuda.open()
ipc = Ipc(cuda)

def fails(result, call, *arguments):
    try:
        call(*arguments)
    except CudaError as error:
        assert error.result == result, (result, error)
    else:
        raise AssertionError(f"{call} did not fail")

def used():
    free, total = cuda.memory()
    return total - free
"""
MIB = 1 << 20
LEASE = "256MiB"
# Runs each line that the test writes; the steps of a test share their names.
PUPPET = START + "for step in iter(hear, 'end'): exec(bytes.fromhex(step).decode())\n"


class Process:
    """A client process that runs what the test says, step by step."""

    def __init__(self, server: str, lease: str, source: str = PUPPET) -> None:
        self.process = clients.start(server, source, RGPU_LEASE=lease, RGPU_MEMORY=LEASE)

    def run(self, source: str) -> str:
        """Runs the source and returns what it says; the last thing it does is `say`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(source.encode().hex() + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.kill()
            raise AssertionError(self.process.communicate()[1])
        return line.strip()

    def kill(self) -> None:
        """Ends the process without a word, and its session."""
        killed(self.process)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def processes(server: str, lease: str, count: int = 2) -> Iterator[list[Process]]:
    made = [Process(server, lease) for _ in range(count)]
    try:
        yield made
    finally:
        for process in made:
            process.close()


def await_used(process: Process, wanted: int) -> None:
    """Waits until the lease holds so much: the end of a process takes a moment. While the charge of
    an export goes from one session to another, it counts for both.
    """
    step = (
        "from helpers.waiting import wait_until\n"
        f"wait_until(lambda: used() == {wanted}, 60)\nsay(1)"
    )
    process.run(step)
