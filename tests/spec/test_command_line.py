"""`python -m cudaspec`, as CMake runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cudaspec import generate, rows
from cudaspec.gen import docs


def _run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cudaspec", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_writes_every_artefact(tmp_path: Path) -> None:
    done = _run(tmp_path / "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "out" / "gen").iterdir()} == set(generate.ARTEFACTS)


def test_writes_the_coverage_page_and_the_dictionary(tmp_path: Path) -> None:
    page, words = tmp_path / "docs" / "cuda.md", tmp_path / "opcodes.dict"
    done = _run("--docs", page, "--dictionary", words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| `cuLaunchKernel` | posted | `rgpuLaunch` |" in page.read_text()
    assert 'rgpuLaunch="\\x02\\x06"' in words.read_text()


def test_the_coverage_page_in_docs_is_fresh(spec: rows.Spec) -> None:
    """`make gen` writes it."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "cuda.md"
    assert page.read_text(encoding="utf-8") == docs.coverage_md(spec)


def test_says_what_to_give(tmp_path: Path) -> None:
    done = _run(cwd=tmp_path)
    assert done.returncode == 2
    assert "say what to do: OUT_DIR, --docs FILE, --dictionary FILE, --list, " in done.stderr


def test_lists_the_artefacts_for_cmake(tmp_path: Path) -> None:
    done = _run("--list", cwd=tmp_path)
    assert done.stdout.splitlines() == list(generate.ARTEFACTS)
