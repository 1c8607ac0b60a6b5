"""The CRDs of cert-manager, of its Go module.

`python -m helpers.certmanager` in `tests` brings them into the cache of Go's modules, as `make k8s`
does, and prints where they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from helpers.go_programs import NotBuiltError, find_go

MODULE = "github.com/cert-manager/cert-manager@v1.21.2"
_SUM = "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68="
_SECONDS = 300


class _Module:
    """Says whether it is here, as a `GoProgram` does."""

    def is_built(self) -> bool:
        try:
            return folder(offline=True).is_dir()
        except NotBuiltError:
            return False


PROGRAM = _Module()


def folder(offline: bool) -> Path:
    """Returns the folder of the CRDs. offline: if it is in the cache already.

    Raises:
        NotBuiltError: it cannot be brought, or is another than ever.
    """
    go = find_go()
    if go is None:
        raise NotBuiltError("cert-manager's CRDs are brought by Go, and there is no command `go`")
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE], cwd="/", check=False,
        capture_output=True, text=True, timeout=_SECONDS,
        env={**os.environ, **({"GOPROXY": "off"} if offline else {})},
    )  # fmt: skip
    said = json.loads(done.stdout or "{}")
    if done.returncode or said.get("Sum") != _SUM:
        raise NotBuiltError(f"{MODULE} was not brought: {said.get('Error') or done.stderr}")
    return Path(said["Dir"]) / "deploy" / "crds"


if __name__ == "__main__":
    try:
        print(folder(offline=False))
    except NotBuiltError as error:
        sys.exit(str(error))
