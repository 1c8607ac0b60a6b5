"""Makes this process, or the next program, load our driver library instead of none."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.connection import connection_of
from rgpu_client.session.audit import is_loud
from rgpu_client.session.check import FOR_EVER, claim_shown
from rgpu_client.session.claim import let_go
from rgpu_client.session.launch import carried, same_agent
from rgpu_client.session.start import on_path, same_path
from rgpu_client.settings import DEFAULT_SERVER, SEND_PTX, ClientSettings, configured_server
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.parts import compiled_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_client.connection import Connection
    from rgpu_client.session.claim import Held

HIDE_NVJITLINK = "RGPU_HIDE_NVJITLINK"
_NO_NVJITLINK = ("no_nvjitlink/libnvJitLink.so.12", "no_nvjitlink/libnvJitLink.so.13")
# Packages that look for libcuda.so.1 when they are imported, and keep the answer.
_LOOK_ONCE = ("numba.cuda",)
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED: cuInit was not called
_FAILED = 2  # rgpu_shim_state: a session was asked for and there was none to be had
_loaded: list[ctypes.CDLL] = []
# What `connect` came to last, and whether its lease was named; at most one.
_current: list[tuple[Connection, Held, bool]] = []


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
    wait: bool | float = False,
) -> Connection:
    """Serves every later CUDA import of this process, and of its children, from `server`.

    The server is asked at once: the process has its lease when this returns, and the first CUDA
    call opens the session.  Call it before anything that loads CUDA; to call it again, as a
    notebook cell does, changes nothing once the session is open.

    lease: processes with one name share one lease; by default this process has its own.
    transport: "auto" takes the best path that the server offers; "shm", "unix", "tcp", "tls", "ucx"
    or "grpc" takes that one (default: RGPU_TRANSPORT, then auto).
    wait: where there is no room: wait in line for it, True without an end, else for so many
    seconds.

    Returns:
        The device, its memory, share and path, which a notebook shows as a table.

    Raises:
        NoSessionError: the server is not there, or refuses; the sentence says why.
        ServerError: the server does not offer the transport.
        UsageError: a value is not accepted; or it is too late, because CUDA has been loaded or
            tried without success in this process, or a session with other values is open.
        MissingPartError: the package was not built.
    """
    settings = ClientSettings(
        server, memory, device, share, limit, tenant, lease, policy, priority, weight
    )
    return _connected(settings, transport, wait)


def _connected(settings: ClientSettings, transport: str | None, wait: bool | float) -> Connection:
    variables = settings.variables()
    folder = library_path()
    _check_loaded(folder)
    before = _without_own_lease(os.environ)
    named = settings.server or before.get("RGPU_SERVER") or str(DEFAULT_SERVER)
    environment = client_environment(before, variables, folder)
    environment = same_path(environment, named, transport, os.environ) or on_path(
        environment, named, transport, is_loud(os.environ)
    )
    environment = same_agent(environment, os.environ)
    changed = [name for name, value in environment.items() if before.get(name) != value]
    changed = [name for name in changed if name.startswith("RGPU_")]
    _check_session(folder, changed)
    if _current and not changed:
        return _current[0][0]
    environment = carried(environment)
    connection = _claim_anew(environment, wait)
    os.environ.update({**environment, "RGPU_LEASE": connection.lease})
    if not _loaded:
        # Both names: later dlopen calls of either find what is loaded already.
        paths = (folder / "libcuda.so.1", folder / "libcuda.so")
        _loaded.extend(_load(path) for path in paths if path.exists())
        _loaded.extend(_load(path) for path in _hiding(environment, folder))
    return connection


def _without_own_lease(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as it was before `connect` gave this process a lease of its own."""
    own = _current[0][1].key if _current and not _current[0][2] else None
    return {
        name: value
        for name, value in environment.items()
        if not (name == "RGPU_LEASE" and value == own)
    }


def _claim_anew(environment: Mapping[str, str], wait: bool | float) -> Connection:
    """Claims a lease in place of the one that an earlier call has."""
    seconds = _seconds(wait)
    while _current:
        _, before, named = _current.pop()
        let_go(before)
        if not named:
            os.environ.pop("RGPU_LEASE", None)
    held = claim_shown(environment, sys.argv[0] or "python", seconds)
    connection = connection_of(held)
    _current.append((connection, held, "RGPU_LEASE" in environment))
    return connection


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
                f"{path} is already loaded: restart the kernel (or the program), and call "
                "rgpu_client.connect() before the first import of a CUDA package, or start the "
                "program with `rgpu run`"
            )


def _check_session(folder: Path, changed: list[str]) -> None:
    """A session keeps the server and the sizes that it was opened with, and a library that could
    not get one remembers that.
    """
    path = folder / "libcuda.so.1"
    if not {path, path.resolve()} & _mapped_drivers():
        _check_packages(folder)
        return
    if _load(path).rgpu_shim_state() == _FAILED:
        raise UsageError(
            "CUDA was tried in this process before and failed, and its libraries remember that: "
            "restart the kernel (or the program), and call rgpu_client.connect() before the first "
            "CUDA call"
        )
    if not changed:
        return
    context = ctypes.c_void_p()
    if _load(path).cuCtxGetCurrent(ctypes.byref(context)) != _NOT_INITIALIZED:
        raise UsageError(
            f"this process has opened its session already, so {', '.join(sorted(changed))} cannot "
            "change any more; restart the kernel (or the program), and call rgpu_client.connect() "
            "before the first CUDA call"
        )


def _check_packages(folder: Path) -> None:
    """A package that looked for the driver when it was imported does not look again."""
    on_path = str(folder) in os.environ.get("LD_LIBRARY_PATH", "").split(":")
    found = [name for name in _LOOK_ONCE if name in sys.modules]
    if found and not on_path:
        raise UsageError(
            f"{found[0]} was imported before and has found no driver: restart the kernel (or the "
            "program), and call rgpu_client.connect() before the first import of a CUDA package, "
            "or start the program with `rgpu run`"
        )


def _seconds(wait: bool | float) -> float:
    """How long a claim may wait; UsageError for what is no time."""
    if wait is True or wait is False:
        return FOR_EVER if wait else 0.0
    if not isinstance(wait, (int, float)) or not wait >= 0:
        raise UsageError(f"wait is True, False or a number of seconds, not {wait!r}")
    return float(wait)


def _mapped_drivers() -> set[Path]:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    paths = {Path(words[5]) for words in fields if len(words) == 6}
    return {path for path in paths if path.name.startswith("libcuda.so")}
