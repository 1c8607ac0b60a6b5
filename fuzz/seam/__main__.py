"""`python fuzz/seam [--seconds N | --count N] [--seed N] [--seam cupy|torch]`: random operations
and damaged messages of the array seam, on a server that it starts."""

from __future__ import annotations

import argparse
import random
import sys
from importlib.util import find_spec
from pathlib import Path

# Not this folder, whose modules are those of a package.
sys.path[0:1] = [
    str(Path(__file__).resolve().parents[n] / part) for n, part in ((1, ""), (2, "tests"))
]

from rgpu_common.arrays.seams import Seam  # noqa: E402
from seam.check import FindError, Fuzzer  # noqa: E402
from seam.node import Node  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="seam", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--count", type=int, default=0, help="cases for each library, not a time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seam", choices=["cupy", "torch"], help="one library instead of both")
    parser.add_argument("--keep", type=Path, default=Path("build"), help="where finds go")
    options = parser.parse_args()
    seams = [Seam[options.seam.upper()]] if options.seam else [Seam.CUPY, Seam.TORCH]
    if find_spec("torch") is None:
        seams = [one for one in seams if one is not Seam.TORCH]
    finds = 0
    with Node() as node:
        for seam in seams:
            fuzzer = Fuzzer(node, seam, options.seed)
            try:
                fuzzer.run(options.seconds / len(seams), options.count)
            except FindError as error:
                finds += 1
                options.keep.mkdir(parents=True, exist_ok=True)
                kept = options.keep / f"seam-{seam.word}-{options.seed}.txt"
                kept.write_text(str(error))
                print(str(error)[:2000], f"\n(kept: {kept})", file=sys.stderr)
            print(f"seam: {seam.word}: {fuzzer.told()} from seed {options.seed}")
    return min(finds, 1)


if __name__ == "__main__":
    sys.exit(main())
