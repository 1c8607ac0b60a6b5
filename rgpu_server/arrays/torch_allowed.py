"""The list of PyTorch operators that are executed, which is data for each release of PyTorch.

`scripts/gen_torch_operators.py` writes the lists.
"""

from __future__ import annotations

import functools
import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgpu_common.errors import MissingPartError
from rgpu_server.arrays.library import NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Callable

torch: Any = import_module("torch")

_PREFIX = "torch_operators_"
# The lists by release, as 2.13. The worker's user may not be able to look for them later.
_LISTS = {
    path.stem.removeprefix(_PREFIX).replace("_", "."): path
    for path in Path(__file__).parent.glob(f"{_PREFIX}*.json")
}


class Allowed:
    """The operators that are on the list of the installed release."""

    def __init__(self, names: frozenset[str], excluded: dict[str, str], release: str) -> None:
        self.names = names
        self._excluded = excluded
        self._release = release

    @classmethod
    @functools.cache
    def installed(cls) -> Allowed:
        """Returns the list for the installed release of PyTorch. It reads a file once.

        Raises:
            MissingPartError: there is none.
        """
        release = ".".join(torch.__version__.split(".")[:2])
        if release not in _LISTS:
            raise MissingPartError(
                f"the array seam has no list of operators for PyTorch {release}; it has lists for "
                f"{', '.join(sorted(_LISTS))}: install one of these on the node"
            )
        data = json.loads(_LISTS[release].read_text())
        excluded = {
            name: str(group["reason"]) for group in data["excluded"] for name in group["operators"]
        }
        return cls(frozenset(data["operators"]), excluded, release)

    def find(self, name: str) -> Any:
        """Returns an operator by its name, as `aten::add.Tensor`.

        Raises:
            NotOfferedError: it is not on the list.
        """
        if name not in self.names:
            reason = self._excluded.get(name)
            why = f"it is left out because {reason}" if reason else "no such operator is listed"
            raise NotOfferedError(
                f"the operator {name[:100]} of PyTorch {self._release} is not executed on the "
                f"node: {why}; compute it on the CPU, with tensor.cpu()"
            )
        return resolved(name)


def resolved(name: str) -> Any:
    """Returns the operator of a listed name."""
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")


def fresh_results(schema: Any) -> Callable[[Any], list[Any]]:
    """Returns what picks, of what an operator returned, the results that are no argument which it
    changed. Lists of results are flattened.
    """
    returns = schema.returns
    fresh = [at for at, one in enumerate(returns) if not _changed(one)]
    if not fresh:
        return lambda results: []
    if len(returns) == 1:
        return lambda results: list(results) if isinstance(results, list | tuple) else [results]
    return lambda results: _flat([results[at] for at in fresh])


def changed_arguments(schema: Any) -> tuple[int | str, ...]:
    """Returns the positions, and for those by keyword the names, of arguments that it changes."""
    places: list[int | str] = []
    for at, argument in enumerate(schema.arguments):
        if _changed(argument):
            places += [argument.name] if argument.kwarg_only else [at, argument.name]
    return tuple(places)


def may_grow(schema: Any) -> bool:
    """True if the operator gives what it writes to the size of the result."""
    return schema.name.startswith("aten::resize") or any(
        one.kwarg_only and _changed(one) for one in schema.arguments
    )


def _changed(part: Any) -> bool:
    return part.alias_info is not None and bool(part.alias_info.is_write)


def _flat(results: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for one in results:
        if isinstance(one, list | tuple):
            flat.extend(one)
        else:
            flat.append(one)
    return flat
