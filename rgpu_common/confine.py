"""Gives up rights of this process, by the C functions of librgpu_native.so."""

from __future__ import annotations

import ctypes
from typing import Final

from rgpu_common.parts import native_library

_REPORT_BYTES: Final = 4096


def confine_tunnel() -> str:
    """Leaves the gateway of `grpc:` a user that is not root, no capabilities, and of all system
    calls only those on a list.

    Returns what the machine did not allow ("" = nothing).  To be called while there is one thread.

    Raises:
        MissingPartError: the library is not installed.
    """
    library = ctypes.CDLL(str(native_library()))
    missing = ctypes.create_string_buffer(_REPORT_BYTES)
    library.rgpu_confine_tunnel(missing, ctypes.c_size_t(_REPORT_BYTES))
    return missing.value.decode()
