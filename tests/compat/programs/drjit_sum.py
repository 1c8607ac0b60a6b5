"""Dr.Jit: a fused kernel and a reduction."""

import drjit as dr
import numpy as np
from drjit.cuda import Float


def main() -> None:
    x = dr.arange(Float, 100_000)
    total = dr.sum(dr.sin(x * 0.001) * dr.exp(-x * 1e-5))
    reference = np.arange(100_000, dtype=np.float32)
    expected = (np.sin(reference * 0.001) * np.exp(-reference * 1e-5)).sum()
    np.testing.assert_allclose(total[0], expected, rtol=1e-4)
    print("ok")


if __name__ == "__main__":
    main()
