"""Hooks of MkDocs (mkdocs.yml): pages that are written from the code, and links that leave docs.

MkDocs loads this file by its path, so it imports its neighbours by path, too.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from cli_page import cli_page
from python_page import python_page
from reindent import reindented

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Where the site has files of the repository that pages link to.
_SOURCE = "source"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")
_GENERATED = {"reference/cli.md": cli_page, "reference/python.md": python_page}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the decisions in the navigation, in their order."""
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    decisions = ["adr/README.md", *(f"adr/{page.name}" for page in pages)]
    config.nav = [{"Decisions": decisions} if "Decisions" in entry else entry
                  for entry in config.nav or []]  # fmt: skip
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, and the files outside of docs that pages link to."""
    for name, page in _GENERATED.items():
        files.append(File.generated(config, name, content=page()))
    for target in sorted(_targets(files)):
        content = (ROOT / target).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{_SOURCE}/{target}.txt", content=content))
    return files


def _targets(files: Files) -> set[str]:
    """Returns the files outside of docs that pages link to."""
    found = (
        _outside(file.src_uri, link[2] + link[3])
        for file in files.documentation_pages()
        for link in _LINK.finditer(file.content_string)
    )
    return {target for target in found if target and (ROOT / target).is_file()}


def _outside(page: str, link: str) -> str:
    """Returns the path in the repository of a link that leaves docs; "" for another one."""
    relative = os.path.normpath(Path(page).parent / link)
    if not relative.startswith("../"):
        return ""
    return os.path.normpath(f"docs/{relative}")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to the site's copies of files outside of docs, and indents lists as MkDocs needs it.

    Raises:
        PluginError: a link leads to nothing.
    """
    del config, files
    uri = page.file.src_uri

    def linked(found: re.Match[str]) -> str:
        target = _outside(uri, found[2] + found[3])
        if not target:
            return found[0]
        if (ROOT / target).is_file():
            return f"[{found[1]}]({'../' * uri.count('/')}{_SOURCE}/{target}.txt)"
        if (ROOT / target).is_dir():
            return found[1]
        raise PluginError(f"{uri} links to {target}, which does not exist")

    return reindented(_LINK.sub(linked, markdown))
