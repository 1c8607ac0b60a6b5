"""A container of the tests: a process with its own mounts, processes and environment, and no image.

It sees the folders of this machine, except /opt, /run and /var, which are its own and empty. Its
mounts lie above them, and go with its last process.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_OWN = ("opt", "run", "var")
_PATH = (
    f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)


@dataclass(frozen=True)
class Bind:
    """A path of this machine that the container sees at another path."""

    host: str
    container: str
    read_only: bool


@dataclass
class Program:
    """What a container runs. user, group: numeric."""

    words: Sequence[str]
    environment: Mapping[str, str]
    binds: Sequence[Bind]
    folder: str = "/"
    user: int = 0
    group: int = 0
    hostname: str = ""


@dataclass
class FakeContainer:
    """ended: called with the exit code when the process has ended."""

    program: Program
    folder: Path
    ended: Callable[[int], None]
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _watching: threading.Thread | None = field(default=None, init=False)

    @property
    def output(self) -> str:
        """What it has written to stdout and stderr."""
        file = self.folder / "output"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> None:
        """Starts it; OSError."""
        (self.folder / "root").mkdir(parents=True)
        script = self.folder / "start.sh"
        script.write_text(_script(self.program, self.folder / "root"))
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
                 "/bin/sh", str(script)]  # fmt: skip
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                words, env={"PATH": _PATH}, cwd="/", stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._watching = threading.Thread(target=self._watch, args=(self._process,))
        self._watching.start()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to its first process."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), number)

    def stop(self, seconds: float) -> None:
        """Ends it with SIGTERM, and after `seconds` with SIGKILL."""
        if self._process is None or self._watching is None:
            return
        if seconds > 0:
            self.signal(signal.SIGTERM)
            self._watching.join(seconds)
        self._process.kill()
        self._watching.join(20)
        assert not self._watching.is_alive(), "a container did not end"

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self.ended(code if code >= 0 else 128 - code)


def _script(program: Program, root: Path) -> str:
    """Returns a script that makes the container's own file system and starts its program there."""
    lines = ["set -e", f"mount -t tmpfs tmpfs {root}"]
    for path in sorted(Path("/").iterdir()):
        inside = f"{root}/{path.name}"
        if path.is_symlink():
            lines.append(f"ln -s {shlex.quote(os.readlink(path))} {inside}")
        elif path.name in (*_OWN, "proc"):
            lines.append(f"mkdir {inside}")
        elif path.is_dir():
            lines += [f"mkdir {inside}", f"mount --rbind {path} {inside}"]
    lines.append(f"mount -t proc proc {root}/proc")
    for bind in program.binds:
        lines += _bound(bind, root)
    environment = {"PATH": _PATH, "HOME": "/tmp", **program.environment}
    rows = [shlex.quote(f"{name}={value}") for name, value in environment.items()]
    user = f"setpriv --reuid {program.user} --regid {program.group} --clear-groups"
    change = f'cd {shlex.quote(program.folder or "/")} && exec "$@"'
    words = " ".join(map(shlex.quote, program.words))
    lines.append(
        f"exec chroot {root} {user} env -i {' '.join(rows)} /bin/sh -c {shlex.quote(change)} sh {words}"
    )
    return "\n".join(lines) + "\n"


def _bound(bind: Bind, root: Path) -> list[str]:
    """Returns the lines for a mount. What lies in /dev is the machine's and stays as it is."""
    target = f"{root}{bind.container}"
    if bind.container.startswith("/dev/"):
        return []
    source, quoted = shlex.quote(bind.host), shlex.quote(target)
    if Path(bind.host).is_dir():
        lines = [f"mkdir -p {quoted}"]
    else:
        lines = [
            f"mkdir -p {shlex.quote(str(Path(target).parent))}",
            f"[ -e {quoted} ] || touch {quoted}",
        ]
    lines.append(f"mount --bind {source} {quoted}")
    return [*lines, f"mount -o remount,bind,ro {quoted}"] if bind.read_only else lines
