"""The page about the command line, from the parsers of the commands."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from rgpu_common.command import all_commands, parser_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTRO = """# Command line

For people who look up an option. This page is written from the parsers of the commands when the
site is built; `rgpu COMMAND --help` and `man rgpu-COMMAND` say the same.
"""


def cli_page() -> str:
    """Returns the page in Markdown."""
    lines = [_INTRO]
    for command in all_commands():
        lines += [f"## rgpu {command.name}", "", f"{_text(command.summary)}.", ""]
        lines += _parser(parser_of(command))
    return "\n".join(lines)


def _parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from ("```text", usage, "```", "")
    verbs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    rows = [
        f"| {_name(action)} | {_help(parser, action)} |"
        for action in parser._actions
        if action not in verbs and not isinstance(action, argparse._HelpAction)
    ]
    if rows:
        yield from ("| argument | meaning |", "| -- | -- |", *rows, "")
    if parser.epilog:
        yield from (_text(parser.epilog.replace("%%", "%")), "")
    for action in verbs:
        about = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, inner in action.choices.items():
            yield from (f"### {inner.prog}", "", f"{_text(about.get(name, ''))}.", "")
            yield from _parser(inner)


def _name(action: argparse.Action) -> str:
    """Returns the words that give the argument."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices is not None and action.metavar is None:
        value = "\\|".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{value}`"
    takes = action.nargs != 0
    return ", ".join(f"`{flag}{f' {value}' if takes else ''}`" for flag in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return _text(parser._get_formatter()._expand_help(action) if action.help else "")


def _text(text: str) -> str:
    """Returns a help text as Markdown: what stands between backquotes stays as it is."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part.replace("|", "\\|")
        if part.startswith("`")
        else re.sub(r"([<>*_\[\]|])", r"\\\1", part)
        for part in parts
    )
