"""The environment of a program whose arrays are on the GPU node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent


def with_advice(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which a Python program that ends because it lacks CuPy or PyTorch
    says what the remedy is. Any `sitecustomize` in the user's own PYTHONPATH counts before it.
    """
    own, given = str(_HERE / "advice"), environment.get("PYTHONPATH", "")
    if own in given.split(":"):
        return dict(environment)
    return {**environment, "PYTHONPATH": f"{given}:{own}" if given else own}


def with_arrays(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which Python finds rgpu's `cupy` and `cupyx` before any other."""
    return _first(environment, _HERE / "stand_in")


def with_torch(environment: Mapping[str, str], library: Path) -> dict[str, str]:
    """Returns an environment in which PyTorch's `cuda` is the GPU node.

    library: the folder of rgpu's driver library. PyTorch's own CUDA runtime, which many of its
    builds have, must find no driver: it would ask rgpu's for private tables of NVIDIA's.
    """
    paths = [p for p in environment.get("LD_LIBRARY_PATH", "").split(":") if p]
    others = ":".join(p for p in paths if p != str(library))
    return _first({**environment, "LD_LIBRARY_PATH": others}, _HERE / "stand_in_torch")


def _first(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Puts a folder first in PYTHONPATH."""
    own = str(folder)
    others = [p for p in environment.get("PYTHONPATH", "").split(":") if p and p != own]
    return {**environment, "PYTHONPATH": ":".join([own, *others])}
