"""Calls that are one row of the specification: both ends are generated."""

from __future__ import annotations

import pytest
from helpers import clients

HEAD = "from ctypes import byref, c_size_t, c_uint64\ncuda('cuInit', 0)\n"
GRAPH_MEMORY = {"used": 0, "used high": 1, "reserved": 2, "reserved high": 3}


def _said(server: str, source: str) -> str:
    code, output, errors = clients.run(server, HEAD + source)
    assert code == 0, errors
    return output.strip()


@pytest.mark.parametrize("attribute", GRAPH_MEMORY.values(), ids=list(GRAPH_MEMORY))
def test_no_graph_has_memory(server: str, attribute: int) -> None:
    source = f"""
value = c_uint64(7)
cuda("cuDeviceGetGraphMemAttribute", 0, {attribute}, byref(value))
print(value.value)
"""
    assert _said(server, source) == "0"


def test_a_high_water_mark_is_reset_to_0_and_to_nothing_else(server: str) -> None:
    source = """
for attribute, value in ((1, 0), (3, 0), (1, 5), (0, 0), (9, 0)):
    print(cuda.result("cuDeviceSetGraphMemAttribute", 0, attribute, byref(c_uint64(value))))
"""
    assert _said(server, source).split() == ["0", "0", "1", "1", "1"]


def test_memory_of_graphs_is_trimmed(server: str) -> None:
    source = 'print(cuda.result("cuDeviceGraphMemTrim", 0), cuda.result("cuDeviceGraphMemTrim", 5))'
    assert _said(server, source) == "0 101"


def test_the_width_of_a_linear_texture_agrees_with_the_attribute(server: str) -> None:
    source = """
from ctypes import c_int
width, attribute = c_size_t(7), c_int(7)
cuda("cuDeviceGetAttribute", byref(attribute), 69, 0)  # MAXIMUM_TEXTURE1D_LINEAR_WIDTH
cuda("cuDeviceGetTexture1DLinearMaxWidth", byref(width), 0x20, 4, 0)
wrong = cuda.result("cuDeviceGetTexture1DLinearMaxWidth", byref(width), 0x20, 3, 0)
print(width.value == attribute.value, wrong)
"""
    assert _said(server, source) == "True 1"


def test_programs_find_them_by_name(server: str) -> None:
    source = """
from ctypes import c_int, c_void_p
names = (b"cuDeviceGetGraphMemAttribute", b"cuDeviceSetGraphMemAttribute", b"cuDeviceGraphMemTrim",
         b"cuDeviceGetTexture1DLinearMaxWidth")
for name in names:
    place, status = c_void_p(), c_int()
    cuda("cuGetProcAddress_v2", name, byref(place), 13000, c_uint64(0), byref(status))
    assert place.value and status.value == 0
print("all")
"""
    assert _said(server, source) == "all"
