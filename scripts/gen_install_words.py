"""Writes into all pages how rgpu is installed, from rgpu_common/installing.py. Part of `make gen`.

python scripts/gen_install_words.py
"""

from __future__ import annotations

import re
from pathlib import Path

from rgpu_common.installing import pip_word

ROOT = Path(__file__).resolve().parent.parent
# Every way in which pages may name the package with extras.
_FORMS = re.compile(r"""'rgpu-cuda\[([\w,]+)\]'|"\$\(echo rgpu_cuda-\*\.whl\)\[([\w,]+)\]\"""")
# Says how to install from a wheel, also when there is a release.
_BY_HAND = "docs/how-to/install.md"


def pages() -> list[Path]:
    """Returns the pages that users read."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [page for page in found if page.parent.name != "adr" and not page.match(f"*/{_BY_HAND}")]


def replaced(page: str) -> str:
    """Returns a page whose commands install rgpu as `pip_word` says."""
    return _FORMS.sub(lambda found: pip_word(found[1] or found[2]), page)


if __name__ == "__main__":
    for one in pages():
        text = one.read_text(encoding="utf-8")
        if replaced(text) != text:
            one.write_text(replaced(text), encoding="utf-8")
