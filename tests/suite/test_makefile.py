"""What `make` says before it has what it needs, and what it has Go compile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from helpers.needs import needs

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


@needs("make")
def test_install_fast_needs_what_make_dev_has_compiled(tmp_path: Path) -> None:
    shutil.copy(MAKEFILE, tmp_path)
    done = subprocess.run(
        ["make", "install-fast"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "make dev comes first: it compiles all C++" in done.stderr


def test_the_go_programs_share_what_they_compile() -> None:
    """A module of another version, and all that imports it, would be compiled once more."""
    row = re.compile(r"^\t(\S+) (v\S+)", re.MULTILINE)
    programs = Path(__file__).resolve().parents[1] / "kubernetes"
    control_plane, helm = (
        dict(row.findall((programs / name / "go.mod").read_text()))
        for name in ("controlplane", "helm")
    )
    # `replace` gives Kubernetes' own parts, which have v0.0.0 here, the version that helm has.
    shared = {
        name for name in control_plane.keys() & helm.keys() if control_plane[name] != "v0.0.0"
    }
    assert len(shared) > 30
    assert {n: control_plane[n] for n in shared} == {n: helm[n] for n in shared}
