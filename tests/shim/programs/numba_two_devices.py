"""A program of numba-cuda that uses two devices: cuda.gpus and cuda.select_device."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import cuda


@cuda.jit
def add(array, value):
    i = cuda.grid(1)
    if i < array.size:
        array[i] += value


def on_device(number) -> list[int]:
    cuda.select_device(number)
    assert cuda.get_current_device().id == number
    array = cuda.to_device(np.zeros(10, dtype=np.int64))
    stream = cuda.stream()
    add[1, 32, stream](array, 5)
    stream.synchronize()
    return array.copy_to_host().tolist()


def main() -> None:
    assert len(cuda.gpus) == 2
    arrays = []
    for number, gpu in enumerate(cuda.gpus):
        with gpu:
            assert cuda.get_current_device().id == number
            arrays.append(cuda.to_device(np.arange(10_000, dtype=np.int64)))
            add[40, 256](arrays[number], 100 * (number + 1))
    for number, gpu in enumerate(cuda.gpus):
        with gpu:
            expected = np.arange(10_000) + 100 * (number + 1)
            np.testing.assert_array_equal(arrays[number].copy_to_host(), expected)
    # A thread has no current device until it selects one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(on_device, 1).result() == [5] * 10
    print("ok")


if __name__ == "__main__":
    main()
