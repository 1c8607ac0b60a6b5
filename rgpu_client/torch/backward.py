"""Exceptions of hooks in a backward pass on this device.

PyTorch's threads leave a stream of the device while the exception of a hook is on its way, and ask
the device's guard, which is Python, for its type. Python takes the result of no call while an
exception is pending, and PyTorch would end the process. So the guard takes the exception away, and
here it is raised where the program waits for the backward pass.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

from rgpu_client.torch.package import torch

# A function that raises what is pending: to it -1 may be the result of a conversion that failed.
raise_pending = "".center
# Passes of several threads that fail at the same time may raise each other's exception. One that no
# pass asks for is dropped when others follow.
_taken: deque[BaseException] = deque(maxlen=8)
take = _taken.append


def install() -> None:
    """Raises what was taken from a backward pass."""
    run = _raising(torch.autograd.graph._engine_run_backward)
    torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward = run


def _raising(original: Any) -> Any:
    @functools.wraps(original)
    def run_backward(*arguments: Any, **keywords: Any) -> Any:
        try:
            return original(*arguments, **keywords)
        except SystemError:
            # Python's own: PyTorch has returned an error and did not find the exception.
            if not _taken:
                raise
            error = _taken.pop()
        raise error

    return run_backward
