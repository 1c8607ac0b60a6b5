"""Calls about what the device does not have at first: memory of graphs."""

from __future__ import annotations

import ctypes

from emu.device import Device, expect, on_device

INVALID_VALUE, INVALID_DEVICE = 1, 101


@on_device()
def test_a_process_begins_without_graph_memory(cuda: Device) -> None:
    cuda.open()
    value = ctypes.c_uint64(7)
    for attribute in range(4):
        cuda("cuDeviceGetGraphMemAttribute", 0, attribute, ctypes.byref(value))
        assert value.value == 0
    for high in (1, 3):
        cuda("cuDeviceSetGraphMemAttribute", 0, high, ctypes.byref(value))
    cuda("cuDeviceGraphMemTrim", 0)
    for call in ("cuDeviceGetGraphMemAttribute", "cuDeviceSetGraphMemAttribute"):
        expect(INVALID_VALUE, lambda call=call: cuda(call, 0, 4, ctypes.byref(value)))
        expect(INVALID_VALUE, lambda call=call: cuda(call, 0, 1, None))
        expect(INVALID_DEVICE, lambda call=call: cuda(call, 1, 1, ctypes.byref(value)))
    expect(INVALID_DEVICE, lambda: cuda("cuDeviceGraphMemTrim", 1))
    expect(INVALID_VALUE, lambda: cuda("cuDeviceSetGraphMemAttribute", 0, 0, ctypes.byref(value)))
