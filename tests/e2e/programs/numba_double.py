"""Double-precision mathematics, a local array and a device function."""

import math

import numpy as np
from numba import cuda, float64


@cuda.jit(device=True)
def horner(coefficients, x):
    total = 0.0
    for i in range(4):
        total = total * x + coefficients[i]
    return total


@cuda.jit
def mathematics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        coefficients = cuda.local.array(4, float64)
        for k in range(4):
            coefficients[k] = k + 1.0
        v = x[i]
        out[0, i] = math.sin(v) * math.cos(v)
        out[1, i] = math.exp(-v * v) + math.log1p(v)
        out[2, i] = math.sqrt(v) / (1.0 + math.atan2(v, 2.0))
        out[3, i] = math.pow(v, 1.7) + math.tanh(v)
        out[4, i] = horner(coefficients, v)
        out[5, i] = math.erf(v) + math.lgamma(v + 1.0)


def main() -> None:
    x = np.linspace(0.01, 6.0, 3001)
    out = cuda.device_array((6, x.size), np.float64)
    mathematics[(x.size + 63) // 64, 64](cuda.to_device(x), out)
    erf = np.array([math.erf(v) for v in x])
    lgamma = np.array([math.lgamma(v + 1.0) for v in x])
    expected = np.stack(
        [
            np.sin(x) * np.cos(x),
            np.exp(-x * x) + np.log1p(x),
            np.sqrt(x) / (1.0 + np.arctan2(x, 2.0)),
            x**1.7 + np.tanh(x),
            np.polyval([1.0, 2.0, 3.0, 4.0], x),
            erf + lgamma,
        ]
    )
    np.testing.assert_allclose(out.copy_to_host(), expected, rtol=1e-12, atol=1e-13)
    print("ok")


if __name__ == "__main__":
    main()
