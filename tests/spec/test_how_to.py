"""The code that docs/how-to/add-a-cuda-call.md shows is the code of the files that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from cudaspec import rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/add-a-cuda-call.md").read_text()
SHOWN = re.compile(r"`([\w./]+)`:\n\n```(\w+)\n(.*?)```", re.DOTALL)


def _words(text: str) -> str:
    return " ".join(text.split())


def _holds(source: str, code: str) -> bool:
    """Returns whether a Python source has this statement or expression, however it is laid out."""
    (shown,) = ast.parse(code).body
    wanted = ast.dump(shown.value if isinstance(shown, ast.Expr) else shown)
    return any(ast.dump(node) == wanted for node in ast.walk(ast.parse(source)))


def test_the_code_of_the_page_is_in_the_files() -> None:
    shown = SHOWN.findall(PAGE)
    assert [language for _, language, _ in shown] == ["python", "cpp", "python"]
    assert PAGE.count("```") == 2 * len(shown)
    for path, language, code in shown:
        source = (ROOT / path).read_text()
        found = _holds(source, code) if language == "python" else _words(code) in _words(source)
        assert found, path


def test_the_example_is_a_plain_call(spec: rows.Spec) -> None:
    call = spec.calls["cuDeviceGetTexture1DLinearMaxWidth"]
    assert call.makes_command
    assert call.name in spec.driver
    assert call.name in spec.emulated
