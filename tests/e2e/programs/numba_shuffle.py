"""Warp reduction with shuffles, a ballot and a vote."""

import numpy as np
from numba import cuda


@cuda.jit
def warp_sums(x, sums, ballots, alls):
    i = cuda.grid(1)
    value = x[i]
    ballots[i // 32] = cuda.ballot_sync(0xFFFFFFFF, value > 0)
    alls[i // 32] = cuda.all_sync(0xFFFFFFFF, value > -100)
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if cuda.laneid == 0:
        sums[i // 32] = value


def main() -> None:
    x = np.random.default_rng(5).integers(-50, 50, 4096).astype(np.int32)
    sums = cuda.device_array(128, np.int32)
    ballots = cuda.device_array(128, np.uint32)
    alls = cuda.device_array(128, np.int32)
    warp_sums[16, 256](cuda.to_device(x), sums, ballots, alls)
    rows = x.reshape(128, 32)
    np.testing.assert_array_equal(sums.copy_to_host(), rows.sum(axis=1))
    expected = ((rows > 0) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    np.testing.assert_array_equal(ballots.copy_to_host(), expected)
    assert (alls.copy_to_host() == 1).all()
    print("ok")


if __name__ == "__main__":
    main()
