"""Makes this process, or a program that it starts, load rgpu's driver library (the shim)."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.argument_words import arguments_of, in_words_of_connect
from rgpu_client.lease import Hold, Lease
from rgpu_client.program_environment import (
    client_environment,
    hiding,
    library_path,
    rgpu_variables,
)
from rgpu_client.session.audit import is_loud
from rgpu_client.session.check import FOR_EVER, Patience, claim_shown
from rgpu_client.session.greeting import program_name
from rgpu_client.session.launch import api_server, carried, same_agent
from rgpu_client.session.start import on_path, same_path
from rgpu_client.settings import DEFAULT_SERVER, ClientSettings
from rgpu_client.standing import Standing, differences
from rgpu_common.errors import NoSessionError, RgpuError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgpu_client.session.claim import Held

# Packages that look for libcuda.so.1 when they are imported, and keep the answer.
_LOOK_ONCE = ("numba.cuda",)
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED: cuInit was not called
_FAILED = 2  # rgpu_shim_state: opening a session has failed
_loaded: list[ctypes.CDLL] = []
# The result of the last `connect`; at most one.
_current: list[Standing] = []
_GIVE_UP = "which rgpu_client.disconnect() ends"


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
    name: str | None = None,
    transport: str | None = None,
    wait: bool | float = False,
) -> Lease:
    """Serves every later CUDA import of this process, and of its children, from `server`.

    The process has its lease when this function returns. The first CUDA call opens the session.
    Call `connect` before anything loads CUDA. Once the session is open, the same call again, as in
    a notebook cell, changes nothing.

    Each call stands alone: a value that it does not name is taken from the environment as it was
    before the first call. Without any argument it returns the result of the last call. A call that
    the server refuses leaves the lease of an earlier call unchanged.

    At the end of a `with` block the lease is closed, and CUDA calls of this process fail from then
    on. For children alone, use `claim`, which leaves this process as it is.

    Args:
        server: the address, as "gpu-node:7700". None: RGPU_SERVER, then 127.0.0.1:7700.
        memory: the memory limit, in bytes or as "2GiB", "25%" or "8vmem".
        device: the number of the device on the server. None: any one.
        share: the guaranteed part of the device's time: 0.4, "40%" or "40vcore".
        limit: the most that the lease gets of the device's time, written as `share`.
        tenant: the tenant whose quota is charged.
        lease: processes that name the same lease share it. None: this process has its own.
        policy: "fixed", "burst", "best-effort" or "none".
        priority: 0 to 100. Leases of a higher priority get idle device time first.
        weight: 1 to 1000. How leases of one priority divide idle device time.
        name: what lists call the lease. None: the name of the program's file.
        transport: "auto" takes the best path that the server offers; "shm", "unix", "tcp", "tls",
            "ucx" or "grpc" takes that one. None: RGPU_TRANSPORT, then auto.
        wait: whether to wait in line if there is no room: True without a limit, a number for so
            many seconds.

    Returns:
        The lease: its device, memory, share and path, which a notebook shows as a table.

    Raises:
        NoSessionError: the server cannot be reached, or refuses the lease; the sentence says why.
        ServerError: the server does not offer the transport.
        UsageError: a value is not accepted. Or it is too late: CUDA has been loaded, or tried
            without success, in this process, or a session with other values is open.
        MissingPartError: the package was not built.
    """
    settings = ClientSettings(
        server, memory, device, share, limit, tenant, lease, policy, priority, weight, name
    )
    return connect_with(settings, transport, wait)


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
    _current[0].lease.give_up()


def connect_with(
    settings: ClientSettings,
    transport: str | None,
    wait: bool | float,
    given_up: Callable[[], bool] = bool,
) -> Lease:
    """As `connect`. given_up: tells that the caller no longer wants the lease (GivenUpError)."""
    try:
        return _connected(settings, transport, Patience(seconds_of(wait), given_up))
    except RgpuError as error:
        raise in_words_of_connect(error) from None


def environment_before() -> dict[str, str]:
    """Returns the variables of this process as they would be without `connect`."""
    return _current[0].undone(os.environ) if _current else dict(os.environ)


def _connected(settings: ClientSettings, transport: str | None, patience: Patience) -> Lease:
    variables = settings.variables("{}")
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
        return _current[0].lease
    environment = carried(environment)
    standing = _claim_anew(environment, before, named, patience)
    for name in rgpu_variables(os.environ):
        if name not in standing.after:
            del os.environ[name]
    os.environ.update({**environment, **standing.after})
    if not _loaded:
        # Load it under both names, so that a later dlopen of either name finds this library.
        paths = (folder / "libcuda.so.1", folder / "libcuda.so", folder / "libnvidia-ml.so.1")
        _loaded.extend(_load(path) for path in paths if path.exists())
        _loaded.extend(_load(path) for path in hiding(environment, folder))
    return standing.lease


def _claim_anew(
    environment: Mapping[str, str], before: Mapping[str, str], named: str, patience: Patience
) -> Standing:
    """Claims a lease, then gives up an earlier call's lease, which stays if this claim fails."""
    if _current and patience.seconds:
        _say(f"the lease of the earlier connect() is kept meanwhile; {_GIVE_UP}")
    earlier = _current[0] if _current else None
    if earlier is not None and environment.get("RGPU_LEASE") == earlier.lease.key:
        held = _swapped(environment, earlier, patience)
    else:
        held = _added(environment, patience)
    _current.clear()
    if earlier is not None:
        earlier.lease.give_up()
    own = "RGPU_LEASE" not in environment
    leased = {**environment, "RGPU_LEASE": held.key}
    standing = Standing(
        Lease(Hold(held, api_server(environment, named), leased, own, _forget)),
        not own,
        before=rgpu_variables(before),
        after=rgpu_variables(leased),
    )
    _current[:] = [standing]
    return standing


def _forget(lease: Lease) -> None:
    """Restores the variables of this process when the lease of the last `connect` is closed."""
    if _current and _current[0].lease is lease:
        _current.pop().undo()


def _added(environment: Mapping[str, str], patience: Patience) -> Held:
    """Claims a lease while the lease of an earlier call is kept."""
    try:
        return claim_shown(environment, program_name(), patience)
    except NoSessionError as error:
        if not _current:
            raise
        raise NoSessionError(
            f"{error}; the earlier connect() keeps its lease, {_GIVE_UP}"
        ) from None


def _swapped(environment: Mapping[str, str], standing: Standing, patience: Patience) -> Held:
    """Claims the lease of an earlier call with other sizes.

    The server does not grant it while the earlier call holds it, so that call's claim is given up
    first. If the server refuses the new sizes, the lease is claimed again with the old ones.
    """
    standing.lease.let_go()
    try:
        return claim_shown(environment, program_name(), patience)
    except BaseException as error:
        try:
            standing.lease.hold_again(claim_shown(os.environ, program_name(), Patience()))
        except NoSessionError as second:
            _current.clear()
            raise NoSessionError(f"{error}; the lease of the earlier connect() is lost: {second}")\
                from None  # fmt: skip
        raise


def _say(sentence: str) -> None:
    sys.stderr.write(f"rgpu: {sentence}\n")
    sys.stderr.flush()


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


def seconds_of(wait: bool | float) -> float:
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
