"""Writes SVG pictures, with only the shapes that a chart needs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Point = tuple[float, float]


class Svg:
    """A picture of width x height pixels. Each added shape lies on top of the earlier ones."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = (width, height)
        self._parts = [f"<title>{_text(title)}</title>"]
        self._rules: dict[str, str] = {}

    def rule(self, name: str, css: str) -> None:
        """Adds a style. A shape uses it by passing `kind=name`."""
        self._rules[name] = css

    def rectangle(self, x: float, y: float, width: float, height: float, **style: str) -> None:
        self._add("rect", x=x, y=y, width=width, height=height, **style)

    def line(self, start: Point, end: Point, **style: str) -> None:
        self._add("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], **style)

    def polyline(self, points: Sequence[Point], **style: str) -> None:
        self._add("polyline", points=_points(points), fill="none", **style)

    def polygon(self, points: Sequence[Point], **style: str) -> None:
        self._add("polygon", points=_points(points), **style)

    def text(self, x: float, y: float, words: str, **style: str) -> None:
        self._parts.append(f"<text{_attributes({'x': x, 'y': y, **style})}>{_text(words)}</text>")

    def render(self) -> str:
        """Returns the SVG document."""
        width, height = self._size
        rules = "".join(f".{name}{{{css}}}" for name, css in self._rules.items())
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_number(width)}" '
            f'height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}" '
            f'role="img"><style>{rules}</style>'
        )
        return "\n".join([head, *self._parts, "</svg>\n"])

    def _add(self, element: str, **attributes: str | float) -> None:
        self._parts.append(f"<{element}{_attributes(attributes)}/>")


def _attributes(attributes: dict[str, str | float]) -> str:
    """Writes attributes. `kind` becomes `class`; underscores in other names become hyphens."""
    text = ""
    for name, value in attributes.items():
        plain = _text_number(value)
        text += f" {'class' if name == 'kind' else name.replace('_', '-')}={quoteattr(plain)}"
    return text


def _text_number(value: str | float) -> str:
    return value if isinstance(value, str) else _number(value)


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(words: str) -> str:
    """Escapes text. Control characters become "?", because XML allows none, not even escaped."""
    return escape("".join(c if c.isprintable() else "?" for c in words))
