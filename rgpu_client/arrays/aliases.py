"""Lets a program import a module of ours under the name of the library that it was written for."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _Alias(Loader):
    """Gives the module that has another name. There is one module with two names, not a copy."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._real)
        # What importing sets on a new module belongs to the real name.
        spec.loader_state = (module.__spec__, module.__loader__, module.__package__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is None or spec.loader_state is None:
            return
        module.__spec__, module.__loader__, module.__package__ = spec.loader_state


class _Finder(MetaPathFinder):
    def __init__(self, name: str, real: str) -> None:
        self._name, self._real = name, real

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name and not fullname.startswith(self._name + "."):
            return None
        real = self._real + fullname[len(self._name) :]
        try:
            module = import_module(real)
        except ModuleNotFoundError as error:
            if error.name is not None and real.startswith(error.name):
                return None
            raise
        return ModuleSpec(fullname, _Alias(real), is_package=hasattr(module, "__path__"))


def install(name: str, real: str) -> None:
    """From now on `import NAME` and `import NAME.x` give the modules `real` and `real.x`."""
    if not any(isinstance(one, _Finder) and one._name == name for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, real))
