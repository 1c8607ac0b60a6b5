"""Programs that keep a device busy for a set part of the time, without a CPU: kernels that sleep."""

from __future__ import annotations

import subprocess

from helpers import clients

PROGRAM = """
import time
PTX = b'''
.version 8.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 ns)
{
    .reg .pred %p<2>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [ns];
    mov.u64 %rd2, %globaltimer;
    add.u64 %rd3, %rd2, %rd1;
again:
    nanosleep.u32 100000;
    mov.u64 %rd4, %globaltimer;
    setp.lt.u64 %p1, %rd4, %rd3;
    @%p1 bra again;
    ret;
}
\\0'''
cuda.open()
hold = cuda.function(cuda.load(PTX), "hold")
held = cuda.alloc(HELD_BYTES)
cuda.launch(hold, 1, 1, 1000)
cuda.synchronize()
print("ready", flush=True)
wait_for_line()
while True:
    for _ in range(8):
        cuda.launch(hold, 1, 1, KERNEL_NS)
    cuda.upload(held, bytes(4096))
    cuda.synchronize()
    time.sleep(IDLE_SECONDS)
"""


class Load:
    """A running program in a lease; `go` lets it begin.  kernel_ms: of one kernel; idle_seconds:
    between rounds of eight.
    """

    def __init__(
        self,
        server: str,
        kernel_ms: float = 3,
        idle_seconds: float = 0,
        held_bytes: int = 64 << 20,
        **options: str,
    ) -> None:
        source = (
            f"KERNEL_NS, IDLE_SECONDS, HELD_BYTES = "
            f"{round(kernel_ms * 1e6)}, {idle_seconds}, {held_bytes}\n{PROGRAM}"
        )
        self.process: subprocess.Popen[str] = clients.start(server, source, **options)

    def go(self) -> None:
        """Lets it begin, once it is ready."""
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", line + self.close()
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def close(self) -> str:
        """Kills the program; returns its error output."""
        self.process.kill()
        return self.process.communicate()[1]
