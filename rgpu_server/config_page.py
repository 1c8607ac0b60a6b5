"""Writes the section about the configuration file in docs/reference/server.md, from the keys.

python -m rgpu_server.config_page docs/reference/server.md
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rgpu_common.keys import Key, keys_of
from rgpu_common.pages import rewrite
from rgpu_server.config import ServerConfig
from rgpu_server.core.policy import TenantPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TITLE = "## Configuration file"
_INTRO = """
`rgpu serve --config FILE` reads a file in TOML. A key that is not listed here is an error, as is a
value out of range. An option of the command line wins over its key. A relative path in the file
leads from the file's folder, one on the command line from the working folder. Sizes are bytes,
`"512MiB"` or `"2GiB"` ([units](units.md)). `make gen` writes these tables from the classes in
`rgpu_server/config.py`.
"""
# Table of the file -> what it is about. The empty name is the file's root.
_TABLES = {
    "": "",
    "server": "the server itself",
    "identity": "who clients are",
    "tls": "certificates",
    "isolation": "what isolates processes",
    "sessions": "sessions and connections",
    "leases": "leases",
    "quota": "sharing between tenants",
    "tenants.NAME": 'one tenant, or `"*"`: every tenant without a table',
    "pools": "groups of devices",
    "workers": "processes that serve sessions",
    "emulated": "emulated devices",
    "metrics": "what Prometheus reads",
    "record": "the record of usage",
    "web": "the page for browsers",
    "probe": "measurements of the network",
    "cluster": "the cluster that the server joins",
}


def section() -> str:
    """Returns the section in Markdown."""
    rows = list(keys_of(ServerConfig))
    lines = [_TITLE, _INTRO.rstrip()]
    for table, about in _TABLES.items():
        lines += ["", f"### `[{table}]`: {about}" if table else "### Outside of tables", ""]
        lines += ["| key | meaning | value | default |", "| -- | -- | -- | -- |"]
        lines += [_row(name, row) for name, row in _rows_of(table, rows)]
    return "\n".join(lines) + "\n"


def _rows_of(table: str, rows: Sequence[Key]) -> Iterable[tuple[str, Key]]:
    if table == "tenants.NAME":
        return ((f"{table}.{row.name}", row) for row in keys_of(TenantPolicy))
    if table == "pools":
        return (("pools.NAME", row) for row in rows if row.name == table)
    return (
        (row.name, row)
        for row in rows
        if row.table == table and row.name not in ("tenants", "pools")
    )


def _row(name: str, row: Key) -> str:
    return f"| `{name}` | {row.described} | {row.kind.accepted} | {row.default_text} |"


def replaced(page: str) -> str:
    """Returns the page with its section written anew."""
    before, title, after = page.partition(_TITLE)
    if not title:
        raise ValueError(f"the page has no section {_TITLE!r}")
    return before + section() + after[after.index("\n## ") :]


if __name__ == "__main__":
    sys.exit(rewrite(sys.argv[1:], replaced))
