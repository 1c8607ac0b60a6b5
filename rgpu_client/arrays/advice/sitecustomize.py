"""Python runs this at its start under `rgpu run`, so that a program that ends because its Python
lacks CuPy, PyTorch or rgpu says in one sentence what the remedy is.

It changes no import, so `try: import cupy` and `importlib.util.find_spec("cupy")` find what they
find without rgpu. It imports nothing of rgpu: the program's Python may be another one than rgpu's.
"""

from __future__ import annotations

import atexit
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from types import TracebackType

_OWN = __file__.rpartition("/")[0]
_ARRAYS_FOLDER = _OWN.rpartition("/")[0]
_CLIENT_FOLDER = _ARRAYS_FOLDER.rpartition("/")[0]
_ARRAYS = f"{_ARRAYS_FOLDER}/stand_in" in sys.path
_TORCH = f"{_ARRAYS_FOLDER}/stand_in_torch" in sys.path
_CPU_BUILD = "torch --index-url https://download.pytorch.org/whl/cpu"
_WITH_RGPU = "install rgpu's wheel there, with the extra [arrays]"
_show = sys.excepthook
_told: list[str] = []


def _shown(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows the error that ends the program."""
    if isinstance(error, ModuleNotFoundError):
        file, line = _place(trace)
        remedy = _remedy(error.name or "", file)
        if remedy:
            _say(f"{file}, line {line}, imports {error.name}, which is not installed for "
                 f"{sys.executable}: {remedy}")  # fmt: skip
            return
    elif (kind.__module__, kind.__name__) == ("rgpu_common.errors", "MissingPartError"):
        _say(str(error))
        return
    _show(kind, error, trace)
    if _lacks_cuda() and "CUDA" in str(error):
        _say(_of_torch("this PyTorch is built without CUDA"))


def _place(trace: TracebackType | None) -> tuple[str, int]:
    """Returns the file and the line of the import that failed."""
    found = ("the program", 0)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen importlib"):
            found = (file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _remedy(name: str, file: str) -> str:
    """Returns what to do about a missing module; "": it is one that rgpu does not know.

    file: the one that imports it.
    """
    option = "--torch" if _TORCH else "--arrays"
    if name in ("cupy", "cupyx") and not _ARRAYS:
        return "`rgpu run --arrays` executes CuPy's operations on the GPU node"
    if name == "torch" and _TORCH:
        build = f"{sys.executable} -m pip install {_CPU_BUILD}"
        return f"`rgpu run --torch` needs its CPU build, for example from `{build}`"
    if name == "rgpu_client" and file.startswith(_ARRAYS_FOLDER):
        return f"`rgpu run {option}` needs it in the program's Python: {_WITH_RGPU}"
    if name in ("numpy", "msgpack") and file.startswith(_CLIENT_FOLDER):
        return f"`rgpu run {option}` needs it: {_WITH_RGPU}"
    return ""


def _lacks_cuda() -> bool:
    """Returns whether the program uses a PyTorch that has neither CUDA nor the node."""
    torch = sys.modules.get("torch")
    built = getattr(getattr(torch, "version", None), "cuda", "")
    return built is None and "rgpu_client.torch" not in sys.modules


def _of_torch(what: str) -> str:
    if _TORCH:
        return f"{what}, and `rgpu run --torch` needs rgpu in the program's Python: {_WITH_RGPU}"
    return f"{what}: `rgpu run --torch` has the GPU node compute what the program does on `cuda`"


def _at_end() -> None:
    """Says that PyTorch has computed here, in a program that has made no CUDA call."""
    if not _told and _lacks_cuda() and not _has_driver():
        _say(_of_torch("this PyTorch is built without CUDA, so the program has computed here"))


def _has_driver() -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return "/libcuda.so" in maps.read()
    except OSError:
        return True


def _say(sentence: str) -> None:
    _told.append(sentence)
    if sys.stderr is not None:
        sys.stderr.write(f"rgpu: {sentence}\n")


def _next() -> None:
    """Runs the sitecustomize that this one hides, if there is one."""
    after = sys.path[sys.path.index(_OWN) + 1 :]
    spec = PathFinder.find_spec("sitecustomize", after)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.excepthook = _shown
atexit.register(_at_end)
if _OWN in sys.path:
    _next()
    sys.path.remove(_OWN)
