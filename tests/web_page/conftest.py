"""The browser of a file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from web_page.browser import Visitor, chromium, window


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def visitor(browser: Any) -> Iterator[Visitor]:
    with window(browser) as opened:
        yield opened
