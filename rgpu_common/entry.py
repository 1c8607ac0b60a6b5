"""The start of the `rgpu` command.

`rgpu --version` is answered here, because all that the other commands import takes longer than the
interpreter's own start.
"""

from __future__ import annotations

import sys

from rgpu_common import version_line


def main() -> int:
    """Runs `rgpu` and returns its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None:
        try:
            print(version_line(), flush=True)
            return 0
        except OSError:
            return _command()  # which says what is wrong: a full disk, or a reader that has ended
    return _command()


def _command() -> int:
    from rgpu_common.command import main as command

    return command()
