"""Programs as users write them, for NumPy and for CuPy alike: `xp` is either."""

from __future__ import annotations


def k_means(xp, points, start, rounds):
    """Returns the centres and each point's cluster."""
    centres = xp.asarray(start)
    points = xp.asarray(points)
    for _ in range(rounds):
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        cluster = distances.argmin(axis=1)
        members = cluster[None, :] == xp.arange(len(start))[:, None]
        count = members.sum(axis=1)
        sums = xp.where(members[:, :, None], points[None, :, :], 0.0).sum(axis=1)
        centres = sums / xp.maximum(count, 1)[:, None]
    return xp.concatenate([centres.ravel(), cluster.astype(centres.dtype)])


def conjugate_gradient(xp, matrix, right, rounds, every=10):
    """Solves a system; looks at the residual after every few rounds."""
    a, b = xp.asarray(matrix), xp.asarray(right)
    x = xp.zeros_like(b)
    r = b - a @ x
    p = r.copy()
    old = r @ r
    for n in range(rounds):
        ap = a @ p
        alpha = old / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        if n % every == every - 1 and float(new) < 1e-18:
            break
        p *= new / old
        p += r
        old = new
    return x


def monte_carlo_option(xp, normals, price, strike, rate, sigma, years):
    """Returns the value of an option, and its standard error."""
    z = xp.asarray(normals)
    steps = z.shape[1]
    dt = years / steps
    drift = (rate - 0.5 * sigma**2) * dt
    paths = price * xp.exp(xp.cumsum(drift + sigma * dt**0.5 * z, axis=1))
    payoff = xp.exp(xp.asarray(-rate * years)) * xp.clip(paths[:, -1] - strike, 0, None)
    return xp.stack([payoff.mean(), payoff.std(ddof=1) / len(z) ** 0.5])


def gaussian_mixture(xp, samples, start, rounds):
    """Returns means, variances and weights of a mixture with diagonal covariances."""
    x = xp.asarray(samples)
    means = xp.asarray(start)
    k, (n, d) = len(start), x.shape
    variances = xp.ones((k, d))
    weights = xp.full(k, 1.0 / k)
    for _ in range(rounds):
        gap = x[:, None, :] - means[None]
        log = -0.5 * (gap**2 / variances + xp.log(2 * xp.pi * variances)).sum(axis=2) + xp.log(
            weights
        )
        top = log.max(axis=1, keepdims=True)
        shares = xp.exp(log - top)
        shares /= shares.sum(axis=1, keepdims=True)
        mass = shares.sum(axis=0)
        means = shares.T @ x / mass[:, None]
        variances = shares.T @ x**2 / mass[:, None] - means**2 + 1e-6
        weights = mass / n
    return xp.concatenate([means, variances, weights[:, None]], axis=1)


def heat(xp, size, rounds):
    """Returns a plate's temperatures after steps of finite differences, in place."""
    plate = xp.zeros((size, size))
    plate[0, :] = 100.0
    for _ in range(rounds):
        inner = plate[1:-1, 1:-1]
        plate[1:-1, 1:-1] = inner + 0.2 * (
            plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:] - 4 * inner
        )
    return plate


def spectrum(xp, signal):
    """Returns the three strongest frequencies of a signal."""
    x = xp.asarray(signal)
    power = xp.abs(xp.fft.rfft(x * xp.hanning(len(signal)))) ** 2
    return xp.sort(xp.argsort(power)[-3:])
