"""Dr.Jit: arrays to NumPy and back, which takes host functions."""

import drjit as dr
import numpy as np
from drjit.cuda import Float


def main() -> None:
    x = dr.arange(Float, 100_000)
    found = np.array(dr.sin(x * 0.001) * dr.exp(-x * 1e-5))
    steps = np.arange(100_000, dtype=np.float32)
    expected = np.sin(steps * np.float32(0.001)) * np.exp(-steps * np.float32(1e-5))
    np.testing.assert_allclose(found, expected, atol=1e-6)

    numbers = np.linspace(0, 1, 1000, dtype=np.float32)
    total = Float(1.0)
    for _ in range(20):
        total = Float(np.array(total * 0.5 + dr.sum(Float(numbers))))
    np.testing.assert_allclose(np.array(total), 1000.0, rtol=1e-4)
    print("ok")


if __name__ == "__main__":
    main()
