"""`safetensors` takes the name of this device, and opens files on it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from rgpu_client.torch.package import kind_of, torch


def install() -> None:
    """Has `safetensors.safe_open` take this device, if it is installed."""
    try:
        package = import_module("safetensors")
    except ImportError:
        return
    original = package.safe_open
    made = _Opening("safe_open", (), {"plain": original, "__doc__": original.__doc__})
    # `safetensors.torch` has it under the same name, if it was imported before.
    for module in (package, sys.modules.get("safetensors.torch")):
        if getattr(module, "safe_open", None) is original:
            module.safe_open = made  # type: ignore[union-attr]


class _Opening(type):
    """Makes what a program calls `safetensors.safe_open`."""

    plain: Any

    def __call__(cls, filename: Any, framework: Any, device: Any = "cpu", **keywords: Any) -> Any:
        return cls.plain(filename, framework, _numbered(device), **keywords)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)


def _numbered(device: Any) -> Any:
    """Returns the number of this device. `safetensors` refuses names that it does not know, and
    gives numbers to PyTorch, for which they mean this device.
    """
    if isinstance(device, str) and device.partition(":")[0] == "rgpu":
        device = torch.device(device)
    if isinstance(device, torch.device) and kind_of(device) == "rgpu":
        return device.index or 0
    return device
