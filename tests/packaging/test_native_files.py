"""What the compiled files of an installation hold."""

from __future__ import annotations

from importlib.metadata import files
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", native_files(), ids=lambda path: path.name)
def test_no_file_holds_the_locales_of_the_runtime(path: Path) -> None:
    """They are 0.9 MB in each file; <sstream> or <fstream> in one source would bring them back."""
    content = path.read_bytes()
    assert not [name for name in LOCALES if name in content]
    assert len(content) < LARGEST
