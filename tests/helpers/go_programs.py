"""Go programs that tests need, built once into the user's cache folder.

A program lies in a folder named by its version and by a hash of all that goes into it: sources, sums
of the modules, build command, compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = Path(__file__).resolve().parents[1] / "kubernetes"
_BUILD_SECONDS = 5400


class NotBuiltError(Exception):
    """The program is not built, or cannot be built here; the sentence says what to do."""


@dataclass(frozen=True)
class GoProgram:
    """A main module of `tests/kubernetes`.

    name: its folder there, and its file. called: in sentences. module: the one whose version it has.
    package: the main package; `tool`: all that go.mod names as tools, and the file is a folder of
    them. stamps: values of variables, as `a/b.c={version}`, {major} or {minor}.
    """

    name: str
    called: str
    module: str
    package: str
    stamps: tuple[str, ...]

    def find(self, build: bool = False) -> Path:
        """Returns the executable file. build: makes it if it is not there, which takes minutes.

        Raises:
            NotBuiltError: it is not there, and it cannot be built or is not to be built.
        """
        go = find_go()
        if go is None:
            raise NotBuiltError(f"{self.called} is built by Go, and there is no command `go`")
        file = self._folder(go) / self.name
        if not file.exists():
            if not build:
                raise NotBuiltError(f"{self.called} is not built: `make k8s` builds it")
            self._build(go, file)
        return file

    def is_built(self) -> bool:
        """Whether `find` finds it."""
        go = find_go()
        return go is not None and (self._folder(go) / self.name).exists()

    def main(self) -> None:
        """Builds it, and prints where it is, or a sentence and an exit status of 1."""
        try:
            print(self.find(build=True))
        except NotBuiltError as error:
            sys.exit(str(error))

    @property
    def sources(self) -> Path:
        return KUBERNETES / self.name

    def version(self) -> str:
        """Returns the version of the module, as `v1.37.2`."""
        row = rf"^(?:require )?\t?{re.escape(self.module)} (v\S+)"
        found = re.search(row, (self.sources / "go.mod").read_text(), re.MULTILINE)
        assert found, f"go.mod does not require {self.module}"
        return found[1]

    def _folder(self, go: str) -> Path:
        """Returns the folder of the file.  Another compiler or source gives another folder."""
        digest = hashlib.sha256(" ".join(self._command(go)[1:]).encode())
        digest.update(subprocess.check_output([go, "version"], cwd=self.sources, timeout=60))
        for name in ("go.mod", "go.sum", "main.go"):
            if (self.sources / name).exists():
                digest.update((self.sources / name).read_bytes())
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / f"rgpu-{self.name}" / f"{self.version()}-{digest.hexdigest()[:16]}"

    def _command(self, go: str) -> list[str]:
        """Returns the command of the build without the place of its result."""
        version = self.version()
        major, minor, _ = version.removeprefix("v").split(".")
        words = {"version": version, "major": major, "minor": minor}
        sets = " ".join(f"-X {one.format(**words)}" for one in self.stamps)
        # What debuggers read is left out of the file anyway: it takes a fifth of the build.
        return [go, "build", "-mod=readonly", "-p=2", "-trimpath", "-gcflags=all=-dwarf=false",
                f"-ldflags=-s -w {sets}"]  # fmt: skip

    def _build(self, go: str, file: Path) -> None:
        """Builds the file.  A second process that wants it meanwhile waits and finds it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with (file.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if file.exists():
                return
            part = file.with_suffix(".part")
            if self.package == "tool":
                part.mkdir(exist_ok=True)  # Go puts several files there
            made = subprocess.run(
                ["nice", "-n", "19", *self._command(go), "-o", str(part), self.package],
                cwd=self.sources,
                # Without cgo the file needs no C compiler and runs with any libc. The compiler
                # collects its garbage less often: at most a gibibyte for each of two processes.
                env={**os.environ, "CGO_ENABLED": "0", "GOGC": "800"},
                stderr=subprocess.PIPE,
                text=True,
                timeout=_BUILD_SECONDS,
            )
            if made.returncode:
                raise NotBuiltError(f"go build failed: {made.stderr.strip()[-2000:]}")
            part.rename(file)


def find_go() -> str | None:
    """Returns the command `go`: the one of PATH, else the one where Go's own installation puts it."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
