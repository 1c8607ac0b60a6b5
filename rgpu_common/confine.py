"""Gives up rights of this process. The work is done by librgpu_native.so."""

from __future__ import annotations

import ctypes
from typing import Final

from rgpu_common.parts import native_library

_REPORT_BYTES: Final = 4096


def confine_tunnel() -> str:
    """Takes rights from the gateway of `grpc:`: the user root, all capabilities, and all system
    calls that are not on a list. Call it while the process has only one thread.

    Returns the measures that the machine did not allow, "" for none.

    Raises:
        MissingPartError: the library is not installed.
    """
    library = ctypes.CDLL(str(native_library()))
    missing = ctypes.create_string_buffer(_REPORT_BYTES)
    library.rgpu_confine_tunnel(missing, ctypes.c_size_t(_REPORT_BYTES))
    return missing.value.decode()
