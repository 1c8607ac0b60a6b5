"""Every command with arguments that an attacker would try: the worker answers and ends in order."""

from __future__ import annotations

import random
import select
import sys

import pytest
from worker.client import SECONDS, Client, worker

from cudaspec.load import load
from cudaspec.rows import Field
from rgpu_common.wire.codec import Value, command_row, encode_command
from rgpu_common.wire.frame import MAX_HEAD_BYTES

COMMANDS = 1500
WORDS = (0, 1, 2, 3, 4, 7, 8, 255, 512, 4096, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
         1 << 62, 1 << 63, (1 << 64) - 4096, (1 << 64) - 512, (1 << 64) - 1)  # fmt: skip
BITS = {"u8": 8, "u16": 16, "u32": 32, "i32": 32}
# These commands end objects that the others need, or wait for ever, so they are chosen rarely.
RARE = ("Destroy", "Free", "Unload", "Wait", "Trim")
NEVER = ("rgpuPrimaryRetain", "rgpuContextDestroy")
PTX = (
    b".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .b8 data[64];\n"
    b".visible .entry k(.param .u64 p) { .reg .b64 %r<2>; ld.param.u64 %r1, [p];"
    b" st.global.u64 [%r1], %r1; ret; }\0"
)


class Fuzzer:
    """Draws commands from the specification."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.known = [client.alloc(1 << 20), client.alloc(4096), client.context]
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuEventCreate", event=21, flags=0)
        client.post("rgpuImagePut", image=22, offset=0, total=len(PTX), bulk=PTX)
        client.call("rgpuModuleLoad", module=23, image=22, options=b"", info_log_bytes=0,
                    error_log_bytes=0)  # fmt: skip
        client.call("rgpuModuleGetFunction", module=23, name=b"k", function=24)
        client.result("rgpuPoolCreate", pool=25, device=0, max_bytes=1 << 20)
        self.known += [1, 2, 20, 21, 22, 23, 24, 25, 26] * 2

    def value(self, field: Field) -> Value:
        if field.kind == "bytes":
            size = self.random.choice((0, 1, 3, 8, 12, 40, 100, 4096))
            return self.random.choice((bytes(size), self.random.randbytes(size), b"data"[:size]))
        if field.kind in ("f32", "f64"):
            return 1.0
        word = self.random.choice((*WORDS, *self.known * 2, self.random.getrandbits(64)))
        if self.random.random() < 0.3:
            word = self.random.choice(self.known) + self.random.choice((0, 1, -1, 4096, 1 << 20))
        bits = BITS.get(field.kind, 64)
        word &= (1 << bits) - 1
        return word - (1 << bits) if field.kind[0] == "i" and bits == 32 and word >> 31 else word

    def send(self, name: str) -> None:
        row = command_row(name)
        values = {field.name: self.value(field) for field in row.request}
        bulk = b""
        if row.row.bulk == "request":
            bulk = self.random.randbytes(self.random.choice((0, 1, 4, 100, 4096, 65536)))
            if {"width", "dst"} <= values.keys() and self.random.random() < 0.5:
                values.update(width=len(bulk), height=1, dst=self.known[0])
        assert sum(len(v) for v in values.values() if isinstance(v, bytes)) < MAX_HEAD_BYTES
        self.client.seq += 1
        thread = self.random.choice((1, 1, 2, 0xFFFFFFFF))
        context = self.random.choice((*[self.client.context] * 8, 0, 99))
        self.client.send(
            encode_command(
                name, values, seq=self.client.seq, thread=thread, context=context, bulk=bulk
            )
        )
        while select.select([self.client.socket], [], [], 0)[0]:
            self.client.take(self.client.frame())


@pytest.mark.parametrize("seed", range(4))
def test_no_command_crashes_a_worker(seed: int) -> None:
    names = [name for name in load().commands if name not in NEVER]
    compiler = f"{sys.executable} -m rgpu_emu.compiler"
    with worker(RGPU_EMU_LAUNCH_TIMEOUT="2", RGPU_EMU_COMPILER=compiler) as client:
        client.start()
        fuzzer = Fuzzer(client, seed)
        for _ in range(COMMANDS):
            name = fuzzer.random.choice(names)
            if not any(part in name for part in RARE) or fuzzer.random.random() < 0.05:
                fuzzer.send(name)
        assert client.result("rgpuPing", echo=1).status in (0, 700, 719, 702)
        client.bye()
        assert client.process.wait(SECONDS) == 0
