"""Triton's matrix products in f16 and tf32, compiled ahead to PTX, launched by cuda.core."""

from pathlib import Path

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, launch

FOLDER = Path(__file__).parents[2] / "ptx" / "triton"
M, N, K = 96, 64, 128


def product(device, name, kind, shared):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shape).astype(kind) for shape in ((M, K), (K, N)))
    out = np.zeros((M, N), np.float32)
    stream = device.default_stream
    arrays = [a, b, out]
    buffers = [device.memory_resource.allocate(x.nbytes, stream=stream) for x in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        copy_in(buffer, array)
    code = ObjectCode.from_ptx((FOLDER / f"{name}.ptx").read_bytes())
    config = LaunchConfig(grid=(M // 32, N // 32), block=128, shmem_size=shared)
    arguments = [*(int(x.handle) for x in buffers), *map(np.int32, (M, N, K)), 0, 0]
    launch(stream, config, code.get_kernel("matmul"), *arguments)
    stream.sync()
    copy_out(out, buffers[2])
    for buffer in buffers:
        buffer.close(stream)
    wide = [x.astype(np.float64) for x in (a, b)]
    limit = 2.0**-9 if kind is np.float32 else 2.0**-22  # tf32 reads 10 bits of the fraction
    assert np.all(np.abs(out - wide[0] @ wide[1]) <= limit * (abs(wide[0]) @ abs(wide[1])))


def copy_in(buffer, array):
    (status,) = driver.cuMemcpyHtoD(int(buffer.handle), array.ctypes.data, array.nbytes)
    assert int(status) == 0


def copy_out(array, buffer):
    (status,) = driver.cuMemcpyDtoH(array.ctypes.data, int(buffer.handle), array.nbytes)
    assert int(status) == 0


def main() -> None:
    device = Device()
    device.set_current()
    product(device, "matmul_f16", np.float16, 4096)
    product(device, "matmul_tf32", np.float32, 8192)
    print("ok")


if __name__ == "__main__":
    main()
