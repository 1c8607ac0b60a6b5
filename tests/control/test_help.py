"""`rgpu help`: the pages that the installed package contains."""

from __future__ import annotations

import os
import pty
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from helpers.command import rgpu_command

from rgpu_common.help_pages import TOPICS, help_page, plain_text


def rgpu(*words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [rgpu_command(), *words], env={"PATH": "/usr/bin:/bin", "COLUMNS": str(columns)},
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("topic", [*TOPICS])
def test_every_topic_is_in_the_package_as_plain_text(topic: str) -> None:
    assert files("rgpu_common").joinpath("help", f"{topic}.md").is_file()
    text = help_page(topic, 80)
    assert text.splitlines()[1].startswith("===")
    prose = [line for line in text.splitlines() if not line.startswith("    ")]
    assert "](" not in "\n".join(prose)
    assert "| " not in "\n".join(prose).replace("||", "")
    assert "```" not in text
    assert "<!--" not in text
    code = [line for line in text.splitlines() if len(line) > 80]
    assert all(line.startswith("    ") or " " not in line.strip() for line in code)


def test_the_page_that_error_lines_name_is_printed() -> None:
    done = rgpu("help", "compatibility", columns=70)
    assert done.returncode == 0
    assert "cuGetExportTable" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 70


def test_help_lists_topics_and_knows_commands() -> None:
    assert "compatibility" in rgpu("help").stdout
    assert rgpu("help", "--help").stdout == rgpu("help", "-h").stdout == rgpu("help").stdout
    assert rgpu("help", "trace").stdout.startswith("usage: rgpu trace")
    wrong = rgpu("help", "compatability")
    assert wrong.returncode == 2
    sentence = "no help about 'compatability' (did you mean compatibility?); there are the topics"
    assert sentence in wrong.stderr


def test_a_terminal_gets_a_pager(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    ours, theirs = pty.openpty()
    environment = {"PATH": "/usr/bin:/bin", "PAGER": f"cat > {seen}", "TERM": "xterm"}
    try:
        subprocess.run(
            [rgpu_command(), "help", "units"], env=environment, cwd="/", stdin=theirs,
            stdout=theirs, stderr=theirs, timeout=60, check=True,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert seen.read_text().splitlines()[1].startswith("===")


def test_markdown_becomes_text() -> None:
    markdown = """# A title

A [link](there.md) in **bold** text that goes on and on until it has to be wrapped somewhere.
- one item that is long enough to be wrapped as well, with its lines beneath each other
- `two`

| what | why |
|---|---|
| a | b \\| c |

```sh
rgpu run   -- x
```
"""
    assert plain_text(markdown, 40).splitlines() == [
        "A title",
        "=======",
        "",
        "A link in bold text that goes on and on",
        "until it has to be wrapped somewhere.",
        "",
        "- one item that is long enough to be",
        "  wrapped as well, with its lines",
        "  beneath each other",
        "",
        "- `two`",
        "",
        "a",
        "    b | c",
        "",
        "    rgpu run   -- x",
    ]
