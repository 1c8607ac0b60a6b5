"""Indents the content of lists by four blanks a level, which Python-Markdown needs.

The pages are formatted by mdformat, which indents it to the width of the item's mark, as GitHub
needs it.
"""

from __future__ import annotations

import re

_ITEM = re.compile(r"( *)((?:[-*]|\d+\.) +)")
_FENCE = re.compile(r" *(```|~~~)")
_STEP = 4


def reindented(text: str) -> str:
    """Returns the Markdown with its lists indented anew."""
    lines = []
    # The column of the content of each list that is open.
    open_lists: list[int] = []
    fence = False
    for line in text.splitlines():
        if not line.strip():
            lines.append(line)
            continue
        indent = len(line) - len(line.lstrip(" "))
        if not fence:
            while open_lists and indent < open_lists[-1]:
                open_lists.pop()
        above = open_lists[-1] if open_lists else 0
        lines.append(" " * (_STEP * len(open_lists) + max(indent - above, 0)) + line.lstrip(" "))
        if _FENCE.match(line):
            fence = not fence
        elif not fence and (item := _ITEM.match(line)):
            open_lists.append(len(item[0]))
    return "\n".join(lines) + "\n"
