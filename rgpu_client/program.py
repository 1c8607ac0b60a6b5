"""Finds the program that a command is to start, or the reason why it cannot be executed."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from rgpu_common.errors import NOT_STARTED, NoProgramError, ProgramError, RgpuError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The descriptor by which the supervisor of a run in the background learns that the program begins.
STARTED = "RGPU_STARTED"
# The id of that run, by which its processes are found when its supervisor has been killed.
BACKGROUND = "RGPU_BACKGROUND"
_supervisors: list[int] = []
# The id of the run in the background that this process begins; "": it begins none.
_begun: list[str] = []
# The last of the descriptors that are the program's own.
_STANDARD = 2


@contextlib.contextmanager
def before_start() -> Iterator[None]:
    """Gives errors in the block the exit code 125, which means that the program was not started.

    Errors with an exit code of their own keep it.
    """
    try:
        yield
    except RgpuError as error:
        if error.exit_code == RgpuError.exit_code:
            error.exit_code = NOT_STARTED
        raise


def find_program(name: str) -> str:
    """Returns the path of the program that a shell would execute.

    Raises:
        NoProgramError: no program has this name.
        ProgramError: the file is not executable.
    """
    found = _which(name)
    if found is not None:
        return found
    if "/" not in name:
        raise NoProgramError(f"there is no program {name!r} on the PATH{_hint(name)}")
    if not os.path.exists(name):
        raise NoProgramError(f"there is no file {name!r}")
    if os.path.isdir(name):
        raise ProgramError(f"{name!r} is a folder, not a program")
    raise ProgramError(
        f"{name!r} is not executable: `chmod +x` it, or name its interpreter before it"
        + (f": python {name}" if name.endswith(".py") else "")
    )


def _which(name: str) -> str | None:
    """Does what shutil.which does; importing shutil costs more time than the search."""
    search = os.environ.get("PATH", os.defpath)
    folders = [""] if os.path.dirname(name) else search.split(os.pathsep) if search else []
    for path in (os.path.join(folder, name) for folder in folders):
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def _hint(name: str) -> str:
    if name.endswith(".py"):
        return f"; a Python program is run as: python {name}"
    return f"; the file here is ./{name}" if os.path.isfile(name) else ""


def cannot_start(path: str, error: OSError) -> ProgramError:
    """Returns the error for a program that the system did not execute."""
    if error.errno == errno.ENOENT:
        return NoProgramError(
            f"{path} cannot be started: the interpreter that it names (in its first line, of a "
            "script) is not there"
        )
    reason = error.strerror or str(error)
    if error.errno == errno.ENOEXEC:
        reason += "; a script's first line names its interpreter (#!/bin/sh), or you name it "
        reason += f"before the script: sh {path}"
    return ProgramError(f"{path} cannot be started: {reason}")


def keep_started() -> None:
    """Takes the descriptor with which this process tells its supervisor that the program begins, if
    it has a supervisor. The program does not inherit it.
    """
    text = os.environ.pop(STARTED, "")
    if text.isdecimal() and int(text) > _STANDARD:
        with contextlib.suppress(OSError, OverflowError):
            os.set_inheritable(int(text), False)
            _supervisors.append(int(text))
            _begun[:] = [os.environ.get(BACKGROUND, "")]


def background_run() -> str:
    """Returns the id of the run in the background that this process begins, which its lease is
    called by; "": it begins none. What its program runs has leases of its own.
    """
    return _begun[0] if _begun else ""


def say_starting() -> None:
    """Tells the supervisor, if there is one, that this process executes the program now. The
    supervisor counts it as begun when it sees its end of the pipe closed, as executing closes it.
    """
    for supervisor in _supervisors:
        with contextlib.suppress(OSError):
            os.write(supervisor, b"+")


def say_not_started() -> None:
    """Takes back what `say_starting` told: the program could not be executed."""
    for supervisor in _supervisors:
        with contextlib.suppress(OSError):
            os.write(supervisor, b"-")


def say_started() -> None:
    """Tells the supervisor, if there is one, that this process has started the program."""
    say_starting()
    while _supervisors:
        with contextlib.suppress(OSError):
            os.close(_supervisors[-1])
        _supervisors.pop()
