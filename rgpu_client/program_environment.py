"""The environment of a program whose CUDA calls go to a server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rgpu_client.settings import SEND_PTX, configured_server
from rgpu_client.variables import flag
from rgpu_common.parts import compiled_part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HIDE_NVJITLINK = "RGPU_HIDE_NVJITLINK"
PREFIX = "RGPU_"
_NO_NVJITLINK = ("no_nvjitlink/libnvJitLink.so.12", "no_nvjitlink/libnvJitLink.so.13")


def library_path() -> Path:
    """Returns the folder with `libcuda.so.1`, which must stand first in LD_LIBRARY_PATH.

    Raises:
        MissingPartError: the package was not built.
    """
    return compiled_part("rgpu_client", "lib/libcuda.so.1").parent


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
    hidden = [str(path) for path in hiding(result, folder)]
    if hidden:
        preloaded = [p for p in re.split(r"[: ]+", environment.get("LD_PRELOAD", "")) if p]
        result["LD_PRELOAD"] = ":".join([*hidden, *(p for p in preloaded if p not in hidden)])
    return result


def hiding(environment: Mapping[str, str], folder: Path) -> list[Path]:
    """Returns the empty libraries that hide nvJitLink if RGPU_HIDE_NVJITLINK asks for them."""
    return [folder / name for name in _NO_NVJITLINK] if flag(environment, HIDE_NVJITLINK) else []


def rgpu_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the RGPU_* variables."""
    return {name: value for name, value in environment.items() if name.startswith(PREFIX)}


def leased_environment(environment: Mapping[str, str], leased: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` for a program that uses the lease of which `leased` has the variables.

    Other settings of rgpu in `environment` do not count.
    """
    others = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    return client_environment(others, rgpu_variables(leased), library_path())
