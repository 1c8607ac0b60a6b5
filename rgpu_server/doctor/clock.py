"""Whether this machine's clock is kept right."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from rgpu_common.doctor.findings import note, ok, warning

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rgpu_common.doctor.findings import Finding

# adjtimex(2): the state of a clock that nothing synchronises, and room for its structure.
_TIME_ERROR = 5
_TIMEX_BYTES = 512
# 2026-01-01. rgpu is younger.
_RELEASED = 1_767_225_600


def clock(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields whether the clock is synchronised: access tokens and certificates have ends."""
    del arguments
    now = time.time()
    if now < _RELEASED:
        yield warning(
            "clock", f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}, which is in "
            "the past", "set it: timedatectl set-ntp true",
        )  # fmt: skip
        return
    state = _state()
    if state < 0:
        yield note("clock", "the kernel does not say whether the clock is synchronised")
    elif state == _TIME_ERROR:
        yield warning(
            "clock", "nothing synchronises the clock: access tokens and certificates can end early "
            "or late", "run an NTP client: timedatectl set-ntp true",
        )  # fmt: skip
    else:
        yield ok("clock", "the clock is synchronised")


def _state() -> int:
    """Returns what adjtimex says when it is to change nothing; below 0: the kernel refuses."""
    libc = ctypes.CDLL(None)
    return int(libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
