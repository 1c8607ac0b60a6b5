"""The start of the `rgpu` command.

`rgpu --version` is answered here, because all that the other commands import takes longer than the
interpreter's own start.

Ctrl-C ends the process without a traceback also while it imports and while the interpreter ends.
SIGTERM ends a command that serves with success from here on.
"""

from __future__ import annotations

import signal
import sys

from rgpu_common import ending, version_line


def main() -> int:
    """Runs `rgpu` and returns its exit code."""
    if sys.argv[1:] and sys.argv[1] in ending.SERVING:
        ending.leave_at_once()
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # else the caller has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _answer(interruptible)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _answer(interruptible: bool) -> int:
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None:
        try:
            print(version_line(), flush=True)
            return 0
        except OSError:
            pass  # the command says what is wrong: a full disk, or a reader that has ended
    return _command(interruptible)


def _command(interruptible: bool) -> int:
    from rgpu_common.command import main as command

    if interruptible:  # a command may clean up, and `main` catches what Ctrl-C raises
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()
