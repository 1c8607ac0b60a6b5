"""Sharing between processes by ctypes, for client processes of tests."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.driver import Driver

INTERPROCESS = 2 | 4  # CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS


class Handle(ctypes.Structure):
    """CUipcMemHandle and CUipcEventHandle."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class Ipc:
    """The calls; a failed call raises the driver's error. Handles are written as hex."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def export(self, address: int) -> str:
        handle = Handle()
        self.driver("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return bytes(handle).hex()

    def open(self, token: str, flags: int = 1) -> int:
        address = ctypes.c_uint64()
        handle = Handle.from_buffer_copy(bytes.fromhex(token))
        self.driver("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, flags)
        return address.value

    def close(self, address: int) -> None:
        self.driver("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def event(self, flags: int = INTERPROCESS) -> int:
        event = ctypes.c_void_p()
        self.driver("cuEventCreate", ctypes.byref(event), flags)
        return event.value or 0

    def export_event(self, event: int) -> str:
        handle = Handle()
        self.driver("cuIpcGetEventHandle", ctypes.byref(handle), ctypes.c_void_p(event))
        return bytes(handle).hex()

    def open_event(self, token: str) -> int:
        event = ctypes.c_void_p()
        handle = Handle.from_buffer_copy(bytes.fromhex(token))
        self.driver("cuIpcOpenEventHandle", ctypes.byref(event), handle)
        return event.value or 0


def say(what: object) -> None:
    """Tells the test."""
    print(what, flush=True)


def hear() -> str:
    """Waits for a line of the test; ends the process if the test closes its input."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return line.strip()
