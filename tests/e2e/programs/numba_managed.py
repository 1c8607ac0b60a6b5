"""Memory that host and device use in place: managed, mapped and registered arrays of numba."""

import warnings

import numpy as np
from numba import cuda

warnings.simplefilter("ignore")


@cuda.jit
def step(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = values[i] * factor + i


def rounds(array, synchronize, stream):
    """The host changes the array in place between launches; NumPy does the same beside it."""
    expected = np.zeros(array.size)
    array[:] = 0
    for turn in range(1, 6):
        array[turn::7] += turn
        expected[turn::7] += turn
        step[(array.size + 255) // 256, 256, stream](array, turn)
        expected = expected * turn + np.arange(array.size)
        synchronize()
        np.testing.assert_array_equal(array[:100], expected[:100])
        array[array.size // 2] = -1
        expected[array.size // 2] = -1
    np.testing.assert_array_equal(array, expected)


size = 100_003
rounds(cuda.managed_array(size, np.float64), cuda.synchronize, 0)
rounds(cuda.managed_array(size, np.float64, attach_global=False), cuda.synchronize, 0)
stream = cuda.stream()
rounds(cuda.mapped_array(size, np.float64, stream=stream), stream.synchronize, stream)
rounds(cuda.mapped_array(size, np.float64, wc=True, portable=True), cuda.synchronize, 0)

# A kernel of arrays that are pinned while it runs.
plain = np.arange(1000, dtype=np.float64)
with cuda.pinned(plain):
    device = cuda.to_device(plain)
    step[4, 256](device, 2)
    device.copy_to_host(plain)
np.testing.assert_array_equal(plain, np.arange(1000) * 3)
print("ok")
