"""The manager's reference page says what the manager has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rgpu_cluster.core.quotas import TenantQuota
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.manager.config import ManagerConfig
from rgpu_cluster.manager.metrics import COUNTED
from rgpu_cluster.manager.page import replaced, section
from rgpu_common.keys import keys_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/manager.md"


def test_the_page_is_what_the_rows_say() -> None:
    page = PAGE.read_text()
    assert replaced(page) == page, "run `make gen`"


def test_every_key_and_preset_has_a_row() -> None:
    named = re.findall(r"^\| `([^`]+)` \|", section(), re.MULTILINE)
    rows = {row.name for row in keys_of(ManagerConfig)} - {"tenants"}
    rows |= {f"tenants.NAME.{row.name}" for row in keys_of(TenantQuota)}
    assert rows | set(PRESETS) <= set(named)


def test_every_kind_of_event_is_counted() -> None:
    noted = set()
    for path in (ROOT / "rgpu_cluster/manager").glob("*.py"):
        for call in re.findall(r"\.note\(([^\n]*)", path.read_text()):
            noted |= set(re.findall(r'"([a-z]+)"', call.split(", ")[0]))
    assert noted
    assert noted <= set(COUNTED)


def test_a_page_without_the_section_is_refused() -> None:
    with pytest.raises(ValueError, match="no section"):
        replaced("# A\n")
