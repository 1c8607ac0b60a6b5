"""The page about the Python API: what `rgpu_client` offers, by mkdocstrings."""

from __future__ import annotations

import rgpu_client

_INTRO = """# Python API

For programs that connect by themselves, as notebooks do. What `rgpu_client` offers is listed here
when the site is built, from the code's own types and texts.
"""


def python_page() -> str:
    """Returns the page in Markdown. ValueError: a name that is offered has no text."""
    lines = [_INTRO]
    for name in sorted(rgpu_client.__all__, key=str.lower):
        found = getattr(rgpu_client, name)
        if not (found.__doc__ or "").strip():
            raise ValueError(f"rgpu_client.{name} is offered and has no docstring")
        # Where it is defined: mkdocstrings does not follow names that are loaded later.
        module = getattr(found, "__module__", rgpu_client.__name__)
        lines.append(f"::: {module}.{getattr(found, '__qualname__', name)}\n")
    return "\n".join(lines)
