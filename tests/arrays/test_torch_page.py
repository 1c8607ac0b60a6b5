"""The page of PyTorch's operators is what its script writes of the lists."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "gen_torch_page.py"


def test_the_page_is_fresh() -> None:
    written = runpy.run_path(str(SCRIPT))
    assert written["PAGE"].read_text() == written["page"](), "run python scripts/gen_torch_page.py"
