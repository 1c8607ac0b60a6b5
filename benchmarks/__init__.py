"""Benchmarks: `python -m benchmarks.NAME [--quick] [--json FILE]`.

They measure what is *installed*.  `python -m` puts the current folder first on the path, where the
source folders would hide the installed packages with their compiled parts; the line below moves it
to the end.
"""

import sys

sys.path.append(sys.path.pop(0))
