"""The emulated device: a CUDA driver ABI that executes PTX on the CPU."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"


def library_path() -> Path:
    """The compiled `librgpu_emu.so` of this installation.

    Raises:
        FileNotFoundError: when the package was not built, as in a source folder.
    """
    path = Path(__file__).resolve().parent / "lib" / "librgpu_emu.so"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: install the package (python -m pip install .) and use that"
        )
    return path
