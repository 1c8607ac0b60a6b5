"""Writes man pages and the shells' completion from the parsers of the commands.

python scripts/gen_shell_files.py    # with rgpu, shtab and argparse-manpage installed

CMakeLists.txt installs them; `rgpu completion` prints the completion.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

# What the parsers say is wrapped for so wide a terminal.
os.environ["COLUMNS"] = "100"

import shtab
from argparse_manpage.manpage import Manpage

from rgpu_client.completion import SHELLS
from rgpu_common.command import all_commands, grouped, parser_of, whole_parser
from rgpu_common.help_pages import TOPICS

ROOT = Path(__file__).parent.parent
MAN = ROOT / "docs" / "man"
COMPLETIONS = ROOT / "rgpu_client" / "completions"
# A page that changed every day would be committed every day.
_DATA = {"project_name": "rgpu", "manual_title": "rgpu", "date": "2026"}
_FILES = ("FILE", "unix:/PATH")
_FOLDERS = ("FOLDER", "DIR")


def pages() -> dict[str, str]:
    """Returns the man pages: name of the file -> text."""
    commands = all_commands()
    found = {"rgpu.1": _overview([(one.name, one.summary) for one in commands])}
    for command in commands:
        parser = parser_of(command)
        page = Manpage(parser, {**_DATA, "description": command.summary})
        page.prog = f"rgpu-{command.name}"
        found[f"{page.prog}.1"] = str(page)
    return found


def _overview(commands: list[tuple[str, str]]) -> str:
    parser = argparse.ArgumentParser(
        prog="rgpu", usage="rgpu COMMAND ...", description=whole_parser().description
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    page = Manpage(parser, {**_DATA, "description": "GPUs of other machines"})
    summaries = dict(commands)
    for title, names in grouped(summaries).items():
        entries = [_entry(f"rgpu-{name}(1)", summaries[name]) for name in names]
        page.add_section(f"commands: {title}", "=", "\n".join(entries))
    topics = [_entry(f"rgpu help {topic}", summary) for topic, summary in TOPICS.items()]
    page.add_section("documentation", "=", "\n".join(topics))
    return str(page)


def _entry(term: str, text: str) -> str:
    return f".TP\n.B {_escaped(term)}\n{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("-", "\\-").replace("`", "\\`")


def completions() -> dict[str, str]:
    """Returns the completion: name of the file -> text."""
    parser = whole_parser()
    _mark(parser)
    return {name: shtab.complete(parser, shell) for shell, name in SHELLS.items()}


def _mark(parser: argparse.ArgumentParser) -> None:
    """Tells shtab what the values of arguments are."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _mark(inner)
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "LEASE":
            action.complete = shtab.cmd("rgpu completion leases")  # type: ignore[attr-defined]


def main() -> None:
    """Writes all files, and removes those of commands that there are no more."""
    for folder, written in ((MAN, pages()), (COMPLETIONS, completions())):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            if old.name not in written:
                old.unlink()
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
