"""Python runs this at its start under `rgpu run --torch`: what says `cuda` then means the node."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _install() -> None:
    from rgpu_client.torch import as_cuda

    as_cuda.install()


def _next() -> None:
    """Runs the sitecustomize that this one hides, if there is one."""
    own = __file__.rpartition("/")[0]
    spec = PathFinder.find_spec("sitecustomize", [one for one in sys.path if one != own])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    from rgpu_client.arrays.afterwards import after_import
except ModuleNotFoundError as error:
    # The program's Python is another one than rgpu's; `advice` says so if the program ends by that.
    if error.name != "rgpu_client":
        raise
else:
    after_import("torch", _install)
_next()
