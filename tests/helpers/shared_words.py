"""A random program on memory that host and device use, and what it must find there.

The program's words are changed by the host in place, by kernels, by sets and by copies. A list has
what the words must be. Whatever the host reads in place must be that, and the device's words too.
"""

from __future__ import annotations

import ctypes
import random
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.driver import Driver

# add(p, n, value): every 32-bit word of p[0..n) grows by value.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p, .param .u64 n, .param .u64 value)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [n];
  ld.param.u32 %r5, [value];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd3, %r1, %r2; cvt.u64.u32 %rd4, %r3; add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd5, %r4, %r2;
LOOP:
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 bra DONE;
  shl.b64 %rd6, %rd3, 2;
  add.u64 %rd6, %rd1, %rd6;
  ld.global.u32 %r6, [%rd6];
  add.u32 %r6, %r6, %r5;
  st.global.u32 [%rd6], %r6;
  add.u64 %rd3, %rd3, %rd5;
  bra LOOP;
DONE:
  ret;
}
"""
WORD = 4


class SharedWords:
    """`count` words at `host` for the host and at `device` for the device."""

    def __init__(self, cuda: Driver, host: int, device: int, count: int, seed: int) -> None:
        self.cuda = cuda
        self.device = device
        self.words = (ctypes.c_uint32 * count).from_address(host)
        self.expected = [0] * count
        self.random = random.Random(seed)
        self.add = cuda.function(cuda.load(PTX), "add")
        self.streams = [self._stream(flags) for flags in (0, 1, 1)]
        self.event = c_void_p()
        cuda("cuEventCreate", byref(self.event), 2)
        self.scratch = cuda.alloc(count * WORD)

    def _stream(self, flags: int) -> c_void_p:
        stream = c_void_p()
        self.cuda("cuStreamCreate", byref(stream), flags)
        return stream

    def launch(self, first: int, count: int, value: int, stream: c_void_p) -> None:
        values = [c_uint64(self.device + first * WORD), c_uint64(count), c_uint64(value)]
        pointers = (c_void_p * 3)(*[ctypes.addressof(v) for v in values])
        function = c_void_p(self.add)
        self.cuda("cuLaunchKernel", function, 2, 1, 1, 64, 1, 1, 0, stream, pointers, None)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._work()
            for _ in range(self.random.randint(0, 4)):
                self._in_place()
        self.check(0, len(self.expected))

    def check(self, first: int, count: int) -> None:
        """Compares words that the host reads in place."""
        got = self.words[first : first + count]
        assert got == self.expected[first : first + count], (first, count)

    def _part(self, most: int) -> tuple[int, int]:
        count = self.random.randint(1, min(most, len(self.expected)))
        return self.random.randint(0, len(self.expected) - count), count

    def _in_place(self) -> None:
        first, count = self._part(5000)
        if self.random.random() < 0.5:
            self.check(first, count)
            return
        value = self.random.getrandbits(30)
        self.words[first : first + count] = [value] * count
        self.expected[first : first + count] = [value] * count

    def _work(self) -> None:
        """One command of the device, and a wait by which the host learns that it is complete."""
        stream = self.random.choice(self.streams)
        first, count = self._part(len(self.expected))
        value = self.random.randint(1, 1 << 20)
        part = slice(first, first + count)
        address = c_uint64(self.device + first * WORD)
        kind = self.random.randint(0, 3)
        if kind == 0:
            self.cuda("cuMemsetD32Async", address, c_uint(value), c_size_t(count), stream)
            self.expected[part] = [value] * count
        elif kind == 1:
            data = (ctypes.c_uint32 * count)(*[value] * count)
            self.cuda("cuMemcpyHtoDAsync_v2", address, data, c_size_t(count * WORD), stream)
            self.expected[part] = [value] * count
        elif kind == 2:
            target = c_uint64(self.scratch)
            size = c_size_t(count * WORD)
            self.cuda("cuMemcpyDtoDAsync_v2", target, address, size, stream)
            self._wait(stream)
            copy = (ctypes.c_uint32 * count)()
            self.cuda("cuMemcpyDtoH_v2", copy, target, size)
            assert copy[:] == self.expected[part], "the device's words"
            return
        else:
            self.launch(first, count, value, stream)
            self.expected[part] = [(word + value) & 0xFFFFFFFF for word in self.expected[part]]
        self._wait(stream)

    def _wait(self, stream: c_void_p) -> None:
        kind = self.random.randint(0, 3)
        if kind == 0:
            self.cuda("cuStreamSynchronize", stream)
        elif kind == 1:
            self.cuda("cuCtxSynchronize")
        elif kind == 2:
            self.cuda("cuEventRecord", self.event, stream)
            self.cuda("cuEventSynchronize", self.event)
        else:
            while self.cuda.result("cuStreamQuery", stream) != 0:
                pass
