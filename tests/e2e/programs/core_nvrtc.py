"""cuda.core: CUDA C++ compiled to PTX by NVRTC, launched with scalar and pointer arguments."""

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void scale_add(const float* x, const float* y, float* out, float a, unsigned long long n) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += (unsigned long long)gridDim.x * blockDim.x)
        out[i] = a * x[i] + y[i];
}
template <typename T> __global__ void square(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}
"""


def main() -> None:
    device = Device()
    device.set_current()
    stream = device.create_stream()
    program = Program(
        SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch="compute_80")
    )
    module = program.compile("ptx", name_expressions=("square<double>",))
    kernel = module.get_kernel("scale_add")
    square = module.get_kernel("square<double>")
    n = 100_001
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    buffers = [device.allocate(n * 4, stream=stream) for _ in range(3)]
    host = device_host(n * 4)
    for buffer, values in zip(buffers, (x, y), strict=False):
        view(host)[: n * 4] = values.tobytes()
        buffer.copy_from(host, stream=stream)
        stream.sync()
    config = LaunchConfig(grid=64, block=128)
    launch(stream, config, kernel, *buffers, np.float32(1.5), np.uint64(n))
    host.copy_from(buffers[2], stream=stream)
    stream.sync()
    got = np.frombuffer(view(host), np.float32, n)
    np.testing.assert_allclose(got, np.float32(1.5) * x + y, rtol=1e-6, atol=1e-6)
    doubles = device.allocate(800, stream=stream)
    host2 = device_host(800)
    view(host2)[:] = np.arange(100, dtype=np.float64).tobytes()
    doubles.copy_from(host2, stream=stream)
    launch(stream, LaunchConfig(grid=1, block=128), square, doubles, np.int32(100))
    doubles.copy_to(host2, stream=stream)
    stream.sync()
    np.testing.assert_array_equal(np.frombuffer(view(host2), np.float64), np.arange(100.0) ** 2)
    print("ok")


def device_host(size: int):
    from cuda.core import LegacyPinnedMemoryResource

    return LegacyPinnedMemoryResource().allocate(size)


def view(buffer) -> memoryview:
    import ctypes

    return memoryview((ctypes.c_char * buffer.size).from_address(int(buffer.handle))).cast("B")


if __name__ == "__main__":
    main()
