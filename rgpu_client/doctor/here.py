"""The checks of a client that ask no server."""

from __future__ import annotations

import ctypes
import os
import stat
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from netprobe.schemes import scheme_of
from rgpu_client.program_environment import HIDE_NVJITLINK, library_path
from rgpu_client.session.paths import check_others, transport_of, workload_of
from rgpu_client.settings import DEFAULT_SERVER
from rgpu_client.sizes import check_share_and_limit, sizes_of
from rgpu_client.variables import check_flags, flag
from rgpu_common import release
from rgpu_common.credentials import configured_access_token
from rgpu_common.doctor.findings import Level, failed, note, ok, warning, wrong
from rgpu_common.doctor.libraries import CLIENT, library_findings
from rgpu_common.doctor.versions import INSTALL_AGAIN
from rgpu_common.errors import UsageError
from rgpu_common.log_level import log_level
from rgpu_common.variables import KNOWN, meant_by

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from rgpu_common.doctor.findings import Finding

CORRECT_VARIABLE = "correct the variable; `rgpu help client` lists them"
_DRIVER = "libcuda.so.1"
# Variables that name a file, and whether it must be a secret.
_FILES = {
    "RGPU_TOKEN_FILE": True,
    "RGPU_TLS_KEY": True,
    "RGPU_TLS_CERT": False,
    "RGPU_TLS_CA": False,
}


def named_servers(arguments: argparse.Namespace) -> list[str]:
    """Returns the servers as the user names them. Without one a cluster's manager names them."""
    named = arguments.server or os.environ.get("RGPU_SERVER")
    if not named and os.environ.get("RGPU_MANAGER"):
        return []
    return str(named or DEFAULT_SERVER).split(",")


def variables(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields misspelt variables, and each whose value is not accepted."""
    del arguments
    for name in sorted(os.environ):
        meant = meant_by(name)
        if meant is not None:
            yield warning(
                "variables", f"{name} is no variable of rgpu and changes nothing",
                f"set {meant} instead, if you mean that",
            )  # fmt: skip
    there = sorted(KNOWN & set(os.environ))
    refused = [error for name in there if (error := _refused({name: os.environ[name]}))]
    # Each value may be accepted, and not all of them together.
    together = None if refused else _refused(os.environ)
    for error in [*refused, together] if together else refused:
        yield failed("variables", error, CORRECT_VARIABLE)
    yield ok("variables", f"set: {', '.join(there)}" if there else "no variable of rgpu is set")


def _refused(environment: Mapping[str, str]) -> UsageError | None:
    """Returns why a run with these variables would be refused."""
    try:
        sizes = sizes_of(environment)
        check_share_and_limit(sizes.share_ppm, sizes.limit_ppm)
        transport_of(None, environment)
        workload_of(environment)
        check_others(environment)
        check_flags(environment)
        log_level(environment)
    except UsageError as error:
        return error
    return None


def driver(arguments: argparse.Namespace) -> Iterator[Finding]:
    del arguments
    ours = library_path()
    library = ctypes.CDLL(str(ours / _DRIVER))
    library.rgpu_shim_version.restype = ctypes.c_char_p
    made = library.rgpu_shim_version().decode()
    if made != release():
        yield wrong(
            "driver", f"{ours / _DRIVER} is of rgpu {made}, and the rest of {release()}",
            INSTALL_AGAIN,
        )  # fmt: skip
    yield ok("driver", f"programs of `rgpu run` load {ours / _DRIVER}")
    yield from _first_on_path(ours)
    yield from _nvjitlink()


def _first_on_path(ours: Path) -> Iterator[Finding]:
    folders = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    first = next((folder for folder in folders if (folder / _DRIVER).exists()), None)
    if first is None:
        return
    if first.resolve() == ours.resolve():
        yield ok("driver", "LD_LIBRARY_PATH makes every program here load it, also without rgpu")
    elif ours in folders:
        yield warning(
            "driver", f"LD_LIBRARY_PATH has {first / _DRIVER} before rgpu's",
            f"put {ours} first in LD_LIBRARY_PATH",
        )  # fmt: skip
    else:
        yield note("driver", f"programs without `rgpu run` load {first / _DRIVER}")


def _nvjitlink() -> Iterator[Finding]:
    """nvJitLink makes programs send machine code, which only a GPU runs."""
    there = sorted(
        {
            name
            for one in distributions()
            if (name := (one.name or "").lower()).startswith("nvidia-nvjitlink")
        }
    )
    if there and not flag(os.environ, HIDE_NVJITLINK):
        yield note(
            "driver", f"with {', '.join(there)} programs send machine code, which an emulated "
            "device does not run", f"on an emulated device set {HIDE_NVJITLINK}=1",
        )  # fmt: skip


def libraries(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields the C libraries that transports need."""
    schemes = {scheme_of(one) for one in named_servers(arguments)}
    return library_findings(CLIENT, schemes)


def token(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields whether the credentials can be read. UsageError: the access token cannot."""
    del arguments
    named = {name: Path(text) for name in _FILES if (text := os.environ.get(name))}
    found = [_file(name, path, secret=_FILES[name]) for name, path in named.items()]
    yield from found
    if any(one.level is Level.ERROR for one in found):
        return
    if not configured_access_token(os.environ):
        yield ok("token", "no access token is set, which a server of this machine does not need")
    elif not os.environ.get("RGPU_TOKEN_FILE"):
        yield warning(
            "token", "RGPU_TOKEN shows the access token to every program that this one starts",
            "write it to a file of mode 0600 and set RGPU_TOKEN_FILE",
        )  # fmt: skip


def _file(name: str, path: Path, *, secret: bool) -> Finding:
    try:
        mode = path.stat().st_mode
        if not os.access(path, os.R_OK):
            raise PermissionError(0, "you may not read it")
    except OSError as error:
        return wrong("token", f"{name}={path} cannot be read: {error.strerror}", f"correct {name}")
    if secret and stat.S_ISREG(mode) and mode & 0o077:
        return warning("token", f"other users can read {path} ({name})", f"chmod 600 {path}")
    return ok("token", f"{name}={path}")
