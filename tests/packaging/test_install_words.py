"""How rgpu is installed is said in one place, and works with what the reader has."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from rgpu_common.installing import install_words, pip_word

ROOT = Path(__file__).resolve().parents[2]
WHEEL = "rgpu_cuda-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl"
SOURCES = ("rgpu_client", "rgpu_cluster", "rgpu_common", "rgpu_emu", "rgpu_server", "netprobe")


@pytest.mark.parametrize("extras", ["", "server", "server,emu"])
def test_a_shell_makes_the_word_a_wheel_that_lies_there(tmp_path: Path, extras: str) -> None:
    (tmp_path / WHEEL).touch()
    done = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {pip_word(extras)}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stdout == WHEEL + (f"[{extras}]" if extras else "") + "\n"


def test_a_message_names_the_wheel_and_the_checkout() -> None:
    assert install_words("server") == (
        f"python -m pip install {pip_word('server')} "
        "(in a checkout: python -m pip install '.[server]')"
    )


def test_every_page_says_how_to_install_by_the_same_word() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "gen_install_words.py"))
    pages = script["pages"]()
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert script["replaced"](text) == text, f"{page}: run make gen"
        assert not re.search(r"pip install[^`\n]*\brgpu-cuda\b", text), page


def test_no_message_has_a_word_of_its_own() -> None:
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"install\b[^#\n]*rgpu-cuda\b(?!.*again| on both)", text), path
