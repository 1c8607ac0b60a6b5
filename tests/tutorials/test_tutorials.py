"""Every command of every tutorial runs, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.pages import DOCS
from helpers.tutorial import Tutorial, blocks_of, pattern_of

PAGES = sorted(path.name for path in (DOCS / "tutorial").glob("*.md"))
FIRST = "first-gpu.md"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [FIRST, *(pytest.param(p, marks=pytest.mark.full) for p in PAGES if p != FIRST)]
)
def test_a_tutorial(page: str, tmp_path: Path) -> None:
    tutorial = Tutorial(DOCS / "tutorial" / page, tmp_path)
    assert len(tutorial.blocks) > 3
    tutorial.run()


def test_no_block_of_a_tutorial_is_overlooked() -> None:
    for page in PAGES:
        text = (DOCS / "tutorial" / page).read_text()
        assert text.count("```sh") == len(blocks_of(text))
        assert not any(word in text for word in ("```bash", "```shell", "```console", "```python"))


def test_a_command_that_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for script, prints in (("false\ntrue", ""), ("echo one", "two"), ("x=1", "")):
        page.write_text(f"```sh\n{script}\n```\n\n```\n{prints}\n```\n\n```sh\ntest $x = 1\n```\n")
        if script == "x=1":
            Tutorial(page, tmp_path).run()
            continue
        with pytest.raises(AssertionError, match=r"false|'two' is not in"):
            Tutorial(page, tmp_path).run()


def test_numbers_and_ids_may_differ_and_words_may_not() -> None:
    line = "rgpu: lease run-255b0a43b4bf: 4.02 MiB of 8 MiB used (--memory)"
    assert pattern_of(line).fullmatch("rgpu: lease run-0b0a: 512 KiB of 8 MiB used (--memory)")
    assert not pattern_of(line).fullmatch("rgpu: lease run-0b0a: 512 KiB of 8 MiB free (--memory)")
    assert pattern_of("on 127.0.0.1:7700").fullmatch("on 127.0.0.1:9")
