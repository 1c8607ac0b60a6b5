"""Makes this process, or the next program, load our driver library instead of none."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.session.audit import is_loud
from rgpu_client.session.launch import carried, same_agent
from rgpu_client.session.start import on_path, same_path
from rgpu_client.settings import DEFAULT_SERVER, SEND_PTX, ClientSettings, configured_server
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.parts import compiled_part

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDE_NVJITLINK = "RGPU_HIDE_NVJITLINK"
_NO_NVJITLINK = ("no_nvjitlink/libnvJitLink.so.12", "no_nvjitlink/libnvJitLink.so.13")
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED: cuInit was not called
_loaded: list[ctypes.CDLL] = []


def library_path() -> Path:
    """Returns the folder with `libcuda.so.1`, to be put first in LD_LIBRARY_PATH.

    Raises:
        MissingPartError: the package was not built.
    """
    return compiled_part("rgpu_client", "lib/libcuda.so.1").parent


def connect(
    server: str | None = None,
    *,
    memory: str | int | None = None,
    device: int | None = None,
    share: str | float | None = None,
    limit: str | float | None = None,
    tenant: str | None = None,
    lease: str | None = None,
    policy: str | None = None,
    priority: int | None = None,
    weight: int | None = None,
    transport: str | None = None,
) -> None:
    """Serves every later CUDA import of this process, and of its children, from `server`.

    transport: "auto" takes the best path that the server offers; "shm", "unix", "tcp", "tls", "ucx"
    or "grpc" takes that one (default: RGPU_TRANSPORT, then auto).

    The session itself is opened by the first CUDA call.  Call it before anything that loads CUDA;
    to call it again, as a notebook cell does, changes nothing once the session is open.

    Raises:
        ServerError: the server does not offer the transport.
        UsageError: a value is not accepted, CUDA is already loaded in this process, or a session
            with other values is already open.
        MissingPartError: the package was not built.
    """
    settings = ClientSettings(
        server, memory, device, share, limit, tenant, lease, policy, priority, weight
    )
    variables = settings.variables()
    folder = library_path()
    _check_loaded(folder)
    named = server or os.environ.get("RGPU_SERVER") or str(DEFAULT_SERVER)
    environment = client_environment(os.environ, variables, folder)
    environment = same_path(environment, named, transport, os.environ) or on_path(
        environment, named, transport, is_loud(os.environ)
    )
    environment = same_agent(environment, os.environ)
    changed = [name for name, value in environment.items() if os.environ.get(name) != value]
    _check_session(folder, [name for name in changed if name.startswith("RGPU_")])
    os.environ.update(carried(environment))
    if not _loaded:
        # Both names: later dlopen calls of either find what is loaded already.
        paths = (folder / "libcuda.so.1", folder / "libcuda.so")
        _loaded.extend(_load(path) for path in paths if path.exists())
        _loaded.extend(_load(path) for path in _hiding(environment, folder))


def client_environment(
    environment: Mapping[str, str], variables: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Returns `environment` with the variables of a client and the library's folder first."""
    result = {**SEND_PTX, **environment, **variables}
    result.setdefault("RGPU_SERVER", str(configured_server(None, environment)))
    paths = [p for p in environment.get("LD_LIBRARY_PATH", "").split(":") if p]
    others = [p for p in paths if p != str(folder)]
    result["LD_LIBRARY_PATH"] = ":".join([str(folder), *others])
    hiding = [str(path) for path in _hiding(result, folder)]
    if hiding:
        preloaded = [p for p in re.split(r"[: ]+", environment.get("LD_PRELOAD", "")) if p]
        result["LD_PRELOAD"] = ":".join([*hiding, *(p for p in preloaded if p not in hiding)])
    return result


def _hiding(environment: Mapping[str, str], folder: Path) -> list[Path]:
    """The empty libraries that stand in for nvJitLink, when they are asked for.

    Raises:
        UsageError: the variable is neither 0 nor 1.
    """
    text = environment.get(HIDE_NVJITLINK, "")
    if text not in ("", "0", "1"):
        raise UsageError(f"{HIDE_NVJITLINK} is 1 to hide nvJitLink from the program, not {text!r}")
    return [folder / name for name in _NO_NVJITLINK] if text == "1" else []


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RgpuError(f"{path} cannot be loaded: {error}") from None


def _check_loaded(folder: Path) -> None:
    """Another driver library in this process would go on answering."""
    for path in _mapped_drivers():
        if path.parent != folder.resolve() and path.parent != folder:
            raise UsageError(
                f"{path} is already loaded: call rgpu_client.connect() before the first import of "
                "a CUDA package, or start the program with `rgpu run`"
            )


def _check_session(folder: Path, changed: list[str]) -> None:
    """A session keeps the server and the sizes that it was opened with."""
    path = folder / "libcuda.so.1"
    if not changed or not {path, path.resolve()} & _mapped_drivers():
        return
    context = ctypes.c_void_p()
    if _load(path).cuCtxGetCurrent(ctypes.byref(context)) != _NOT_INITIALIZED:
        raise UsageError(
            f"this process has opened its session already, so {', '.join(sorted(changed))} cannot "
            "change any more; restart it (in a notebook: the kernel) and call "
            "rgpu_client.connect() before the first CUDA call"
        )


def _mapped_drivers() -> set[Path]:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    paths = {Path(words[5]) for words in fields if len(words) == 6}
    return {path for path in paths if path.name.startswith("libcuda.so")}
