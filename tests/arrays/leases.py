"""A real token loop, with a tenant at the array seam and one at the driver seam."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from helpers.ends import ended
from quota.tenant import Run, Tenant
from tokens.harness import Lease, Loop
from worker.client import Client
from worker.warm import pooled

from rgpu_client.arrays.issuer import Issuer
from rgpu_common.arrays.line import Line
from rgpu_common.arrays.messages import Tag
from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.page import Demand

WORKER = Path(__file__).with_name("leased_worker.py")
_ANSWERED = 1000


class ArrayTenant:
    """A session at the array seam, whose worker is a process of its own."""

    def __init__(self, loop: Loop, lease: Lease) -> None:
        self.slot, self.session = taken_slot(loop, lease)
        ours, theirs = socket.socketpair()
        fds = (*lease.page.descriptors, theirs.fileno())
        words = map(str, (*lease.page.descriptors, self.slot, theirs.fileno()))
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *words], pass_fds=fds, cwd="/"
        )
        theirs.close()
        self.known, self.control = introduce(loop, lease, self.slot, self.session, self.process.pid)
        self.lease = lease
        self.issuer = Issuer(Line.adopted(ours.detach()))
        self.template = self.issuer.template("hold", "hold", [[Tag.SLOT_VALUE]], {}, 0)

    def hold(self, ns: int) -> None:
        """Issues an operation that takes `ns`."""
        self.issuer.run(self.template, [ns], [])

    def runs(self) -> list[Run]:
        """Waits for all operations, and returns when they ran."""
        found: list[Run] = []
        while True:
            got = self.issuer.ask("runs", len(found), _ANSWERED)
            found += [Run(*pair) for pair in got]
            if len(got) < _ANSWERED:
                return found

    def demand(self) -> Demand:
        """Returns what the worker says in the lease's page."""
        return self.lease.token.demand(0, slots=1 << self.slot)

    def close(self) -> None:
        """Ends the session. A test that has waited for the worker has judged its end itself."""
        judged = self.process.returncode is not None
        self.issuer.close()
        try:
            if not judged:
                ended(self.process)
        finally:
            self.known.close()


class DriverTenant(Tenant):
    """A session at the driver seam, in a worker that is not a daemon's."""

    def __init__(self, client: Client) -> None:
        Client.__init__(self, client.socket, client.control, client.process)
        assert self.frame().header.opcode == 2
        assert self.control.frame().header.opcode == 5
        self.call("rgpuPrimaryRetain", ctx=10, device=0, flags=0)
        self.context = 10
        self.load()


def taken_slot(loop: Loop, lease: Lease) -> tuple[int, int]:
    """Takes a slot of the lease for a new session."""
    slot = len(lease.slots)
    lease.slots.add(slot)
    loop.sessions += 1
    lease.page.take(slot, loop.sessions)
    return slot, loop.sessions


def introduce(
    loop: Loop, lease: Lease, slot: int, session: int, pid: int
) -> tuple[contextlib.ExitStack, socket.socket]:
    """Tells the loop of a worker. Returns what is closed when the worker has ended, and the worker's
    end of its control socket.
    """
    kept = contextlib.ExitStack()
    pidfd = os.pidfd_open(pid)
    kept.callback(os.close, pidfd)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept.enter_context(ours)
    kept.enter_context(theirs)
    loop.send(say.WorkerIs(session, lease.name, slot, pid, "record"), pidfd, ours.fileno())
    return kept, theirs


@contextmanager
def array_tenant(loop: Loop, lease: Lease) -> Iterator[ArrayTenant]:
    made = ArrayTenant(loop, lease)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def driver_tenant(loop: Loop, lease: Lease) -> Iterator[DriverTenant]:
    slot, session = taken_slot(loop, lease)
    ours, theirs = socket.socketpair()
    compiler = subprocess.Popen(
        [sys.executable, "-m", "rgpu_emu.compiler", "--fd", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),), cwd="/",
    )  # fmt: skip
    theirs.close()
    grants, usage, signal = lease.page.descriptors
    page = SimpleNamespace(fds=[grants, usage], signal_fd=signal)
    try:
        with (
            pooled("--no-sandbox") as warm,
            introduce(loop, lease, slot, session, warm.process.pid)[0],
        ):
            client = warm.assign(page, slot, compiler=ours.fileno())  # type: ignore[arg-type]
            ours.close()
            yield DriverTenant(client)
    finally:
        ended(compiler)
