"""A headless Chromium that looks at the page as people do, for tests.

It needs Debian's package `chromium` and Python's `playwright`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.needs import demand, which
from helpers.server import Server

# How long a view may take to show what has happened.
LIVE_MS = 2000
# How long anything else may take on a machine that is busy.
PATIENT_MS = 30_000
# With RGPU_TEST_SCREENSHOTS the pictures of the documentation are written into this folder.
PICTURES = os.environ.get("RGPU_TEST_SCREENSHOTS", "")


def address(log: list[str]) -> str:
    """Returns the page's address, from the log of the process that serves it."""
    line = next(line for line in log if "page on " in line)
    return re.sub(r".*page on (\S+).*", r"\1", line.strip())


class Visitor:
    """A browser's window on the page. wrong: what it has complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENT_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # A server that is away, and an answer that refuses, are told to the user.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def open(self, url: str) -> None:
        """Opens the page, and returns when it is live."""
        self.page.goto(url)
        self.page.locator(".link.live").wait_for()

    def go(self, view: str) -> None:
        """Follows a link of the views."""
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
        self.page.get_by_role("heading", level=1, name=view).wait_for()

    def table(self, name: str) -> Any:
        """Returns a table by its caption."""
        return self.page.get_by_role("table", name=name, exact=True)

    def row(self, table: str, text: str | re.Pattern[str]) -> Any:
        """Returns the row of a table that has this text."""
        return self.table(table).get_by_role("row").filter(has_text=text)

    def order(self, name: str, **fields: str) -> None:
        """Gives an order, fills its form, and confirms it."""
        self.page.get_by_role("group", name="Orders").get_by_role("button", name=name).click()
        dialog = self.page.get_by_role("dialog")
        for label, value in fields.items():
            dialog.get_by_role("textbox", name=label).fill(value)
        dialog.get_by_role("button", name=name).click()

    def says(self, text: str | re.Pattern[str]) -> None:
        """Waits until the page says this of the last order, to screen readers too."""
        self.page.get_by_role("status").filter(has_text=text).wait_for()

    def picture(self, name: str, *, height: int = 900) -> None:
        """Writes a picture of the page down to its end, or to `height`, for the documentation, if
        pictures are asked for.
        """
        if not PICTURES:
            return
        size = self.page.viewport_size
        self.page.set_viewport_size({"width": size["width"], "height": height})
        self.page.wait_for_timeout(700)  # until bars and curves have their lengths
        end = self.page.evaluate("document.querySelector('footer').getBoundingClientRect().bottom")
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(height, math.ceil(end))}
        self.page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), clip=clip)
        self.page.set_viewport_size(size)


@contextmanager
def window(browser: Any, **options: Any) -> Iterator[Visitor]:
    """Opens a window of its own; asserts at its end that nothing was wrong in it."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
    try:
        visitor = Visitor(context.new_page())
        yield visitor
        assert not visitor.wrong, visitor.wrong
    finally:
        context.close()


@contextmanager
def chromium() -> Iterator[Any]:
    """Runs the browser."""
    demand("chromium", "playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=which("chromium") or which("chromium-browser"), args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            browser.close()


def served(*arguments: str, **options: Any) -> Server:
    """Returns a server with a page."""
    return Server("--web", "127.0.0.1:0", *arguments, **options)
