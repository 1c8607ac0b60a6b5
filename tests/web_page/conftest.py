"""The browser of a file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.needs import fixture_needs

from web_page.browser import Visitor, chromium, window


@pytest.fixture(scope="module")
@fixture_needs("chromium", "playwright")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def visitor(browser: Any) -> Iterator[Visitor]:
    with window(browser) as opened:
        yield opened
