"""How the parameters of a module come to this device, and leave it: `to`, `cuda` and `cpu`.

On a GPU a parameter gets other elements and is the same object as before: optimizers have it, and
it keeps its hooks, its attributes and its class. PyTorch knows two ways for the other devices: it
makes a new parameter, or it swaps the whole object for a new one. So the elements are replaced here
before PyTorch looks at the parameter.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.package import torch
from rgpu_client.torch.patches import is_here

if TYPE_CHECKING:
    from collections.abc import Callable

_is_wrapper = torch.utils._python_dispatch.is_traceable_wrapper_subclass


def install() -> None:
    """Lets the parameters of modules stay the same objects."""
    torch.nn.Module._apply = _applying(torch.nn.Module._apply)
    # Parameters and buffers of lazy modules know by these functions what may be done to them.
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.to)


def _applying(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: Any, function: Any, recurse: bool = True) -> Any:
        # By the id of a tensor: the tensor, which lives meanwhile, and what becomes of it.
        made: dict[int, tuple[Any, Any]] = {}
        for one in self._parameters.values():
            if one is not None and id(one) not in made:
                _convert(one, function, made)

        def known(one: Any) -> Any:
            found = made.get(id(one))
            return function(one) if found is None else found[1]

        return original(self, known, recurse)

    return apply


def _convert(parameter: Any, function: Any, made: dict[int, tuple[Any, Any]]) -> None:
    """Notes what a function makes of a parameter. If that is on another device than the parameter,
    the parameter gets it here.
    """
    with torch.no_grad():
        other = function(parameter.data if torch.nn.parameter.is_lazy(parameter) else parameter)
    if is_here(other) == is_here(parameter) or _is_wrapper(other):
        made[id(parameter)] = parameter, other
        return
    gradient = parameter.grad
    replace(parameter, other)
    made[id(parameter)] = parameter, parameter
    if gradient is not None:
        with torch.no_grad():
            parameter.grad = function(gradient).requires_grad_(gradient.requires_grad)
        made[id(parameter.grad)] = parameter.grad, parameter.grad


def replace(parameter: Any, other: Any) -> None:
    """Gives a parameter the elements of another tensor. It has no gradient then."""
    kept = parameter._backward_hooks, parameter._post_accumulate_grad_hooks
    if parameter.requires_grad and parameter._use_count() > 1:
        # A graph may still have the parameter as it was, and would accumulate its gradient there.
        torch.autograd.graph.get_gradient_edge(parameter).node.register_prehook(_late)
    other = other.detach().requires_grad_(parameter.requires_grad)
    torch._C._swap_tensor_impl(parameter, other)
    # They belong to what was swapped.
    parameter._backward_hooks, parameter._post_accumulate_grad_hooks = kept


def _late(_: Any) -> None:
    raise RuntimeError(
        "a module was moved to another device between its forward pass and the backward pass: move "
        "it before the one or after the other"
    )
