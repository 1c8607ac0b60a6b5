"""Prices two options by Monte Carlo, with numba-cuda, and compares them with their closed forms.

    rgpu run --memory 512MiB -- python -W ignore examples/pricing/price.py [THREADS] [PATHS]

Each of THREADS threads simulates PATHS paths of a share price (geometric Brownian motion, 16
dates), each together with its mirror image. The European call has the formula of Black and Scholes.
The Asian call on the geometric mean of the dates has a closed form, too. The program ends with 1 if
a price is more than four standard errors away from its formula.
"""

import math
import sys

import numpy as np
from numba import cuda
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_normal_float64

SPOT, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 105.0, 0.03, 0.25, 1.0
DATES = 16
DRIFT = (RATE - VOLATILITY**2 / 2) * YEARS
VARIANCE = VOLATILITY**2 * YEARS
DISCOUNT = math.exp(-RATE * YEARS)
BLOCK = 128


@cuda.jit
def simulate(states, paths, sums):
    """Adds up each thread's payoffs and their squares: European call, Asian call."""
    i = cuda.grid(1)
    if i >= sums.shape[0]:
        return
    european = european2 = asian = asian2 = 0.0
    drift, spread = DRIFT / DATES, math.sqrt(VARIANCE / DATES)
    for _ in range(paths):
        up = down = math.log(SPOT)
        up_sum = down_sum = 0.0
        for _ in range(DATES):
            step = spread * xoroshiro128p_normal_float64(states, i)
            up += drift + step
            down += drift - step
            up_sum += up
            down_sum += down
        payoff = (max(math.exp(up) - STRIKE, 0.0) + max(math.exp(down) - STRIKE, 0.0)) / 2
        european += payoff
        european2 += payoff * payoff
        up, down = math.exp(up_sum / DATES), math.exp(down_sum / DATES)
        payoff = (max(up - STRIKE, 0.0) + max(down - STRIKE, 0.0)) / 2
        asian += payoff
        asian2 += payoff * payoff
    sums[i, 0], sums[i, 1], sums[i, 2], sums[i, 3] = european, european2, asian, asian2


def formula(drift, variance):
    """Returns the price of a call on a price whose logarithm is normal: Black and Scholes."""

    def normal(x):
        return math.erfc(-x / math.sqrt(2)) / 2

    mean, root = math.log(SPOT) + drift, math.sqrt(variance)
    d2 = (mean - math.log(STRIKE)) / root
    forward = math.exp(mean + variance / 2)
    return DISCOUNT * (forward * normal(d2 + root) - STRIKE * normal(d2))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    paths = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    count = threads * paths
    print(f"{count:,} pairs of paths on {cuda.get_current_device().name}")

    states = create_xoroshiro128p_states(threads, seed=20)
    sums = cuda.to_device(np.zeros((threads, 4)))
    simulate[(threads + BLOCK - 1) // BLOCK, BLOCK](states, paths, sums)
    totals = sums.copy_to_host().sum(axis=0) / count

    n, wrong = DATES, 0
    formulas = (
        ("European call", formula(DRIFT, VARIANCE)),
        ("Asian call", formula(DRIFT * (n + 1) / (2 * n),
                               VARIANCE * (n + 1) * (2 * n + 1) / (6 * n * n))),
    )  # fmt: skip
    for (name, exact), (mean, square) in zip(formulas, totals.reshape(2, 2), strict=True):
        price, error = DISCOUNT * mean, DISCOUNT * math.sqrt((square - mean**2) / count)
        right = abs(price - exact) <= 4 * error
        wrong += not right
        print(f"{name:14}{price:9.4f} +- {error:.4f}   formula {exact:9.4f}   "
              f"{'right' if right else 'WRONG'}")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
