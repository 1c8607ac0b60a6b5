"""The threads that are together at an `activemask`, on the device."""

from __future__ import annotations

import struct

from ptx.meeting import DATA, SCENES, THREADS, WORDS, expected

from emu.device import Device, on_device
from emu.kernels import U64


@on_device()
def test_the_mask_belongs_to_the_place_and_those_who_come_together(cuda: Device) -> None:
    cuda.open()
    given = cuda.alloc(THREADS * 4)
    cuda.write(given, struct.pack(f"<{THREADS}I", *DATA))
    out = cuda.alloc(THREADS * WORDS * 4)
    for name, scene in SCENES.items():
        module = cuda.out("cuModuleLoadData", scene.ptx().encode())
        cuda("cuMemsetD32_v2", out, 0, THREADS * WORDS)
        cuda.launch(cuda.function(module, "k"), [U64(given), U64(out)], block=THREADS)
        words = struct.unpack(f"<{THREADS * WORDS}I", cuda.read(out, THREADS * WORDS * 4))
        rows = [list(words[n : n + WORDS]) for n in range(0, len(words), WORDS)]
        assert rows == expected(scene), name
