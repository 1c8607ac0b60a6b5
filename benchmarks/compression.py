"""What compression brings on slow links, and what it costs where it brings nothing.

python -m benchmarks.compression [--quick] [--json FILE] [PART...]     (root: network namespaces)
PART: codec, loopback, or the Mbit/s of a link: 50, 100, 200, 1000, 4000

Copies of sparse data (one byte in 40, anywhere, is not zero), of zero rows, of floats as weights
are (normally distributed) and of noise over links of a set rate, with and without compression, one
after the other; then noise and calls over loopback, where only its costs are left; and what zstd
itself does to such data, in pieces of 256 KiB.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Row, arguments, below, compiled, report, say
from benchmarks.net import PORT, served
from benchmarks.server import Server, client_environment, environment, links

MIB = 1 << 20
PIECE = 256 << 10
SIZE = 32 * MIB
LEVELS = (-5, -1, 1, 3)
RATES = (50, 100, 200, 1000, 4000)  # Mbit/s
BUCKET = 256 << 10
KINDS = ("sparse", "rows", "floats", "text", "noise")
# Of the copies.
COPIED = ("sparse", "rows", "floats", "noise")
# A session that copies what it is told to, and says how long each way took.
COPIES = """
import sys, time
from benchmarks.compression import SIZE, data
from helpers.driver import Driver
cuda = Driver()
cuda.open()
place = cuda.alloc(SIZE)
print("ready", flush=True)
for line in sys.stdin:
    bytes_ = data(line.strip(), SIZE)
    start = time.perf_counter()
    cuda.upload(place, bytes_)
    cuda.synchronize()
    middle = time.perf_counter()
    assert cuda.download(place, SIZE) == bytes_
    print(middle - start, time.perf_counter() - middle, flush=True)
"""


def data(kind: str, size: int) -> bytes:
    """Bytes of a kind."""
    dice = random.Random(kind)
    if kind == "noise":
        return dice.randbytes(MIB) * (size // MIB)
    if kind == "floats":
        weights = array.array("f", (dice.gauss(0, 0.02) for _ in range(MIB // 4)))
        return weights.tobytes() * (size // MIB)
    if kind == "text":
        source = b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.rglob("*.py")))
        return (source * (size // len(source) + 1))[:size]
    if kind == "rows":
        block = b"".join(
            bytes(4096) if dice.random() < 0.9 else dice.randbytes(4096) for _ in range(256)
        )
    else:
        sparse = bytearray(MIB)
        for place in dice.sample(range(MIB), MIB // 40):
            sparse[place] = dice.randrange(1, 256)
        block = bytes(sparse)
    return block * (size // MIB)


def codec(rounds: int) -> Iterator[Row]:
    """Ratio and speed of each level, one thread, pieces as the links have them."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_createCCtx.restype = ctypes.c_void_p
    zstd.ZSTD_compressCCtx.restype = ctypes.c_size_t
    context = ctypes.c_void_p(zstd.ZSTD_createCCtx())
    to = ctypes.create_string_buffer(PIECE)
    for kind in KINDS:
        source = data(kind, MIB)
        pieces = [source[at : at + PIECE] for at in range(0, MIB, PIECE)]
        for level in LEVELS:
            seconds = []
            packed = 0
            for _ in range(rounds):
                start = time.perf_counter()
                sizes = [
                    zstd.ZSTD_compressCCtx(
                        context, to, ctypes.c_size_t(PIECE), piece, ctypes.c_size_t(PIECE), level
                    )
                    for piece in pieces
                ]
                seconds.append(time.perf_counter() - start)
                packed = sum(min(size, PIECE) for size in sizes)
            yield Row(
                f"{kind}, level {level}: speed", "GB/s", MIB / statistics.median(seconds) / 1e9
            )
            yield Row(f"{kind}, level {level}: ratio", "x", MIB / packed)


