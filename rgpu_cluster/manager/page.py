"""Writes the tables of docs/reference/manager.md, from the rows that the manager itself uses.

python -m rgpu_cluster.manager.page docs/reference/manager.md
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rgpu_cluster.core.filters import Reason
from rgpu_cluster.core.quotas import TenantQuota
from rgpu_cluster.core.score import PRESETS, Weights
from rgpu_cluster.manager.config import ManagerConfig
from rgpu_cluster.manager.metrics import CARD_GAUGES, COUNTED, STATE_GAUGES, TENANT_GAUGES
from rgpu_common.keys import Key, keys_of
from rgpu_common.pages import rewrite
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TITLE = "## Options and configuration"
_INTRO = """
`rgpu manager --config FILE` reads a file in TOML. A key that is not listed here is an error, as is
a value out of range. An option of the command line wins over its key. A relative path in the file
leads from the file's folder, one on the command line from the working folder. `make gen` writes all
tables of this page from the code.
"""
_EVENTS = "`rgpu pool --events` shows them. Each kind has a counter `rgpu_manager_KIND_total`."


def section() -> str:
    """Returns the tables in Markdown."""
    lines = [_TITLE, _INTRO.rstrip(), ""]
    lines += _table("key | meaning | value | default", _keys())
    lines += ["", "## Presets", ""]
    lines += ["The weight of each [term of the score](../explanation/placement.md#the-score)."]
    lines += ["", *_table(" | ".join(("preset", *_terms())), _presets())]
    lines += ["", "## Reasons", "", "Why `rgpu explain` excludes a card: it ...", ""]
    lines += _table("reason |", ((f"{reason.value}",) for reason in Reason), columns=1)
    lines += ["", "## Events", "", _EVENTS, ""]
    lines += _table("kind | what is counted", ((f"`{k}`", text) for k, text in COUNTED.items()))
    lines += ["", "## Metrics", "", "Beside the counters of events:", ""]
    lines += _table("metric | labels | meaning", _gauges())
    return "\n".join(lines) + "\n"


def _table(titles: str, rows: Iterable[Sequence[str]], columns: int = 0) -> list[str]:
    names = titles.strip(" |").split(" | ")
    rule = "| " + " | ".join(["--"] * (columns or len(names))) + " |"
    return [f"| {' | '.join(names)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def _rows() -> Iterable[tuple[str, Key]]:
    """Yields each key with its name in the page: those of a tenant's table too."""
    for row in keys_of(ManagerConfig):
        if row.name == "tenants":
            yield from ((f"tenants.NAME.{one.name}", one) for one in keys_of(TenantQuota))
        else:
            yield row.name, row


def _keys() -> Iterable[tuple[str, ...]]:
    for name, row in _rows():
        # A link within the server's page.
        meaning = row.described.replace("](#", "](server.md#")
        yield f"`{name}`", meaning, row.kind.accepted, row.default_text


def _terms() -> list[str]:
    return list(Weights.__struct_fields__)


def _presets() -> Iterable[tuple[str, ...]]:
    for name, weights in PRESETS.items():
        yield f"`{name}`", *(f"{getattr(weights, term) / PPM:g}" for term in _terms())


def _gauges() -> Iterable[tuple[str, ...]]:
    for name, text in STATE_GAUGES.items():
        yield f"`{name}`", "`state`", text
    for name, (text, _, _) in CARD_GAUGES.items():
        yield f"`{name}`", "`model`, `pool`", text
    for name, (text, _, _) in TENANT_GAUGES.items():
        yield f"`{name}`", "`tenant`", text


def replaced(page: str) -> str:
    """Returns the page with its tables written anew; they are its end."""
    before, title, _ = page.partition(_TITLE)
    if not title:
        raise ValueError(f"the page has no section {_TITLE!r}")
    return before + section()


if __name__ == "__main__":
    sys.exit(rewrite(sys.argv[1:], replaced))
