"""The files and folders that a configuration names: whether a server can use them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.errors import ConfigError
from rgpu_server.default_devices import check_compiler
from rgpu_server.identity.access_tokens import existing_access_tokens
from rgpu_server.web.opening import check_parts

if TYPE_CHECKING:
    from rgpu_server.config import ServerConfig


def check_files(config: ServerConfig) -> None:
    """Checks all that `config` names, for `rgpu serve --check-config`. Leaves nothing behind.

    This does not look at the machine: at GPUs that are named, at ports, at isolation.

    Raises:
        ConfigError: a file or a folder cannot be used.
        MissingPartError: a part that the configuration needs is not installed.
    """
    config.tls.check()
    named = (
        ("emulated.cache", config.emulated.cache),
        ("record.folder", config.observing.record),
        ("server.state", config.state),
    )
    for key, folder in named:
        if folder:
            _try_folder(key, Path(folder).absolute())
    if config.identity.tokens:
        existing_access_tokens(Path(config.identity.tokens))
    config.identity.claim_access()
    if config.cluster.join and config.cluster.token_file:
        _try_file("cluster.token", Path(config.cluster.token_file))
    if config.web.listen is not None:
        check_parts()
    if any(device.kind == "emulated" for device in config.devices):
        check_compiler()


def make_folder(key: str, folder: Path) -> None:
    """Makes the folder that `key` names. ConfigError if it cannot be made and written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_into(folder)
    except OSError as error:
        raise _refused(key, folder, error) from None


def _try_folder(key: str, folder: Path) -> None:
    """Raises ConfigError if the folder, or the nearest one above that is there, takes no files."""
    nearest = folder
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    try:
        _write_into(nearest)
    except OSError as error:
        raise _refused(key, folder, error) from None


def _write_into(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _refused(key: str, folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{key}: {str(folder)!r} is not a folder that can be written to ({error.strerror})"
    )


def _try_file(key: str, file: Path) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}: {str(file)!r} cannot be read ({error.strerror})") from None
