"""saxpy with numba-cuda: 2 x + y on a million elements."""

import numpy as np
from numba import cuda


@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def main() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(1_000_003).astype(np.float32)
    y = rng.standard_normal(x.size).astype(np.float32)
    out = cuda.device_array_like(x)
    saxpy[(x.size + 255) // 256, 256](np.float32(2.5), cuda.to_device(x), cuda.to_device(y), out)
    np.testing.assert_allclose(out.copy_to_host(), np.float32(2.5) * x + y, rtol=1e-6, atol=1e-6)
    print("ok")


if __name__ == "__main__":
    main()
