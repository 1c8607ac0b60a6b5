"""Finds or builds the executable file with etcd and Kubernetes from `tests/kubernetes/controlplane`.

`python -m helpers.controlplane` in `tests` builds it, as `make k8s` does, and prints where it is.

The file lies in the user's cache folder, in a folder named by Kubernetes' version and by a hash of
all that goes into it: sources, sums of the modules, build command, compiler.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "kubernetes" / "controlplane"
_BUILD_SECONDS = 5400


class NoControlPlaneError(Exception):
    """There is no built control plane, or it cannot be built here; the sentence says what to do."""


def find(build: bool = False) -> Path:
    """Returns the executable file. build: makes it if it is not there, which takes minutes.

    Raises:
        NoControlPlaneError: it is not there, and it cannot be built or is not to be built.
    """
    go = _go()
    if go is None:
        raise NoControlPlaneError("the control plane is built by Go, and there is no command `go`")
    file = _folder(go) / "controlplane"
    if not file.exists():
        if not build:
            raise NoControlPlaneError("the control plane is not built: `make k8s` builds it")
        _build(go, file)
    return file


@functools.lru_cache(maxsize=1)
def version() -> str:
    """Returns Kubernetes' version, as `v1.37.2`."""
    found = re.search(
        r"^\tk8s\.io/kubernetes (v\S+)$", (SOURCES / "go.mod").read_text(), re.MULTILINE
    )
    assert found, "go.mod does not require k8s.io/kubernetes"
    return found[1]


def _go() -> str | None:
    """Returns the command `go`: the one of PATH, else the one where Go's own installation puts it."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def _folder(go: str) -> Path:
    """Returns the folder of the executable file.  Another compiler or source gives another folder."""
    digest = hashlib.sha256(" ".join(_command(go)[1:]).encode())
    digest.update(subprocess.check_output([go, "version"], cwd=SOURCES, timeout=60))
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCES / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rgpu-controlplane" / f"{version()}-{digest.hexdigest()[:16]}"


def _command(go: str) -> list[str]:
    """Returns the command of the build without the place of its result."""
    major, minor, _ = version().removeprefix("v").split(".")
    values = {
        "gitVersion": version(),
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "1970-01-01T00:00:00Z",
    }
    # A part that does not know its version takes itself for 0.0 and refuses most feature gates.
    sets = " ".join(f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items())
    return [go, "build", "-mod=readonly", "-p=2", "-trimpath", f"-ldflags=-s -w {sets}"]


def _build(go: str, file: Path) -> None:
    """Builds the file.  A second process that wants it meanwhile waits and finds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return
        part = file.with_suffix(".part")
        # Without cgo the file needs no C compiler and runs with any libc.
        environment = {**os.environ, "CGO_ENABLED": "0"}
        made = subprocess.run(
            ["nice", "-n", "19", *_command(go), "-o", str(part), "."],
            cwd=SOURCES,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_BUILD_SECONDS,
        )
        if made.returncode:
            raise NoControlPlaneError(f"go build failed: {made.stderr.strip()[-2000:]}")
        part.rename(file)


if __name__ == "__main__":
    print(find(build=True))
