"""PyTorch itself, checked once: the release, and the private functions that this package needs."""

from __future__ import annotations

import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_common.errors import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Callable

# Releases that the tests have run with: first, and first that is too new.
_FIRST, _BEYOND = (2, 13), (2, 14)
_NEEDED = (
    "torch._C._acc.create_empty_tensor",
    "torch._C._acc.register_python_privateuseone_hook",
    "torch._C._acc.register_python_privateuseone_device_guard",
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    "torch._C._dispatch_get_all_op_names",
    "torch._C.DisableTorchFunction",
    "torch.utils.rename_privateuse1_backend",
    "torch.utils.generate_methods_for_privateuse1_backend",
    "torch._register_device_module",
)


def checked_package() -> Any:
    """Returns the module `torch`.

    Raises:
        MissingPartError: it is not installed, or is another release than this package is made for.
    """
    try:
        package = import_module("torch")
    except ModuleNotFoundError:
        raise MissingPartError(
            "PyTorch is not installed here: install its CPU build, for example with "
            "`pip install torch --index-url https://download.pytorch.org/whl/cpu`"
        ) from None
    wanted = f"install torch>={_FIRST[0]}.{_FIRST[1]},<{_BEYOND[0]}.{_BEYOND[1]}"
    release = tuple(int(one) for one in package.__version__.split("+")[0].split(".")[:2])
    if not _FIRST <= release < _BEYOND:
        raise MissingPartError(
            f"rgpu_client.torch does not know PyTorch {package.__version__}: {wanted}"
        )
    for name in _NEEDED:
        if not _has(package, name.split(".")[1:]):
            raise MissingPartError(
                f"PyTorch {package.__version__} has no {name}, which rgpu_client.torch needs: "
                f"{wanted}"
            )
    return package


# Sessions whose node has the right release.
_checked: weakref.WeakSet[Any] = weakref.WeakSet()


def check_release(issuer: Any) -> None:
    """Checks, once for each session, that the node has the same minor release.

    Raises:
        RuntimeError: it has another one.
    """
    if issuer in _checked:
        return
    there, here = str(issuer.ask("version")), str(torch.__version__)
    if there.split(".")[:2] != here.split(".")[:2]:
        raise RuntimeError(
            f"the node has PyTorch {there}, and this process has {here}: install the node's "
            "release here"
        )
    _checked.add(issuer)


def _has(package: Any, path: list[str]) -> bool:
    found = package
    for name in path:
        found = getattr(found, name, None)
        if found is None:
            return False
    return True


torch: Any = checked_package()

# Returns the type of a device, as `rgpu`. Where a program says `cuda`, `device.type` says so too.
kind_of: Callable[[Any], str] = torch.device.type.__get__
