# ruff: noqa: ANN001, ANN003, ANN201
"""An ordinary numba-cuda program: it holds memory, and computes until it is told to stop.

It prints a JSON object a line: what it did, and whether NumPy agrees.  RELEASE names the file whose
appearance ends it, MEMORY_MIB what it holds, PAUSE_SECONDS how long it waits between rounds, as a
program does whose users think: by default not at all.
"""

import json
import os
import time

import numpy as np
from numba import cuda

MIB = 1 << 20
NUMBERS = 100_000
STEPS = 200
DEADLINE_SECONDS = 120.0


@cuda.jit
def decay(a, x, y, out):
    """out = x * a^STEPS + y * (1 + a + ... + a^(STEPS - 1)), a step at a time."""
    i = cuda.grid(1)
    if i < x.size:
        value = x[i]
        for _ in range(STEPS):
            value = a * value + y[i]
        out[i] = value


def say(**facts):
    """One line for whoever watches."""
    print(json.dumps(facts), flush=True)


def main():
    """Holds, computes, checks, and gives everything back."""
    held = cuda.device_array(int(os.environ["MEMORY_MIB"]) * MIB, np.uint8)
    name = cuda.get_current_device().name
    free, total = cuda.current_context().get_memory_info()
    say(step="found", device=name.decode() if isinstance(name, bytes) else str(name),
        total_mib=total // MIB, free_mib=free // MIB)  # fmt: skip
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(NUMBERS).astype(np.float32) for _ in range(2))
    device_x, device_y = cuda.to_device(x), cuda.to_device(y)
    out = cuda.device_array_like(device_x)
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = float(os.environ.get("PAUSE_SECONDS", "0"))
    rounds, right = 0, True
    while not os.path.exists(os.environ["RELEASE"]) and time.monotonic() < deadline:
        a = np.float32(rounds % 7 / 10)
        decay[(NUMBERS + 255) // 256, 256](a, device_x, device_y, out)
        # a is below 0.7: what is left of x after 200 steps is nothing.
        right = right and bool(np.allclose(out.copy_to_host(), y / (1 - a), atol=1e-3))
        rounds += 1
        time.sleep(pause)
        if rounds == 3:
            say(step="holding", right=right)
    del held
    say(step="ending", right=right, rounds=rounds)


if __name__ == "__main__":
    main()
