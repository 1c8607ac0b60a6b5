"""The sandbox of an array worker: what a worker of the driver seam has, for a Python process.

The worker gets a user of its own, no capabilities, an empty network, a list of system calls and no
core files. It can open no file but to read those from which Python loads modules; with NVIDIA's
driver it may read all files and write below /dev. It starts no process, reaches no other one, and
keeps the descriptors that it has.

The order in a worker's main program:

1. `single_thread()`, before a library of arrays is imported.
2. Import everything, load the device library, start the SourceCompiler. Modules that libraries load
   late are imported now too, if the worker's user cannot read Python's folders: `preload`.
3. `confine()`, and its report in READY.
4. `use_threads()`, if the library of arrays computes with threads.
5. Read the first message; then open the page, the device and the gate, whose threads are confined.
6. Set the ceiling of memory, which counts what all of this has taken (`ceiling.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import site
import stat
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rgpu_common.arrays import line
from rgpu_common.parts import native_library
from rgpu_server.arrays import ceiling, ledger, memory, turns
from rgpu_server.workers import pages

if TYPE_CHECKING:
    from collections.abc import Iterable

# Parts of NumPy that are loaded when they are used first.
NUMPY: Final = ("numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random")
# By the builds of OpenBLAS.
_BLAS_THREADS: Final = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)
_REPORT_BYTES: Final = 4096
# What libraries read before they make threads.
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def single_thread() -> None:
    """Lets libraries make no threads when they are imported: those would not be confined."""
    for name in _THREADS:
        os.environ[name] = "1"


def use_threads(count: int) -> None:
    """Lets OpenBLAS, which NumPy and SciPy have, compute with so many threads from now on."""
    for set_threads in _blas():
        set_threads(ctypes.c_int(count))


def preload(modules: Iterable[str] = NUMPY) -> None:
    """Imports modules, where they are installed, that are otherwise loaded later."""
    for name in modules:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def readable() -> list[str]:
    """Returns the folders and files from which Python loads modules and shared libraries."""
    wanted = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    wanted += [*sys.path, *site.getsitepackages(), os.fspath(native_library().parent)]
    # What is loaded lies in folders from which more may be loaded.
    wanted += [os.path.dirname(line) for line in _maps()]
    wanted.append("/etc/ld.so.cache")
    real = {os.path.realpath(one) for one in wanted if one}
    # An entry of sys.path may be as wide as the file system, or somebody's home.
    narrow = {one for one in real if len(Path(one).parts) > 2 and one != os.path.expanduser("~")}
    return sorted(one for one in narrow if os.path.exists(one))


def private(places: Iterable[str] | None = None) -> list[str]:
    """Returns the folders that keep other users from places which Python loads modules from, as a
    home does in which Python is installed. places: None: `readable()`.
    """
    given = readable() if places is None else places
    return sorted({closed for one in given if (closed := _closed(Path(one))) is not None})


def _closed(path: Path) -> str | None:
    """Returns the widest folder on the way to a path that other users cannot go through, or the
    path itself if they cannot read it.
    """
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return str(folder)
    return None if path.stat().st_mode & stat.S_IROTH else str(path)


def confine(*, needs_driver_files: bool = False, folders: Iterable[str] | None = None) -> str:
    """Gives up the rights of this process, for good.

    Args:
        needs_driver_files: for NVIDIA's driver.
        folders: what stays readable; None: `readable()`.

    Returns:
        The measures that the machine refused, as READY says them: "MEASURE: reason; ...". "" if
        none. The daemon decides whether such a worker is used.
    """
    _load()
    native = _native()
    names = [os.fsencode(one) for one in (readable() if folders is None else folders)]
    paths = (ctypes.c_char_p * (len(names) + 1))(*names, None)
    report = ctypes.create_string_buffer(_REPORT_BYTES)
    # What is collected later must not close what the rights were needed for.
    gc.collect()
    threads = native.rgpu_confine_worker(needs_driver_files, paths, report, len(report))
    text: str = report.value.decode(errors="replace")
    if threads == 1:
        return text
    lack = f"sandbox: {threads - 1} threads ran before it and are not confined"
    return f"{text}; {lack}" if text else lack


@functools.cache
def _blas() -> list[Any]:
    """Returns the function of each OpenBLAS in this process that sets its threads."""
    found = []
    for path in _maps():
        library = ctypes.CDLL(path) if "openblas" in path else None
        for name in _BLAS_THREADS:
            function = getattr(library, name, None)
            if function is not None:
                found.append(function)
                break
    return found


def _load() -> None:
    """Loads what a worker needs after it is confined."""
    loads = (line.warm_up, turns.native, memory.native, ledger.native, pages.warm_up, _blas)
    for load in loads:
        load()
    # Without it the ceiling is a generous one.
    with contextlib.suppress(OSError):
        ceiling.status_file()


def _maps() -> list[str]:
    """Returns the paths of the shared libraries that are loaded."""
    with open("/proc/self/maps") as lines:
        paths = {line.split(maxsplit=5)[-1].strip() for line in lines}
    return sorted(one for one in paths if one.startswith("/") and ".so" in one)


def _native() -> Any:
    library: Any = ctypes.CDLL(str(native_library()))
    function = library.rgpu_confine_worker
    function.restype = ctypes.c_uint32
    function.argtypes = [
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    return library
