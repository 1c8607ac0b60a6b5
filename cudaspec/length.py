"""Length expressions: `+ *`, names and integers, so that C++ and Python evaluate them alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([+*]))")
_MAX = (1 << 64) - 1


def parse(expression: str) -> list[list[int | str]]:
    """A sum of products of names and integers.  Raises ValueError with a sentence."""
    terms: list[list[int | str]] = [[]]
    position, want_operand = 0, True
    text = expression.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or want_operand == bool(match.group(3)):
            raise ValueError(
                f"the length '{expression}' is not '+' and '*' over names and integers."
            )
        number, name, operator = match.groups()
        if operator == "+":
            terms.append([])
        elif not operator:
            terms[-1].append(int(number) if number else name)
        want_operand = bool(operator)
        position = match.end()
    if want_operand:
        raise ValueError(f"the length '{expression}' is not '+' and '*' over names and integers.")
    return terms


def names(expression: str) -> set[str]:
    """The parameters an expression reads."""
    return {factor for term in parse(expression) for factor in term if isinstance(factor, str)}


def evaluate(expression: str, values: Mapping[str, int]) -> int:
    """The length in u64.  Raises OverflowError when it, or a product in it, does not fit."""
    total = 0
    for term in parse(expression):
        product = 1
        for factor in term:
            product *= values[factor] if isinstance(factor, str) else factor
            if product > _MAX:
                raise OverflowError(f"the length '{expression}' passes 64 bits.")
        total += product
    if total > _MAX:
        raise OverflowError(f"the length '{expression}' passes 64 bits.")
    return total
