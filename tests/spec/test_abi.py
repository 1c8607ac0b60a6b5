"""Generated declarations compile as C11 and C++20, and agree with the vendor's header."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cudaspec import generate, model, rows

STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory, spec: rows.Spec) -> Path:
    directory = tmp_path_factory.mktemp("generated")
    generate.write(spec, directory / "gen")
    return directory


def _compiler(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no compiler on this machine (looked for {', '.join(names)})")


def _wheel() -> str:
    """The headers that a pip package of NVIDIA's brought, if any."""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else ()
    return next((str(Path(p) / "cu13") for p in places or () if (Path(p) / "cu13").is_dir()), "")


def _header() -> Path:
    """The include folder of a toolkit of CUDA 13."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr/local/cuda-13.0", _wheel()]
    for home in filter(None, homes):
        header = Path(home) / "include" / "cuda.h"
        if header.is_file() and re.search(
            r"#define CUDA_VERSION 13\d{3}", header.read_text(encoding="utf-8", errors="replace")
        ):
            return header.parent
    pytest.skip("no cuda.h of CUDA 13 on this machine (CUDA_HOME, /usr/local, nvidia-* packages)")


def _toolkit() -> Path:
    homes = [
        os.environ.get("CUDA_HOME", ""),
        "/usr/local/cuda",
        *map(str, Path("/usr/local").glob("cuda-13.0")),
    ]
    for home in filter(None, homes):
        header = Path(home) / "include" / "cuda.h"
        if header.is_file() and "#define CUDA_VERSION 13000" in header.read_text(
            encoding="utf-8", errors="replace"
        ):
            return header.parent
    pytest.skip(
        "no CUDA 13.0 toolkit on this machine (CUDA_HOME, /usr/local/cuda, /usr/local/cuda-13.0)"
    )


def _compile(*command: object) -> None:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize(("language", "standard"), [("c", "c11"), ("c++", "c++20")])
def test_declarations_compile(
    generated: Path, tmp_path: Path, language: str, standard: str
) -> None:
    compiler = (
        _compiler("gcc", "clang", "cc") if language == "c" else _compiler("g++", "clang++", "c++")
    )
    source = tmp_path / "t.c"
    source.write_text(
        '#include "gen/cuda_abi.gen.h"\nCUresult f(CUstream s) { return cuStreamQuery(s); }\n'
    )
    _compile(compiler, "-x", language, f"-std={standard}", *STRICT, "-I", generated, source)


@pytest.mark.parametrize("name", ["driver_table.gen.cc", "errors.gen.cc", "opcodes.gen.cc"])
def test_tables_compile(generated: Path, name: str) -> None:
    _compile(
        _compiler("g++", "clang++", "c++"),
        "-std=c++20",
        *STRICT,
        "-I",
        generated,
        generated / "gen" / name,
    )


def test_vendor_header_says_the_same(generated: Path) -> None:
    include = _header()
    compiler = _compiler("g++", "clang++", "c++")
    flags = [
        "-std=c++20",
        "-fsyntax-only",
        "-Werror",
        "-Wno-deprecated-declarations",
        "-Wno-invalid-offsetof",
    ]
    _compile(compiler, *flags, "-I", include, generated / "gen" / "abi_check.gen.cc")


def _preprocessed(tmp_path: Path, headers: list[str], *defines: str) -> str:
    include = _toolkit()
    (tmp_path / "GL").mkdir(exist_ok=True)
    (tmp_path / "GL" / "gl.h").write_text("typedef unsigned GLuint; typedef unsigned GLenum;\n")
    source = tmp_path / "headers.c"
    source.write_text("".join(f"#include <{name}>\n" for name in headers))
    compiler = _compiler("gcc", "clang", "cc")
    command = [compiler, "-E", "-P", "-I", str(include), "-I", str(tmp_path), *defines, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_every_symbol_of_the_headers_is_exported(spec: rows.Spec, tmp_path: Path) -> None:
    headers = ["cuda.h", "cudaProfiler.h", "cudaGL.h"]
    found: set[str] = set()
    for defines in (
        (),
        ("-D__CUDA_API_VERSION_INTERNAL",),
        ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",),
    ):
        text = _preprocessed(tmp_path, headers, "-DCUDA_ENABLE_DEPRECATED", *defines)
        found |= set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\([^;{]*\)\s*;", text))
    assert found == set(spec.exported)


def test_versions_are_those_of_the_typedefs(
    symbols: Mapping[str, model.Symbols], tmp_path: Path
) -> None:
    headers = ["cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h"]
    found: dict[str, set[int]] = {}
    for defines in ((), ("-D__CUDA_API_VERSION_INTERNAL",)):
        text = _preprocessed(tmp_path, headers, *defines)
        for name, version in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)\)", text):
            found.setdefault(name, set()).add(int(version))
    assert set(found) == set(symbols)
    for name, versions in found.items():
        assert versions == {v for v, _ in symbols[name].versions}, name
