"""Passes the signals that this process gets on to a program that it starts."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType


@contextlib.contextmanager
def passing_on(
    signals: Sequence[signal.Signals], passes: Callable[[int], bool] = lambda _: True
) -> Iterator[Callable[[subprocess.Popen[Any]], None]]:
    """Within the block, signals go to the program that the block starts and gives to the function
    that is yielded. A signal that comes earlier, while the program starts, goes to it then: this
    process does not end without the program. If no program was started, it is sent to this process
    again after the block.

    passes: says whether a signal that comes while the program runs is passed on, or dropped because
    the program gets it by itself. While it starts nobody knows that, and all are passed on.
    """
    program: subprocess.Popen[Any] | None = None
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if program is None:
            early.append(number)
        elif passes(number):
            program.send_signal(number)

    def pass_to(started: subprocess.Popen[Any]) -> None:
        nonlocal program
        program = started
        for number in ignored:
            before[number] = signal.signal(number, pass_on)
        while early:
            program.send_signal(early.pop(0))

    # A program inherits which signals are ignored, so those stay so until it has started.
    ignored = [number for number in signals if signal.getsignal(number) is signal.SIG_IGN]
    taken = [number for number in signals if number not in ignored]
    before = {number: signal.signal(number, pass_on) for number in taken}
    try:
        yield pass_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for came in early:
            signal.raise_signal(came)
