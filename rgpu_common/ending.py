"""SIGTERM at a command that serves: it ends with success, as soon as rgpu has begun and up to its
very end. An event loop's own handler counts while it serves.

A command that serves and dies of the signal counts as failed, for systemd, Docker and Kubernetes.
"""

from __future__ import annotations

import os
import signal

# The commands that serve until SIGTERM.
SERVING = frozenset(
    (
        "agent", "agent-node", "device-plugin", "gate-watchdog", "legacy-controllers", "manager",
        "node-plugin", "serve", "units-webhook",
    )
)  # fmt: skip
_OURS = signal.SIGTERM
_told: list[int] = []


def leave_at_once() -> None:
    """From now on SIGTERM ends the process: it only imports, so there is nothing to clean up."""
    if signal.getsignal(_OURS) is signal.SIG_DFL:  # else the caller has it ignored
        signal.signal(_OURS, _leave_at_once)


def leave_in_order() -> None:
    """From now on SIGTERM raises SystemExit, if `leave_at_once` was called before."""
    if signal.getsignal(_OURS) is _leave_at_once:
        signal.signal(_OURS, _leave_in_order)


def check() -> None:
    """Raises SystemExit if SIGTERM has come: Python ignores what its handler raises while it calls
    back a weak reference or a C library.
    """
    if _told:
        raise SystemExit(0)


def stay_at_end() -> None:
    """Ignores SIGTERM, in place of the event loop's handler: an end that has begun goes on, and the
    loop would have restored the signal's default, of which the process dies.
    """
    import asyncio

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {_OURS})
    asyncio.get_running_loop().remove_signal_handler(_OURS)
    signal.signal(_OURS, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_at_once(_number: int, _frame: object) -> None:
    os._exit(0)


def _leave_in_order(number: int, _frame: object) -> None:
    _told.append(number)
    raise SystemExit(0)
