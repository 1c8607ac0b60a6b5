"""A kernel with an instruction that the emulated device lacks, from the program's side."""

from __future__ import annotations

from pathlib import Path

from helpers import clients
from helpers.server import Server

PTX = """.version 7.8
.target sm_80
.address_size 64
.visible .entry good(.param .u64 p)
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry bad(.param .u64 p)
{
  .reg .b32 %r<2>;
  mapa.u32 %r1, %r1, 0;
  ret;
}
"""
PROGRAM = """
import ctypes
cuda.open()
module = cuda.load(open({path!r}, "rb").read())
address = cuda.alloc(4096)
cuda.launch(cuda.function(module, "good"), 1, 1, address)
cuda.synchronize()
print(cuda.download(address, 4)[0])
for _ in range(3):
    try:
        cuda.function(module, "bad")
    except CudaError as error:
        print(error.result)
count, handles = ctypes.c_uint(), (ctypes.c_void_p * 2)()
print(cuda.result("cuModuleGetFunctionCount", ctypes.byref(count), ctypes.c_void_p(module)), count.value)
print(cuda.result("cuModuleEnumerateFunctions", handles, 2, ctypes.c_void_p(module)))
print([handle is not None for handle in handles])
"""


def test_the_others_run_and_the_sentence_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "part.ptx"
    path.write_text(PTX)
    with Server() as server:
        code, output, errors = clients.run(server.tcp, PROGRAM.format(path=str(path)))
        assert code == 0, errors
        assert output.split("\n") == ["7", "801", "801", "801", "0 2", "801", "[True, False]", ""]
        assert errors == (
            "rgpu: line 15: instruction 'mapa.u32' needs clusters of blocks, so sm_90, and the "
            "emulated device is sm_80, so the kernel 'bad' is refused\n"
        )
