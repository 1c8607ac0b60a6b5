# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, PERF203
"""An ordinary numba-cuda program that allocates memory until it is refused, and then computes.

It prints one JSON object on each line: the step, whether its result is right, and the time it took.
"""

import json
import time

import numpy as np
from numba import cuda

BLOCK_BYTES = 16 << 20


@cuda.jit
def scale(values, factor):
    """Multiplies every element in place."""
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


def report(step, right, started):
    """Prints one result."""
    seconds = time.perf_counter() - started
    print(json.dumps({"step": step, "right": bool(right), "seconds": seconds}), flush=True)


def fill():
    """Allocates blocks until the driver refuses. Returns the blocks and the text of the refusal."""
    blocks = []
    while len(blocks) < 10_000:
        try:
            blocks.append(cuda.device_array(BLOCK_BYTES, np.uint8))
        except Exception as error:  # numba-cuda's class for this error differs between releases
            return blocks, str(error)
    return blocks, "nothing was refused"


def main():
    """Runs everything once."""
    started = time.perf_counter()
    total = cuda.current_context().get_memory_info()[1]
    blocks, refusal = fill()
    fitting = total // BLOCK_BYTES
    right = "OUT_OF_MEMORY" in refusal and fitting - 2 <= len(blocks) <= fitting
    report(
        f"took {len(blocks)} blocks of 16 MiB of {total >> 20} MiB, then: out of memory",
        right,
        started,
    )

    del blocks
    cuda.current_context().deallocations.clear()
    started = time.perf_counter()
    values = np.arange(100_000, dtype=np.float32)
    scaled = cuda.to_device(values)
    scale[(values.size + 127) // 128, 128](scaled, 3.0)
    report("freed it and computed on", np.array_equal(scaled.copy_to_host(), values * 3), started)


if __name__ == "__main__":
    main()
