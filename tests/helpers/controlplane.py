"""The executable file with etcd and Kubernetes, of `tests/kubernetes/controlplane`.

`python -m helpers.controlplane` in `tests` builds it, as `make k8s` does, and prints where it is.
"""

from __future__ import annotations

from pathlib import Path

from helpers.go_programs import GoProgram

# A part that does not know its version takes itself for 0.0 and refuses most feature gates.
_ABOUT = {
    "gitVersion": "{version}",
    "gitMajor": "{major}",
    "gitMinor": "{minor}",
    "gitTreeState": "clean",
    "gitCommit": "0" * 40,
    "buildDate": "1970-01-01T00:00:00Z",
}
PROGRAM = GoProgram(
    "controlplane",
    "the control plane",
    "k8s.io/kubernetes",
    ".",
    tuple(f"k8s.io/component-base/version.{key}={value}" for key, value in _ABOUT.items()),
)


def find(build: bool = False) -> Path:
    """Returns the executable file. build: makes it if it is not there, which takes minutes.

    Raises:
        NotBuiltError: it is not there, and it cannot be built or is not to be built.
    """
    return PROGRAM.find(build)


if __name__ == "__main__":
    PROGRAM.main()
