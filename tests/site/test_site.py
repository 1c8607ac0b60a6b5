"""The site: its generated pages, its lists, and that what is wrong fails the build."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from helpers.needs import needs
from helpers.server import Server
from observe import page as metrics_page

# Of the site, not of rgpu.
pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "scripts" / "site"


def script(path: Path, name: str) -> Any:
    return runpy.run_path(str(path))[name]


def test_lists_are_indented_by_four_and_code_stays_in_its_item() -> None:
    reindented = script(SITE / "reindent.py", "reindented")
    text = "- one\n  more\n\n  ```sh\n  a\n    - b\n  ```\n\n  - two\n    more\n- three\n\n1. x\n   y\n\nz\n"
    assert reindented(text) == (
        "- one\n    more\n\n    ```sh\n    a\n      - b\n    ```\n\n    - two\n        more\n"
        "- three\n\n1. x\n    y\n\nz\n"
    )
    assert reindented("```\n- a\n  b\n```\n") == "```\n- a\n  b\n```\n"


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    text = script(SITE / "cli_page.py", "cli_page")()
    for point in entry_points(group="rgpu.commands"):
        assert f"\n## rgpu {point.name}\n" in text
    for words in ("### rgpu lease resize\n", "`--memory SIZE`", "`--policy none\\|fixed\\|burst"):
        assert words in text
    assert "%%" not in text
    assert "%(" not in text


def test_the_page_of_metrics_is_fresh() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "gen_metrics_page.py"))
    assert written["PAGE"].read_text() == written["page"](), "run make gen"


def test_every_metric_of_a_running_server_is_on_the_page() -> None:
    listed = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    with Server("--metrics", "127.0.0.1:0") as server:
        shown = metrics_page.text(server)
    names = {line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE ")}
    assert len(names) > 40
    assert not {name for name in names if f"| `{name}` |" not in listed}


def built(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Builds a site of these pages with the hooks and the checks of ours."""
    docs = folder / "docs"
    for name, text in pages.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(text)
    shutil.copytree(ROOT / "scripts" / "site", folder / "scripts" / "site")
    config = (ROOT / "mkdocs.yml").read_text()
    # There is no navigation here.
    config = config[: config.index("\nnav:\n") + 1].replace(
        "omitted_files: warn", "omitted_files: ignore"
    )
    (folder / "mkdocs.yml").write_text(config)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(folder / "mkdocs.yml")],
        cwd="/", env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


@needs("mkdocs")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[gone](other.md#gone)", "gone"),
        ("[gone](../../deploy/gone.txt)", "links to deploy/gone.txt, which does not exist"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, page: str, complaint: str) -> None:
    pages = {"index.md": "# A\n", "how-to/other.md": "# B\n", "how-to/page.md": f"# C\n\n{page}\n"}
    done = built(tmp_path, pages)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr


@needs("mkdocs")
@pytest.mark.timeout(400)
def test_files_outside_of_the_docs_are_copied(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "x.yml").write_text("key: value\n")
    text = "# C\n\nSee [`x`](../../deploy/x.yml) in [deploy](../../deploy), [B](../index.md#b---c_d).\n"
    done = built(tmp_path, {"index.md": "# A\n\n## B - c_d\n", "how-to/page.md": text})
    assert done.returncode == 0, done.stderr
    site = tmp_path / "build" / "site"
    assert (site / "source" / "deploy" / "x.yml.txt").read_text() == "key: value\n"
    page = (site / "how-to" / "page.html").read_text()
    assert 'href="../source/deploy/x.yml.txt"' in page
    assert "in deploy," in page
    python = (site / "reference" / "python.html").read_text()
    assert "Serves every later CUDA import of this process" in python
    assert "RGPU_TOKEN_FILE" not in python or "connect" in python