@contextlib.contextmanager
def copying(space: links.Namespace, uri: str, wish: str) -> Iterator[subprocess.Popen[str]]:
    """A session with compression or without."""
    root = str(Path(__file__).resolve().parents[1])
    process = subprocess.Popen(
        space.first(sys.executable, "-c", COPIES),
        env=environment(uri, RGPU_COMPRESSION=wish) | {"PYTHONPATH": f"{root}:{root}/tests"},
        cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no session over {uri}")
        yield process
        assert process.stdin is not None
        process.stdin.close()


def step(process: subprocess.Popen[str], kind: str) -> tuple[float, float]:
    """Seconds up and down."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(kind + "\n")
    process.stdin.flush()
    up, down = map(float, process.stdout.readline().split())
    return up, down


def gains(rounds: int, rates: tuple[int, ...]) -> Iterator[Row]:
    """Copies over slow links: MB/s with compression beside MB/s without."""
    with links.Programs() as programs, links.Network(programs) as network:
        client, server = network.namespace("client"), network.namespace("server")
        with served(server):
            for rate in rates:
                shape = links.Shape(f"{rate} Mbit/s", 0, rate * links.MBIT, BUCKET)
                uri = f"tcp:{network.link(client, server, shape).b}:{PORT}"
                with copying(client, uri, "0") as plain, copying(client, uri, "1") as packed:
                    for kind in COPIED:
                        yield from _gain(rate, kind, plain, packed, rounds)
                say(f"{rate} Mbit/s: done")


def _gain(
    rate: int,
    kind: str,
    plain: subprocess.Popen[str],
    packed: subprocess.Popen[str],
    rounds: int,
) -> Iterator[Row]:
    pairs = [(step(plain, kind), step(packed, kind)) for _ in range(rounds)]
    for way, name in enumerate(("up", "down")):
        without = SIZE / 1e6 / statistics.median(pair[0][way] for pair in pairs)
        with_it = SIZE / 1e6 / statistics.median(pair[1][way] for pair in pairs)
        yield Row(f"{rate} Mbit/s, {kind} {name}", "MB/s", with_it, without, with_it / without)


def costs(rounds: int) -> Iterator[Row]:
    """Loopback, random data: granted beside not granted."""
    sizes = (64, 64 * MIB)
    figures: dict[str, list[dict[str, float]]] = {"0": [], "1": []}
    with compiled("transport.c", "floor.c") as program, Server() as server:
        for number in range(rounds):
            for wish in ("0", "1") if number % 2 else ("1", "0"):
                done = subprocess.run(
                    [str(program), "tcp", "4000", *map(str, sizes)],
                    env=client_environment(server, "tcp") | {"RGPU_COMPRESSION": wish},
                    check=True, stdout=subprocess.PIPE, text=True, timeout=300,
                )  # fmt: skip
                figures[wish].append(json.loads(done.stdout))
            say(f"loopback: {number + 1} of {rounds}")
    mid = {w: {k: statistics.median(f[k] for f in fs) for k in fs[0]} for w, fs in figures.items()}
    for key, name, limit in (
        ("sync_ns", "call", 1.02),
        ("up_64", "64 bytes up", 1.02),
        ("down_64", "64 bytes down", 1.02),
        (f"up_{64 * MIB}", "64 MiB up", 1.02),
        (f"down_{64 * MIB}", "64 MiB down", 1.02),
    ):
        ratio = mid["1"][key] / mid["0"][key]
        yield Row(f"loopback {name}, without", "us", mid["0"][key] / 1e3)
        yield below(f"loopback {name}, granted", "x", ratio, limit)


def main() -> int:
    asked = arguments(__doc__ or "", ("codec", "loopback", *map(str, RATES)))
    rates = tuple(int(part) for part in asked.parts if part.isdecimal())
    rows: list[Row] = []
    if "codec" in asked.parts:
        rows += codec(3 if asked.quick else 31)
    if "loopback" in asked.parts:
        rows += costs(2 if asked.quick else 9)
    if rates:
        rows += gains(*(1, (200,)) if asked.quick else (5, rates))
    report("compression", rows, asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
