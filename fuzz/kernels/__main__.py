"""`python fuzz/kernels [--seconds N | --count N] [--seed N]`: random and damaged PTX against the
interpreter, on a server that it starts."""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from pathlib import Path

# Not this folder, whose modules are those of a package.
sys.path[0:1] = [
    str(Path(__file__).resolve().parents[n] / part) for n, part in ((1, ""), (2, "tests"))
]

from kernels.check import DifferenceError, check_damaged, check_valid  # noqa: E402
from kernels.device import Device  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="kernels", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--count", type=int, default=0, help="cases instead of a time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", type=Path, default=Path("build"), help="where failures go")
    options = parser.parse_args()
    seen: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + options.seconds
    failures = 0
    with Device() as device:
        number = 0
        while number < options.count if options.count else time.monotonic() < end:
            seed = options.seed + number
            check = check_damaged if number % 4 == 3 else check_valid
            number += 1
            try:
                seen[check(device, seed)] += 1
            except DifferenceError as error:
                failures += 1
                options.keep.mkdir(parents=True, exist_ok=True)
                kept = options.keep / f"difference-{seed}.ptx"
                kept.write_text(str(error))
                print("\n".join(str(error).splitlines()[:12]), f"\n(kept: {kept})", file=sys.stderr)
    print(f"kernels: {sum(seen.values())} cases from seed {options.seed}: {dict(seen)}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
