"""Generated declarations compile as C11 and C++20, and agree with the vendor's header."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.needs import cuda_headers, needs

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
    raise AssertionError(f"no compiler on this machine (looked for {', '.join(names)})")


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


@needs("cuda-headers")
def test_vendor_header_says_the_same(generated: Path) -> None:
    include = cuda_headers()
    compiler = _compiler("g++", "clang++", "c++")
    flags = [
        "-std=c++20",
        "-fsyntax-only",
        "-Werror",
        "-Wno-deprecated-declarations",
        "-Wno-invalid-offsetof",
    ]
    _compile(compiler, *flags, "-I", str(include), generated / "gen" / "abi_check.gen.cc")


def _preprocessed(tmp_path: Path, headers: list[str], *defines: str) -> str:
    include = cuda_headers("13000")
    (tmp_path / "GL").mkdir(exist_ok=True)
    (tmp_path / "GL" / "gl.h").write_text("typedef unsigned GLuint; typedef unsigned GLenum;\n")
    source = tmp_path / "headers.c"
    source.write_text("".join(f"#include <{name}>\n" for name in headers))
    compiler = _compiler("gcc", "clang", "cc")
    command = [compiler, "-E", "-P", "-I", str(include), "-I", str(tmp_path), *defines, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@needs("cuda-13.0-headers")
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


@needs("cuda-13.0-headers")
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
