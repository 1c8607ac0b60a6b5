"""Kernels whose PTX fixes the size of their block, over every transport."""

from __future__ import annotations

from helpers import clients


def test_a_block_that_reqntid_does_not_name_is_refused_by_the_call(server: str) -> None:
    source = """
from ctypes import byref, c_void_p
cuda.open()
PTX = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry fixed() .reqntid 8, 4 { ret; }
'''
module, fixed, library, kernel = (c_void_p() for _ in range(4))
cuda("cuModuleLoadData", byref(module), PTX)
cuda("cuModuleGetFunction", byref(fixed), module, b"fixed")
cuda("cuLibraryLoadData", byref(library), PTX, None, None, 0, None, None, 0)
cuda("cuLibraryGetKernel", byref(kernel), library, b"fixed")
for function in (fixed, kernel):
    for block in ((8, 4, 1), (32, 1, 1), (8, 4, 2)):
        print(cuda.result("cuLaunchKernel", function, 1, 1, 1, *block, 0, None, None, None),
              cuda.result("cuLaunchCooperativeKernel", function, 1, 1, 1, *block, 0, None, None))
print(cuda.result("cuCtxSynchronize"))
"""
    code, output, errors = clients.run(server, source)
    assert code == 0, errors
    assert output.splitlines() == 2 * ["0 0", "1 1", "1 1"] + ["0"]
