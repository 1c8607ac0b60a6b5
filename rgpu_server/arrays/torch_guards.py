"""What PyTorch's CPU build does not check itself.

Some operators trust what comes to them, because autograd or another operator made it: indices,
sizes that belong together, statistics of a forward pass. On the CPU, a wrong one reads or writes
anywhere in the process. These guards look first. A GPU's memory is guarded by its driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_server.arrays import torch_guards_loss, torch_guards_parts, torch_guards_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Guard = Callable[[Mapping[str, Any]], None]

torch: Any = import_module("torch")

GUARDS: dict[str, Guard] = {
    **torch_guards_shapes.GUARDS,
    **torch_guards_loss.GUARDS,
    **torch_guards_parts.GUARDS,
}


def guarded(name: str, call: Callable[..., Any], schema: Any) -> Callable[..., Any]:
    """Returns a call of an operator that looks at its arguments first.

    Args:
        name: the operator, as `aten::lcm.out`. Its overloads may have one guard.
        call: executes it.
        schema: gives the names and defaults of arguments.
    """
    full = name.removeprefix("aten::")
    guard = GUARDS.get(full) or GUARDS.get(full.partition(".")[0])
    if guard is None:
        return call
    names = [one.name for one in schema.arguments]
    defaults = {one.name: one.default_value for one in schema.arguments}

    def run(*arguments: Any, **keywords: Any) -> Any:
        given = {**defaults, **dict(zip(names, arguments, strict=False)), **keywords}
        try:
            guard(given)
        except AttributeError:
            # A number in the place of a tensor.
            raise TypeError(f"{name} got an argument of a wrong type") from None
        return call(*arguments, **keywords)

    return run
