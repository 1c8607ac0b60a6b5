"""tinygrad on its CUDA device: a matrix product, an activation and a reduction."""

import os

os.environ["DEV"] = "CUDA"
os.environ["CUDA"] = "1"

import numpy as np
from tinygrad import Device, Tensor


def main() -> None:
    assert Device.DEFAULT == "CUDA"
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    got = (Tensor(a) @ Tensor(b)).relu().sum().item()
    np.testing.assert_allclose(got, np.maximum(a @ b, 0).sum(), rtol=1e-4)
    print("ok")


if __name__ == "__main__":
    main()
