"""`rgpu run` with an explicit lease: grants the lease, keeps it alive while the program runs, and
revokes it.

Without this a session still has a lease: the server makes one and keeps it as long as it has
sessions.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

from rgpu_client.program import cannot_start, say_started
from rgpu_common.errors import ServerError
from rgpu_common.passing_on import passing_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rgpu_client.control import ControlClient, LeaseRequest

# Keep-alives in one lifetime of the lease: two of them may be lost.
_KEEP_ALIVES = 3
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)
_FROM_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)


def run_under_lease(
    client: ControlClient,
    request: LeaseRequest,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Runs a program under an explicit lease and returns its exit code (128 + signal if killed).

    Raises:
        ServerError: the lease was refused.
        ProgramError: the program could not be started.
    """
    lease = client.grant(request)
    try:
        return _run(
            client, lease.lease_id, {**environment, "RGPU_LEASE": lease.key}, command, request
        )
    finally:
        _let_go(client, lease.lease_id)


def _run(
    client: ControlClient,
    lease_id: str,
    environment: Mapping[str, str],
    command: Sequence[str],
    request: LeaseRequest,
) -> int:
    with started(command, environment) as process:
        say_started()
        pidfd = os.pidfd_open(process.pid)
        try:
            while not select.select([pidfd], [], [], request.ttl_seconds / _KEEP_ALIVES)[0]:
                _keep_alive(client, lease_id)
        finally:
            os.close(pidfd)
    status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program. Until the end of the block, signals that this process receives go to the
    program, also those that come while it starts. This process does not end before the program
    does.

    Raises:
        ProgramError: the program could not be started.
    """
    with passing_on(_FORWARDED, _comes_alone) as pass_to:
        try:
            process = subprocess.Popen(command, env=dict(environment))
        except OSError as error:
            raise cannot_start(command[0], error) from None
        pass_to(process)
        yield process


def _comes_alone(number: int) -> bool:
    """Returns whether a signal does not come to the program by itself, as from the keyboard."""
    return number not in _FROM_KEYBOARD or not _in_foreground()


def _in_foreground() -> bool:
    """True if the terminal sends Ctrl-C to the program too. The program would then get a forwarded
    signal twice.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _keep_alive(client: ControlClient, lease_id: str) -> None:
    """Keeps the lease alive, and ignores a failure: the server may answer the next time. If it
    does not, the program's own calls fail.
    """
    try:
        client.keep_alive(lease_id)
    except ServerError:
        return


def _let_go(client: ControlClient, lease_id: str) -> None:
    try:
        client.revoke(lease_id)
    except ServerError:
        return  # the lease expires by itself
