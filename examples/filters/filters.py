"""Removes noise from an image and finds its edges, with Taichi, and compares with NumPy.

    rgpu run --memory 512MiB -- python examples/filters/filters.py [SIZE] [PICTURE]

The image shows discs with noise, SIZE pixels wide and high. A Gaussian blur removes noise and edges
alike; a bilateral filter, which weighs neighbours by how alike they are, keeps the edges; Sobel's
filter finds them. With PICTURE, a name that ends in .png, the program writes the image and the
three results there, side by side. It ends with 1 if a result differs from NumPy's.
"""

import sys

import numpy as np
import taichi as ti

RADIUS, SIGMA, RANGE = 3, 1.5, 0.15
NOISE = 0.05
Image = ti.types.ndarray(dtype=ti.f32, ndim=2)


@ti.func
def pixel(image: ti.template(), y, x):
    """The image's border goes on outside of it."""
    return image[ti.math.clamp(y, 0, image.shape[0] - 1), ti.math.clamp(x, 0, image.shape[1] - 1)]


@ti.kernel
def smooth(image: Image, out: Image, by_range: ti.f32):
    """Averages each pixel's neighbours, weighed by distance; by likeness too, if by_range is 1."""
    for y, x in image:
        total, weights = 0.0, 0.0
        for dy, dx in ti.ndrange((-RADIUS, RADIUS + 1), (-RADIUS, RADIUS + 1)):
            near = pixel(image, y + dy, x + dx)
            unlike = by_range * ((near - image[y, x]) / RANGE) ** 2
            weight = ti.exp(-0.5 * ((dy * dy + dx * dx) / SIGMA**2 + unlike))
            total += weight * near
            weights += weight
        out[y, x] = total / weights


@ti.kernel
def sobel(image: Image, out: Image):
    """Writes how steep the image is at each pixel."""
    for y, x in image:
        across, down = 0.0, 0.0
        for k in ti.static(range(-1, 2)):
            across += (2 - abs(k)) * (pixel(image, y + k, x + 1) - pixel(image, y + k, x - 1))
            down += (2 - abs(k)) * (pixel(image, y + 1, x + k) - pixel(image, y - 1, x + k))
        out[y, x] = ti.sqrt(across**2 + down**2)


def discs(size):
    """Returns discs on a grey ground; black is 0, white is 1."""
    y, x = np.mgrid[0:size, 0:size] / size
    image = np.full((size, size), 0.3, np.float32)
    for cx, cy, radius, grey in (
        (0.3, 0.35, 0.2, 0.9),
        (0.65, 0.6, 0.25, 0.1),
        (0.75, 0.25, 0.1, 0.7),
    ):
        image[(x - cx) ** 2 + (y - cy) ** 2 < radius**2] = grey
    return image


def moved(image, dy, dx):
    """Returns the image moved by some pixels; its border goes on outside of it."""
    size = len(image)
    padded = np.pad(image.astype(float), RADIUS, mode="edge")
    return padded[RADIUS + dy :, RADIUS + dx :][:size, :size]


def smooth_in_numpy(image, by_range):
    total, weights = np.zeros(image.shape), np.zeros(image.shape)
    for dy in range(-RADIUS, RADIUS + 1):
        for dx in range(-RADIUS, RADIUS + 1):
            near = moved(image, dy, dx)
            unlike = by_range * ((near - image) / RANGE) ** 2
            weight = np.exp(-0.5 * ((dy * dy + dx * dx) / SIGMA**2 + unlike))
            total += weight * near
            weights += weight
    return total / weights


def sobel_in_numpy(image):
    across = down = np.zeros(image.shape)
    for k in (-1, 0, 1):
        across = across + (2 - abs(k)) * (moved(image, k, 1) - moved(image, k, -1))
        down = down + (2 - abs(k)) * (moved(image, 1, k) - moved(image, -1, k))
    return np.hypot(across, down)


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    ti.init(arch=ti.cuda, log_level=ti.ERROR)
    if ti.lang.impl.current_cfg().arch != ti.cuda:
        sys.exit("Taichi has found no CUDA device: start this program with `rgpu run`")
    clean = discs(size)
    noise = np.random.default_rng(3).normal(0, NOISE, clean.shape)
    image = (clean + noise).astype(np.float32)
    blurred, kept, edges = (np.empty_like(image) for _ in range(3))
    smooth(image, blurred, 0.0)
    smooth(image, kept, 1.0)
    sobel(kept, edges)

    wrong = 0
    for name, found, wanted in (
        ("blur", blurred, smooth_in_numpy(image, 0)),
        ("bilateral", kept, smooth_in_numpy(image, 1)),
        ("edges", edges, sobel_in_numpy(kept)),
    ):
        off = float(np.abs(found - wanted).max())
        right = off < 1e-5
        wrong += not right
        print(f"{name:10} differs from NumPy by {off:.0e} at most: {'right' if right else 'WRONG'}")
    for name, found in ("noisy", image), ("blurred", blurred), ("bilateral", kept):
        distance = float(np.sqrt(((found - clean) ** 2).mean()))
        print(f"{name:10} is {distance:.3f} away from the image without noise")
    if len(sys.argv) > 2:
        sheet = np.hstack([image, blurred, kept, edges / edges.max()])
        ti.tools.imwrite(np.ascontiguousarray(sheet.T[:, ::-1]), sys.argv[2])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
