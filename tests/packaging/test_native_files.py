"""What the compiled files of an installation hold."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest
from helpers.needs import needs
from helpers.pages import DOCS

from rgpu_common.parts import compiled_part

ELF = b"\x7fELF"
# The names of classes of the C++ runtime: of its locales, in GCC's library and in LLVM's.
LOCALES = (b"NSt6locale5facetE", b"NSt3__16locale5facetE")
LARGEST = 2_000_000


def native_files() -> list[Path]:
    found = [Path(str(one.locate())) for one in files("rgpu-cuda") or ()]
    return [one for one in found if one.is_file() and one.read_bytes()[:4] == ELF]


def test_the_files_are_found() -> None:
    names = {one.name for one in native_files()}
    assert names > {"libcuda.so", "libcuda.so.1", "librgpu_native.so", "rgpu-worker"}


def test_a_compiled_part_is_that_of_the_installation() -> None:
    assert compiled_part("rgpu_client", "lib/libcuda.so.1") in native_files()


def test_sources_that_come_first_hide_no_installation() -> None:
    """`python -m pytest` begins with the source folders, and loads our plugin from there."""
    one = f"{Path(__file__)}::{test_a_compiled_part_is_that_of_the_installation.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", one],
        cwd=DOCS.parent, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", native_files(), ids=lambda path: path.name)
def test_no_file_holds_the_locales_of_the_runtime(path: Path) -> None:
    """They are 0.9 MB in each file; <sstream> or <fstream> in one source would bring them back."""
    content = path.read_bytes()
    assert not [name for name in LOCALES if name in content]
    assert len(content) < LARGEST


@needs("cmake")
def test_the_pages_say_how_many_files_an_installation_compiles(tmp_path: Path) -> None:
    root = DOCS.parent
    subprocess.run(
        ["cmake", "-S", root, "-B", tmp_path, "-G", "Ninja", f"-DPython3_EXECUTABLE={sys.executable}"],
        check=True, capture_output=True, timeout=170,
    )  # fmt: skip
    compiled = len(json.loads((tmp_path / "compile_commands.json").read_text()))
    for page in (root / "README.md", DOCS / "how-to" / "install.md"):
        (said,) = re.findall(r"compiles about (\d+) (?:C\+\+ )?files", page.read_text())
        assert abs(int(said) - compiled) < 0.1 * compiled, (page, compiled)
