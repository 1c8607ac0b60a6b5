"""Makes the device known to PyTorch, once for each process."""

from __future__ import annotations

from typing import Any

from rgpu_client.torch import (
    accelerator,
    attention,
    autocast,
    backend,
    backward,
    generators,
    modules,
    patches,
    processes,
    registry,
    safetensors_files,
    script_modules,
    untyped,
)
from rgpu_client.torch.package import torch


def _install() -> Any:
    torch.utils.rename_privateuse1_backend("rgpu")
    torch.utils.generate_methods_for_privateuse1_backend()
    torch._register_device_module("rgpu", backend.module())
    torch._C._acc.register_python_privateuseone_hook(backend.Hook())
    torch._C._acc.register_python_privateuseone_device_guard(backend.Guard())
    registry.register()
    attention.register()
    autocast.register()
    generators.install()
    backward.install()
    untyped.install()
    processes.install()
    patches.install()
    modules.install()
    script_modules.install()
    accelerator.install()
    safetensors_files.install()
    return torch.device("rgpu", 0)


device = _install()
