"""`rgpu completion`: prints what a shell needs to complete rgpu's commands and options.

`scripts/gen_shell_files.py` writes the files from the parsers, so a client needs no library for it.
"""

from __future__ import annotations

import contextlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from rgpu_common.command import OK, Command
from rgpu_common.errors import MissingPartError, RgpuError

if TYPE_CHECKING:
    import argparse

# Shell -> the file in the package, with the name that the shell looks for.
SHELLS = {"bash": "rgpu.bash", "zsh": "_rgpu", "fish": "rgpu.fish"}
# What the shells ask for while a user types: it must not make them wait.
_SECONDS = 1.0
_LEASES = "leases"
# A shell would split a word with a blank, or expand one with a dollar.
_PLAIN = re.compile(r"\w[\w./@+-]*")
_EPILOG = (
    "bash: source <(rgpu completion bash), in ~/.bashrc. zsh: rgpu completion zsh > "
    "DIR/_rgpu, where DIR is in $fpath. fish: rgpu completion fish > "
    "~/.config/fish/completions/rgpu.fish. The package has the same files in the folder share of "
    "its environment, where shells look by themselves if it is /usr or /usr/local."
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=[*SHELLS, _LEASES], metavar="SHELL",
                        help="bash, zsh or fish")  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    if arguments.shell == _LEASES:
        _print_leases()
        return OK
    name = SHELLS[arguments.shell]
    try:
        text = (files("rgpu_client") / "completions" / name).read_text(encoding="utf-8")
    except OSError:
        raise MissingPartError(
            f"the file {name} is not in this installation: install the package again"
        ) from None
    print(text, end="")
    return OK


def _print_leases() -> None:
    """Prints the ids and keys of leases. Without an answer there is nothing to complete."""
    from rgpu_client.cluster.servers import default_servers

    with contextlib.suppress(RgpuError):
        answers = default_servers().ask(
            lambda client: client.leases(), lambda server: server.client(_SECONDS), _SECONDS
        )
        leases = [lease for _, found in answers for lease in found]
        words = {word for lease in leases for word in (lease.lease_id, lease.key)}
        print("\n".join(sorted(filter(_PLAIN.fullmatch, words))))


completion = Command("completion", "print a shell's completion", _configure, _run)
