"""Makes this process, or a program that it starts, load rgpu's driver library (the shim)."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.connection import connection_of
from rgpu_client.session.audit import is_loud
from rgpu_client.session.check import FOR_EVER, claim_shown
from rgpu_client.session.claim import let_go
from rgpu_client.session.launch import carried, same_agent
from rgpu_client.session.start import on_path, same_path
from rgpu_client.settings import DEFAULT_SERVER, SEND_PTX, ClientSettings, configured_server
from rgpu_client.standing import (
    Standing,
    arguments_of,
    differences,
    in_words_of_connect,
    rgpu_variables,
)
from rgpu_client.variables import flag
from rgpu_common.errors import NoSessionError, RgpuError, UsageError
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
_FAILED = 2  # rgpu_shim_state: opening a session has failed
_loaded: list[ctypes.CDLL] = []
# The result of the last `connect`; at most one.
_current: list[Standing] = []
_GIVE_UP = "which rgpu_client.disconnect() ends"


def library_path() -> Path:
    """Returns the folder with `libcuda.so.1`, which must stand first in LD_LIBRARY_PATH.

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

    The process has its lease when this function returns. The first CUDA call opens the session.
    Call `connect` before anything loads CUDA. Once the session is open, the same call again, as in
    a notebook cell, changes nothing.

    Each call stands alone: a value that it does not name is taken from the environment as it was
    before the first call. Without any argument it returns the result of the last call. A call that
    the server refuses leaves the lease of an earlier call unchanged.

    lease: processes that name the same lease share it. By default this process has its own.
    transport: "auto" takes the best path that the server offers; "shm", "unix", "tcp", "tls", "ucx"
    or "grpc" takes that one (default: RGPU_TRANSPORT, then auto).
    wait: whether to wait in line if there is no room: True without a limit, a number for so many
    seconds.

    Returns:
        The device, its memory, share and path, which a notebook shows as a table.

    Raises:
        NoSessionError: the server cannot be reached, or refuses the lease; the sentence says why.
        ServerError: the server does not offer the transport.
        UsageError: a value is not accepted. Or it is too late: CUDA has been loaded, or tried
            without success, in this process, or a session with other values is open.
        MissingPartError: the package was not built.
    """
    settings = ClientSettings(
        server, memory, device, share, limit, tenant, lease, policy, priority, weight
    )
    try:
        return _connected(settings, transport, wait)
    except RgpuError as error:
        raise in_words_of_connect(error) from None


def disconnect() -> None:
    """Gives up the lease of `connect()` and restores the environment variables that it has set.
    Does nothing without a lease.

    Raises:
        UsageError: the first CUDA call has been made, so the session lasts until the process ends.
    """
    if not _current:
        return
    if _session_is_open(library_path()):
        raise UsageError(
            "this process has opened its session already, which lasts until the process ends: "
            "restart the kernel (or the program)"
        )
    standing = _current.pop()
    let_go(standing.held)
    standing.undo()


def _connected(settings: ClientSettings, transport: str | None, wait: bool | float) -> Connection:
    variables = settings.variables("{}")
    seconds = _seconds(wait)
    folder = library_path()
    _check_loaded(folder)
    before = asked_before = dict(os.environ)
    if _current:
        standing = _current[0]
        asked_before = standing.without_own_lease(standing.after)
        again = not variables and transport is None
        before = (standing.without_own_lease if again else standing.undone)(os.environ)
    named = settings.server or before.get("RGPU_SERVER") or str(DEFAULT_SERVER)
    environment = client_environment(before, variables, folder)
    environment = same_path(environment, named, transport, os.environ) or on_path(
        environment, named, transport, is_loud(environment)
    )
    environment = same_agent(environment, os.environ)
    changed = differences(environment, asked_before)
    _check_session(folder, changed)
    if _current and not changed:
        return _current[0].connection
    environment = carried(environment)
    standing = _claim_anew(environment, before, seconds)
    for name in rgpu_variables(os.environ):
        if name not in standing.after:
            del os.environ[name]
    os.environ.update({**environment, **standing.after})
    if not _loaded:
        # Load it under both names, so that a later dlopen of either name finds this library.
        paths = (folder / "libcuda.so.1", folder / "libcuda.so", folder / "libnvidia-ml.so.1")
        _loaded.extend(_load(path) for path in paths if path.exists())
        _loaded.extend(_load(path) for path in _hiding(environment, folder))
    return standing.connection


def _claim_anew(
    environment: Mapping[str, str], before: Mapping[str, str], seconds: float
) -> Standing:
    """Claims a lease, then gives up an earlier call's lease, which stays if this claim fails."""
    if _current and seconds:
        _say(f"the lease of the earlier connect() is kept meanwhile; {_GIVE_UP}")
    if _current and environment.get("RGPU_LEASE") == _current[0].held.key:
        held = _swapped(environment, _current[0], seconds)
    else:
        held = _added(environment, seconds)
        while _current:
            let_go(_current.pop().held)
    standing = Standing(
        connection_of(held),
        held,
        "RGPU_LEASE" in environment,
        before=rgpu_variables(before),
        after=rgpu_variables({**environment, "RGPU_LEASE": held.key}),
    )
    _current[:] = [standing]
    return standing


