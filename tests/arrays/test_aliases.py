"""`import cupy` that gives a module of ours: one module with two names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from rgpu_client.arrays.aliases import install
install("outer", "inner")
import outer.deep.leaf, inner, inner.deep.leaf
assert outer is inner and outer.deep.leaf is inner.deep.leaf
assert inner.deep.leaf.__name__ == inner.deep.leaf.__spec__.name == "inner.deep.leaf"
from outer.deep import leaf, VALUE
assert (leaf.loaded, VALUE) == ([1], 3)
try:
    import outer.nothing
except ModuleNotFoundError as error:
    assert error.name == "outer.nothing", error.name
else:
    raise AssertionError
try:
    import outer.broken
except ModuleNotFoundError as error:
    assert error.name == "not_there_at_all", error.name
else:
    raise AssertionError
"""


def test_modules_are_one_under_both_names(tmp_path: Path) -> None:
    for name, text in {
        "inner/__init__.py": "",
        "inner/broken.py": "import not_there_at_all",
        "inner/deep/__init__.py": "VALUE = 3",
        "inner/deep/leaf.py": "from . import VALUE\nloaded = [1]",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    paths = [str(tmp_path), *sys.path]
    code = f"import sys; sys.path[:] = {paths!r}\n{PROGRAM}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
