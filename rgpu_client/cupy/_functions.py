"""The functions of a module, made of the list when a program first names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_client.cupy import _catalogue, _ufuncs
from rgpu_client.cupy._call import call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Function:
    """A function that is executed on the node."""

    def __init__(self, name: str) -> None:
        row = _catalogue.listed()[name]
        words = [*row.parameters, *(["..."] if row.rest else []), *row.keywords]
        self._name = name
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.__doc__ = f"{self.__name__}({', '.join(words)}): executed on the GPU node."

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if "out" in keywords and keywords["out"] is None:
            del keywords["out"]
        return call(self._name, arguments, keywords)

    def __repr__(self) -> str:
        return f"<function {self._name} on a GPU node>"


def function(name: str) -> Any:
    """Returns the function or ufunc of a name of the list."""
    row = _catalogue.listed()[name]
    return _ufuncs.get(name) if row.inputs else Function(name)


def _remedy(name: str) -> str:
    """Returns what to do without a name, for the end of a sentence. Names that begin with "_" are
    asked for by Python itself.
    """
    if name.startswith("_"):
        return ""
    return (
        ": rgpu executes a part of CuPy, and this is not in it (`rgpu help arrays`); compute it "
        "with NumPy, on what cupy.asnumpy returns"
    )


def lazy(
    module: str,
    prefix: str,
    scope: dict[str, Any],
    more: Mapping[str, Callable[[], Any]] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a module whose functions have a prefix in the list.

    more: other names, and what makes their values.
    """
    others = more or {}

    def find(name: str) -> Any:
        if name in others:
            value = others[name]()
        elif not name.startswith("_") and name in _catalogue.within(prefix):
            value = function(prefix + name)
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}{_remedy(name)}")
        scope[name] = value
        return value

    def names() -> list[str]:
        known = [name for name in scope if not name.startswith("_")]
        return sorted({*known, *others, *_catalogue.within(prefix)})

    return find, names
