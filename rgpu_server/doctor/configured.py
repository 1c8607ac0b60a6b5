"""The configuration that the checks of a node look at."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from rgpu_server.config_reader import load_config
from rgpu_server.default_devices import look_for_devices, look_for_gpus

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from rgpu_server.config import ServerConfig


def configuration(arguments: argparse.Namespace) -> ServerConfig:
    """Returns what `rgpu serve --config FILE` would serve.

    Raises:
        UsageError: the file, or a value in it, is not valid.
        DeviceError: the file names no device, and the GPUs of this machine cannot be used.
        MissingPartError: what the emulated device needs is not installed.
    """
    return _load(arguments.config)


@functools.lru_cache(maxsize=1)
def _load(path: Path | None) -> ServerConfig:
    return load_config(
        path, {}, lambda: look_for_devices().devices, lambda: look_for_gpus().devices
    )
