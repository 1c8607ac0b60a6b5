"""What `make` says before it has what it needs."""

from __future__ import annotations

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
