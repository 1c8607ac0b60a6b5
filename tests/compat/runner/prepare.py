"""The environment of a program and its tests, kept in a cache folder outside the tree."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from compat.runner.rows import Program, Source

import rgpu_client

# What runs every suite.
PYTEST = ("pytest-xdist>=3.5", "pytest-timeout>=2.3")
LAYOUT = "1"


def cache() -> Path:
    """Returns the cache folder: COMPAT_CACHE, or one below the user's cache."""
    chosen = os.environ.get("COMPAT_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rgpu-compat"


def python(program: Program) -> Path:
    """Returns the Python of the program's own environment, which it makes if there is none.

    Another version of a requirement or of Python is another environment.  A program with `build`
    is compiled, by these variables.
    """
    key = _hash(LAYOUT, sys.version, *program.requires, *PYTEST, *program.build.values())
    folder = cache() / "environments" / f"{program.name}-{program.version}-{key}"
    interpreter = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        venv.create(folder, with_pip=True, clear=True)
        first = program.requires[1:] if program.build else program.requires
        _install(interpreter, *first, *PYTEST)
        if program.build:
            variables = filled(program, interpreter, program.build)
            _install(interpreter, "--no-build-isolation", program.requires[0], **variables)
        complete.touch()
    return interpreter


def tests(program: Program) -> Path:
    """Returns the folder where pytest runs, with the tests in it."""
    if program.source is None:
        return program.own
    return _checkout(program.source) / program.folder


def _install(interpreter: Path, *what: str, **variables: str) -> None:
    command = [str(interpreter), "-m", "pip", "install", "--quiet", *what]
    subprocess.run(command, check=True, env={**os.environ, **variables})


def filled(program: Program, interpreter: Path, variables: dict[str, str]) -> dict[str, str]:
    """Returns the variables with what they name: `{site}`, the environment's packages, `{libcuda}`,
    a folder with libcuda.so to link against, `{own}`, the program's folder here, and variables.
    """
    if not variables:
        return {}
    environment = interpreter.parents[1]
    paths = {"base": str(environment), "platbase": str(environment)}
    site = sysconfig.get_path("purelib", vars=paths)
    linked = environment / "libcuda"
    linked.mkdir(exist_ok=True)
    library = linked / "libcuda.so"
    library.unlink(missing_ok=True)
    library.symlink_to(Path(rgpu_client.library_path()) / "libcuda.so.1")
    places = {**os.environ, "site": site, "libcuda": str(linked), "own": str(program.own)}
    return {name: text.format(**places) for name, text in variables.items()}


def _checkout(source: Source) -> Path:
    """Checks the source's folders out, without history, once for each commit."""
    name = source.repository.rpartition("/")[2]
    folder = cache() / "sources" / f"{name}-{source.commit[:12]}-{_hash(*source.folders)}"
    complete = folder / ".git" / "complete"
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        git = ["git", "-C", str(folder), "-c", "advice.detachedHead=false"]
        fetch = ["fetch", "--quiet", "--depth=1", "--filter=blob:none", source.repository]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, *fetch, source.commit], check=True)
        subprocess.run([*git, "sparse-checkout", "set", *source.folders], check=True)
        subprocess.run([*git, "checkout", "--quiet", "--force", "FETCH_HEAD"], check=True)
        complete.touch()
    return folder


def _hash(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
