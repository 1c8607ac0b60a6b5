"""The command `kustomize`, of `tests/kubernetes/kustomize`.

`python -m helpers.kustomize` in `tests` builds it, as `make k8s` does, and prints where it is.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from helpers.go_programs import GoProgram

PROGRAM = GoProgram(
    "kustomize",
    "kustomize",
    "sigs.k8s.io/kustomize/kustomize/v5",
    "sigs.k8s.io/kustomize/kustomize/v5",
    ("sigs.k8s.io/kustomize/api/provenance.version={version}",),
)
_SECONDS = 60


def build(folder: Path) -> list[Any]:
    """Returns the objects that `kustomize build` makes of a folder."""
    done = subprocess.run(
        [str(PROGRAM.find()), "build", str(folder)],
        capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


if __name__ == "__main__":
    PROGRAM.main()
