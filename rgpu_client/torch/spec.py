"""What is known of an operator before it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spec:
    """An operator, as `aten::add.Tensor`, and how it differs from most.

    floats: the form of its results does not depend on numbers with a fraction. uploads: tensors of
    the CPU are allowed among its arguments. waits: only the node knows the form of its results.
    """

    name: str
    operator: Any
    floats: bool = True
    uploads: bool = False
    waits: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """The positions, from the second on, where an integer counts as a number on which the form
        of the results does not depend: `x + 1`, but not `x.sum(1)`.
        """
        if not self.floats:
            return ()
        declared = [one for one in self.operator._schema.arguments if not one.kwarg_only]
        pairs = list(enumerate(declared))[1:]
        return tuple(at for at, one in pairs if str(one.real_type) in _NUMBERS)


class Number(int):
    """An integer that becomes a slot of a template."""


_NUMBERS = ("number", "Tensor", "Optional[number]")
