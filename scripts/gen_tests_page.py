"""Writes docs/reference/tests.md: what tests need that pip does not bring, and which need it.

python scripts/gen_tests_page.py    # with rgpu and its test extra installed

It collects all tests. Their marks, fixtures and files say what they need (tests/helpers/needs.py).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "tests.md"
sys.path.insert(0, str(ROOT / "tests"))

from helpers import needs  # noqa: E402
from helpers.counts import SOAK  # noqa: E402

_INTRO = """# What tests need

For people who run the tests, or write one. `python -m pip install '.[test]'` brings all that most
tests need: rgpu, Python packages, CUDA's compilers and headers. The tests below need something
else, too. Where it is missing they are skipped with a sentence, and the end of the run lists what
was skipped for want of what, with the command that brings it:

```
skipped for want of nginx (apt-get install nginx-light): 11 tests
```

`RGPU_TEST_REQUIRE=all pytest` turns each of these skips into a failure, and `.ci/run` sets it so
that CI leaves no test out by mistake. The variable takes names of the table, separated by commas;
`-NAME` takes one out again: `all,-torch,-wheel`.

`make gen` writes this page from the tests themselves, and a test compares it with them. How a test
says what it needs is in `tests/helpers/needs.py`. In the last column a number says how many of a
file's test functions need it; without a number all of them do. A function counts if it needs it for
one of its parameters.

| name | looked for | brought by | tests |
| -- | -- | -- | -- |
"""


Tests = dict[str, dict[str, str]]


class _Catching:
    """A plugin that keeps the one of the needs."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.needing: needs.Needing = session.config.pluginmanager.get_plugin("needs")


def collected() -> needs.Needing:
    """Collects all tests in this process.  ValueError: it cannot."""
    caught = _Catching()
    words = ["--collect-only", "--all", "--numprocesses=0", "-p", "no:cacheprovider", "-q"]
    output = io.StringIO()
    before = Path.cwd()
    os.chdir(ROOT)
    variables = {name: value for name, value in os.environ.items() if name != needs.REQUIRE}
    try:
        with (
            contextlib.redirect_stdout(output),
            patch.dict(os.environ, {**variables, SOAK: "1"}, clear=True),
        ):
            status = pytest.main([*words, "tests"], plugins=[caught])
    finally:
        os.chdir(before)
    if status != pytest.ExitCode.OK:
        raise ValueError(f"pytest cannot collect the tests:\n{output.getvalue()}")
    return caught.needing


def tests_of(needing: needs.Needing) -> Tests:
    """Returns, for each need, its files, and how many of their functions if not all."""
    found: Tests = {}
    for name in needs.NEEDS:
        found[name] = {}
        for path in sorted({*needing.needing[name], *needing.whole[name]}):
            count, all_of_it = len(needing.needing[name][path]), len(needing.functions[path])
            few = path not in needing.whole[name] and count < all_of_it
            found[name][str(path.relative_to(ROOT))] = f" ({count} of {all_of_it})" if few else ""
    return found


def page(tests: Tests) -> str:
    """Returns the page.  ValueError: no test needs a row of the table."""
    lines = []
    for name, need in needs.NEEDS.items():
        if not tests[name]:
            raise ValueError(f"no test needs {name}: take it out of tests/helpers/needs.py")
        files = ", ".join(f"`{file}`{few}" for file, few in tests[name].items())
        lines.append(f"| {name} | {need.looked} | {_cell(need.remedy)} | {files} |\n")
    return _INTRO + "".join(lines)


def _cell(remedy: str) -> str:
    """Returns a remedy as Markdown: a command as code."""
    return f"`{remedy}`" if remedy.startswith(("apt-get", "python -m pip")) else remedy


def written(text: str) -> Tests:
    """Returns what a page says of the tests."""
    rows = [row.split(" | ") for row in text.splitlines() if row.startswith("| ")][2:]
    file = re.compile(r"`(tests/[^`]+)`((?: \(\d+ of \d+\))?)")
    return {row[0].removeprefix("| "): dict(file.findall(row[-1])) for row in rows}


if __name__ == "__main__":
    PAGE.write_text(page(tests_of(collected())), encoding="utf-8")
