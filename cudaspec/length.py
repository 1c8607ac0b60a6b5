"""Length expressions: `+`, `*`, names and integers, which C++ and Python evaluate alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([+*]))")
_MAX = (1 << 64) - 1


def parse(expression: str) -> list[list[int | str]]:
    """Returns a sum of products of names and integers; raises ValueError with a sentence."""
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
    """Returns the parameters that an expression uses."""
    return {factor for term in parse(expression) for factor in term if isinstance(factor, str)}


def evaluate(expression: str, values: Mapping[str, int]) -> int:
    """Returns the length as u64; raises OverflowError if a product or the sum does not fit."""
    total = 0
    for term in parse(expression):
        product = 1
        for factor in term:
            product *= values[factor] if isinstance(factor, str) else factor
            if product > _MAX:
                raise OverflowError(f"the length '{expression}' needs more than 64 bits.")
        total += product
    if total > _MAX:
        raise OverflowError(f"the length '{expression}' needs more than 64 bits.")
    return total
