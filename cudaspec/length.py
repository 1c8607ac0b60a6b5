"""Length expressions: `+` and `*` over names and integers, from which C++ is generated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([+*]))")


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


def cpp(expression: str, value: Callable[[str], str]) -> str:
    """Returns a C++ expression of type uint64_t, which is UINT64_MAX if the length does not fit.

    value: the C++ expression of a name.
    """
    total = ""
    for term in parse(expression):
        product = ""
        for factor in term:
            operand = value(factor) if isinstance(factor, str) else f"uint64_t{{{factor}}}"
            product = f"base::SaturatedProduct({product}, {operand})" if product else operand
        total = f"base::SaturatedSum({total}, {product})" if total else product
    return total
