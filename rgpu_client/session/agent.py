"""The agent of one application tree: grants a lease, keeps it alive while the program runs,
revokes it.

Without an agent a session still has a lease: the server makes one and keeps it as long as it has
sessions.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

from rgpu_common.errors import RgpuError, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from rgpu_client.control import ControlClient, LeaseRequest

# Keep-alives per life of the lease: two may be lost.
_KEEP_ALIVES = 3
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)


def run_under_lease(
    client: ControlClient,
    request: LeaseRequest,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Runs a program under an explicit lease and returns its exit code (128 + signal if killed).

    Raises:
        ServerError: the lease was refused.
        RgpuError: the program could not be started.
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
    try:
        process = subprocess.Popen(command, env=dict(environment))
    except OSError as error:
        raise RgpuError(f"{command[0]} cannot be started: {error.strerror}") from None

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    pidfd = os.pidfd_open(process.pid)
    try:
        while not select.select([pidfd], [], [], request.ttl_seconds / _KEEP_ALIVES)[0]:
            _keep_alive(client, lease_id)
    finally:
        os.close(pidfd)
        for number, handler in before.items():
            signal.signal(number, handler)
    status = process.wait()
    return 128 - status if status < 0 else status


def _keep_alive(client: ControlClient, lease_id: str) -> None:
    """A server that does not answer now may answer next time; the program learns it from its own
    calls.
    """
    try:
        client.keep_alive(lease_id)
    except ServerError:
        return


def _let_go(client: ControlClient, lease_id: str) -> None:
    try:
        client.revoke(lease_id)
    except ServerError:
        return  # it expires by itself
