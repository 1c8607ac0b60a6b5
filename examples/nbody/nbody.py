"""Two galaxies pass each other and draw tails, with cuda.core and a kernel in CUDA C++.

    rgpu run --memory 512MiB -- python -W ignore examples/nbody/nbody.py [BODIES] [STEPS] [PICTURE]

Each galaxy is a heavy core with rings of light bodies, as in Toomre and Toomre's experiment of
1972. Every body attracts every other one. With PICTURE, a name that ends in .svg, the program draws
the bodies at the beginning and after each third. It ends with 1 if the positions differ from those
of the same steps in NumPy, or if energy or momentum is not kept.
"""

import sys

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

BLOCK = 64
STEP = 0.04
# Bodies are balls of this radius, so none gets any speed near another.
RADIUS = 0.2
LIGHT = 1e-5
SOURCE = r"""
extern "C" __global__ void step(const double4* from, double4* to, double3* speeds,
                                double time, double radius, int n) {
    __shared__ double4 tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    double4 own = i < n ? from[i] : make_double4(0, 0, 0, 0);
    double3 pull = make_double3(0, 0, 0);
    for (int first = 0; first < n; first += BLOCK) {
        int j = first + threadIdx.x;
        tile[threadIdx.x] = j < n ? from[j] : make_double4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) {
            double x = tile[k].x - own.x, y = tile[k].y - own.y, z = tile[k].z - own.z;
            double square = x * x + y * y + z * z + radius * radius;
            double strength = tile[k].w / (square * sqrt(square));
            pull.x += strength * x; pull.y += strength * y; pull.z += strength * z;
        }
        __syncthreads();
    }
    if (i >= n) return;
    double3 speed = speeds[i];
    speed.x += time * pull.x; speed.y += time * pull.y; speed.z += time * pull.z;
    speeds[i] = speed;
    own.x += time * speed.x; own.y += time * speed.y; own.z += time * speed.z;
    to[i] = own;
}
"""


def galaxies(count):
    """Returns bodies (x, y, z, mass) and their speeds."""
    bodies, speeds = np.zeros((count, 4)), np.zeros((count, 3))
    # The cores pass each other on a parabola. It begins far out.
    nearest, far = 2.6, -1.5
    place = nearest * np.array([1 - far**2, 2 * far])
    speed = np.sqrt(4 / nearest) / (1 + far**2) * np.array([-far, 1])
    for first, side in (0, -0.5), (1, 0.5):
        body, moves = bodies[first::2], speeds[first::2]
        ring = 0.5 + 0.3 * (np.arange(len(body)) % 5)
        ring[0] = 0
        angle = 2.4 * np.arange(len(body))
        around = ring / (ring**2 + RADIUS**2) ** 0.75
        body[:, :2] = (ring * [np.cos(angle), np.sin(angle)]).T + side * place
        moves[:, :2] = (around * [-np.sin(angle), np.cos(angle)]).T + side * speed
        body[:, 3] = LIGHT
        body[0, 3] = 1
    speeds -= (bodies[:, 3:] * speeds).sum(axis=0) / bodies[:, 3].sum()
    return bodies, speeds


def pull_on(bodies):
    """Returns the acceleration of each body."""
    apart = bodies[None, :, :3] - bodies[:, None, :3]
    square = (apart**2).sum(axis=2) + RADIUS**2
    return np.einsum("ijk,ij->ik", apart, bodies[None, :, 3] / square**1.5)


def in_numpy(bodies, speeds, steps):
    """Returns the bodies after the steps."""
    bodies, speeds = bodies.copy(), speeds.copy()
    for _ in range(steps):
        speeds += STEP * pull_on(bodies)
        bodies[:, :3] += STEP * speeds
    return bodies


def on_the_device(device, bodies, speeds, steps):
    """Returns the bodies and their speeds at the beginning and after each third."""
    stream, pinned = device.create_stream(), LegacyPinnedMemoryResource()
    options = ProgramOptions(std="c++17", arch="compute_80", define_macro=("BLOCK", str(BLOCK)))
    kernel = Program(SOURCE, "c++", options).compile("ptx").get_kernel("step")
    config = LaunchConfig(grid=(len(bodies) + BLOCK - 1) // BLOCK, block=BLOCK)
    rest = np.float64(STEP), np.float64(RADIUS), np.int32(len(bodies))

    def to_device(array):
        host = pinned.allocate(array.nbytes)
        np.from_dlpack(host).view(np.float64)[:] = array.ravel()
        buffer = device.allocate(array.nbytes, stream=stream)
        buffer.copy_from(host, stream=stream)
        stream.sync()
        return buffer

    def to_host(buffer, columns):
        host = pinned.allocate(buffer.size)
        buffer.copy_to(host, stream=stream)
        stream.sync()
        return np.from_dlpack(host).view(np.float64).reshape(-1, columns).copy()

    old, new, moves = to_device(bodies), to_device(bodies), to_device(speeds)
    found = [(bodies, speeds)]
    for step in range(steps):
        launch(stream, config, kernel, old, new, moves, *rest)
        old, new = new, old
        if step + 1 in (steps // 3, 2 * steps // 3, steps):
            found.append((to_host(old, 4), to_host(moves, 3)))
    return found


def energy(bodies, speeds):
    """Returns the energy of motion, and the whole energy."""
    # The speeds are those of half a step before the bodies.
    speeds, mass = speeds + STEP / 2 * pull_on(bodies), bodies[:, 3]
    apart = bodies[None, :, :3] - bodies[:, None, :3]
    near = 1 / np.sqrt((apart**2).sum(axis=2) + RADIUS**2)
    np.fill_diagonal(near, 0)
    motion = (mass * (speeds**2).sum(axis=1)).sum() / 2
    return motion, motion - mass @ near @ mass / 2


def draw(path, moments):
    """Draws the bodies at each moment, side by side."""
    size, scale, shapes = 240, 15, []
    for column, (bodies, _) in enumerate(moments):
        for i, (x, y, _, mass) in enumerate(bodies):
            x, y = size / 2 + scale * x, size / 2 - scale * y
            if 0 <= x < size and 0 <= y < size:
                colour, radius = ("#7cc4ff", "#ffc46b")[i % 2], 1.2 if mass < 1 else 4
                shapes.append(f'<circle cx="{column * size + x:.1f}" cy="{y:.1f}" r="{radius}" '
                              f'fill="{colour}"/>')  # fmt: skip
    width = size * len(moments)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {size}">'
    sky = f'<rect width="{width}" height="{size}" fill="#10151f"/>'
    with open(path, "w") as file:
        file.write("".join([head, sky, *shapes, "</svg>"]))


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 360
    device = Device()
    device.set_current()
    print(f"{count} bodies, {steps} steps on {device.name}")
    start = galaxies(count)
    found = on_the_device(device, *start, steps)
    if len(sys.argv) > 3:
        draw(sys.argv[3], found)

    bodies, speeds = found[-1]
    off = np.abs(bodies - in_numpy(*start, steps)).max()
    motion, before = energy(*start)
    change = abs(energy(bodies, speeds)[1] - before) / motion
    momentum = np.abs((bodies[:, 3:] * speeds).sum(axis=0)).max()
    right = off < 1e-6 and change < 1e-2 and momentum < 1e-12
    print(f"positions differ from NumPy's by {off:.0e} at most")
    print(f"energy changed by {change:.0e} of that of motion, momentum is {momentum:.0e}")
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