def _added(environment: Mapping[str, str], seconds: float) -> Held:
    """Claims a lease while the lease of an earlier call is kept."""
    try:
        return claim_shown(environment, _program(), seconds)
    except NoSessionError as error:
        if not _current:
            raise
        raise NoSessionError(
            f"{error}; the earlier connect() keeps its lease, {_GIVE_UP}"
        ) from None


def _swapped(environment: Mapping[str, str], standing: Standing, seconds: float) -> Held:
    """Claims the lease of an earlier call with other sizes.

    The server does not grant it while the earlier call holds it, so that call's claim is given up
    first. If the server refuses the new sizes, the lease is claimed again with the old ones.
    """
    let_go(standing.held)
    try:
        return claim_shown(environment, _program(), seconds)
    except BaseException as error:
        try:
            held = claim_shown(os.environ, _program(), 0.0)
        except NoSessionError as second:
            _current.clear()
            raise NoSessionError(f"{error}; the lease of the earlier connect() is lost: {second}")\
                from None  # fmt: skip
        _current[:] = [replace(standing, held=held)]
        raise


def _program() -> str:
    return sys.argv[0] or "python"


def _say(sentence: str) -> None:
    sys.stderr.write(f"rgpu: {sentence}\n")
    sys.stderr.flush()


def client_environment(
    environment: Mapping[str, str], variables: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Returns `environment` with a client's variables, and with the library's folder first."""
    result = {**SEND_PTX, **environment, **variables}
    if "RGPU_SERVER" not in variables:
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
    """Returns the empty libraries that hide nvJitLink if RGPU_HIDE_NVJITLINK asks for them."""
    return [folder / name for name in _NO_NVJITLINK] if flag(environment, HIDE_NVJITLINK) else []


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RgpuError(f"{path} cannot be loaded: {error}") from None


def _check_loaded(folder: Path) -> None:
    """UsageError if another driver library is loaded: it would answer all CUDA calls."""
    for path in _mapped_drivers():
        if path.parent != folder.resolve() and path.parent != folder:
            raise UsageError(
                f"{path} is already loaded: restart the kernel (or the program), and call "
                "rgpu_client.connect() before the first import of a CUDA package, or start the "
                "program with `rgpu run`"
            )


def _check_session(folder: Path, changed: list[str]) -> None:
    """UsageError if the session can no longer change, or CUDA has failed in this process before.

    An open session keeps its server and sizes. Libraries remember a failed cuInit.
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
    if changed and _session_is_open(folder):
        raise UsageError(
            f"this process has opened its session already, so {arguments_of(changed)} cannot "
            "change any more; restart the kernel (or the program), and call rgpu_client.connect() "
            "before the first CUDA call"
        )


def _session_is_open(folder: Path) -> bool:
    path = folder / "libcuda.so.1"
    if not {path, path.resolve()} & _mapped_drivers():
        return False
    context = ctypes.c_void_p()
    status: int = _load(path).cuCtxGetCurrent(ctypes.byref(context))
    return status != _NOT_INITIALIZED


def _check_packages(folder: Path) -> None:
    """UsageError if a package was imported that looked for the driver and does not look again."""
    on_path = str(folder) in os.environ.get("LD_LIBRARY_PATH", "").split(":")
    found = [name for name in _LOOK_ONCE if name in sys.modules]
    if found and not on_path:
        raise UsageError(
            f"{found[0]} was imported before and has found no driver: restart the kernel (or the "
            "program), and call rgpu_client.connect() before the first import of a CUDA package, "
            "or start the program with `rgpu run`"
        )


def _seconds(wait: bool | float) -> float:
    """Returns how long a claim may wait. UsageError if `wait` is not a time."""
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
