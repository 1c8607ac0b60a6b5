"""`make warnings` finds what g++ warns of, and passes nothing that g++ cannot read."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int main() { return 0; }", ""),
        ("int main() { int unused; return 0; }", "unused variable"),
        ("int main() { return missing; }", "was not declared"),
    ],
)
def test_what_is_found(tmp_path: Path, text: str, said: str) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "gxx_warnings.py"))
    source = tmp_path / "one.cc"
    source.write_text(text)
    words = ["g++", "-Wall", "-Werror", "-o", "one.o", "-c", str(source)]
    found = script["read"](script["Unit"](words, "one.o"), tmp_path)
    assert said in found
    assert bool(found) == bool(said)
    assert list(tmp_path.iterdir()) == [source]
