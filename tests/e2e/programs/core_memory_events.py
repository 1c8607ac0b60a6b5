"""cuda.core: pinned and pooled memory, two streams ordered by an event, elapsed time."""

import ctypes

import numpy as np
from cuda.core import (
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

SOURCE = r"""
extern "C" __global__ void add_one(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
"""
N = 4096


def main() -> None:
    device = Device()
    device.set_current()
    first, second = device.create_stream(), device.create_stream()
    module = Program(SOURCE, code_type="c++", options=ProgramOptions(arch="compute_80")).compile(
        "ptx"
    )
    add_one = module.get_kernel("add_one")
    pinned = LegacyPinnedMemoryResource().allocate(N * 4)
    host = np.frombuffer((ctypes.c_char * (N * 4)).from_address(int(pinned.handle)), np.int32)
    host[:] = np.arange(N)
    buffer = device.allocate(N * 4, stream=first)
    timing = EventOptions(timing_enabled=True)
    start = first.record(options=timing)
    buffer.copy_from(pinned, stream=first)
    config = LaunchConfig(grid=N // 256, block=256)
    for _ in range(100):
        launch(first, config, add_one, buffer, np.int32(N))
    end = first.record(options=timing)
    second.wait(end)
    launch(second, config, add_one, buffer, np.int32(N))
    buffer.copy_to(pinned, stream=second)
    second.sync()
    np.testing.assert_array_equal(host, np.arange(N) + 101)
    end.sync()
    assert end - start > 0
    again = [device.allocate(1 << 20, stream=first) for _ in range(8)]
    for one in again:
        one.close(first)
    first.sync()
    buffer.close(second)
    second.sync()
    print("ok")


if __name__ == "__main__":
    main()
