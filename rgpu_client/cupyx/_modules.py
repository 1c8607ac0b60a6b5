"""What the modules of `cupyx` are made of."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from rgpu_client.cupy import _functions
from rgpu_client.cupy._rules import all as _all_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_RULES = _all_rules.MODULES


@contextlib.contextmanager
def errstate(**_: Any) -> Iterator[None]:
    """Changes nothing: failures come as exceptions."""
    yield


def package(
    module: str,
    prefix: str,
    scope: dict[str, Any],
    modules: tuple[str, ...] = (),
    more: Mapping[str, Any] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a package.

    modules: its modules, which are imported when they are named. more: other names.
    """
    others: dict[str, Callable[[], Any]] = {
        name: lambda name=name: importlib.import_module(f"{module}.{name}")  # type: ignore[misc]
        for name in modules
    }
    for name, value in (more or {}).items():
        others[name] = lambda value=value: value  # type: ignore[misc]
    return _functions.lazy(module, prefix, scope, others)
