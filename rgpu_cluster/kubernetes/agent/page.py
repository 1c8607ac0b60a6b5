"""Writes the table of docs/reference/agent-node.md, from the rows that the agent itself uses.

python -m rgpu_cluster.kubernetes.agent.page docs/reference/agent-node.md
"""

from __future__ import annotations

import sys

from rgpu_cluster.kubernetes.agent.config import AgentConfig
from rgpu_common.keys import keys_of
from rgpu_common.pages import rewrite

_TITLE = "## Options"
_INTRO = "`make gen` writes this table from the code."


def section() -> str:
    """Returns the table in Markdown."""
    lines = [_TITLE, "", _INTRO, "", "| option | meaning | default |", "| -- | -- | -- |"]
    for row in keys_of(AgentConfig):
        assert row.option is not None
        flag = f"{row.option.flag} {row.option.metavar}".strip()
        words = f" {row.option.metavar}: {row.kind.word}." if row.kind.word else ""
        lines.append(f"| `{flag}` | {row.meaning}{words} | {row.default_text} |")
    return "\n".join(lines) + "\n"


def replaced(page: str) -> str:
    """Returns the page with its table written anew; it is the page's end."""
    before, title, _ = page.partition(_TITLE)
    if not title:
        raise ValueError(f"the page has no section {_TITLE!r}")
    return before + section()


if __name__ == "__main__":
    sys.exit(rewrite(sys.argv[1:], replaced))
