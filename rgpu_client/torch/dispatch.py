"""Executes PyTorch's operators on the node: one kernel for each operator of the dispatcher.

A kernel goes through its arguments once and makes a key of all that the result's form depends on.
For a known key there is a *plan*: a template on the node and the forms of the results. So an
operator costs a few microseconds and one small message. What a plan needs is worked out once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rgpu_client.torch import generators
from rgpu_client.torch.errors import other_device, other_session
from rgpu_client.torch.package import torch
from rgpu_client.torch.plans import Plan, make_plan, uploaded
from rgpu_client.torch.session import session
from rgpu_client.torch.spec import Number, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PLANS = 1024
_kernels: list[Kernel] = []
_Tensor, _Generator = torch.Tensor, torch.Generator


class Kernel:
    """The kernel of one operator, as `aten::add.Tensor`."""

    __slots__ = ("_floats", "_numbers", "_plans", "_spec", "_uploads")

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._floats = spec.floats
        self._uploads = spec.uploads
        self._numbers = spec.numbers
        self._plans: dict[Any, Plan] = {}
        _kernels.append(self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        issuer = session.issuer or session.current()
        if self._uploads:
            arguments = uploaded(arguments)
        for at in self._numbers:
            if at < len(arguments) and type(arguments[at]) is int:
                arguments = (*arguments[:at], Number(arguments[at]), *arguments[at + 1 :])
        key: list[Any] = []
        slots: list[Any] = []
        self._gather(issuer, arguments, key, slots)
        if keywords:
            # Of the values each begins with a type or a tuple, so the names end before them.
            key.extend(keywords)
            self._gather(issuer, keywords.values(), key, slots)
        known = tuple(key)
        plan = self._plans.get(known)
        if plan is None or plan.issuer is not issuer or plan.template <= issuer.stale:
            plan = make_plan(issuer, (self._spec.name, known), self._spec, arguments, keywords)
            self._remember(known, plan)
        return plan.run(slots, arguments, keywords)

    def _gather(self, issuer: Any, values: Iterable[Any], key: list[Any], slots: list[Any]) -> None:
        """Adds to the key what the results' form depends on, and to the slots what varies."""
        add = key.append
        for value in values:
            if isinstance(value, _Tensor):
                try:
                    record = value.untyped_storage()._rgpu
                except AttributeError:
                    self._gather_host(value, key, slots)
                    continue
                if record.issuer is not issuer:
                    raise other_session()
                dtype = value.dtype
                bits = 2 if value.is_neg() else 0
                if dtype.is_complex and value.is_conj():
                    bits += 1
                view = (dtype, value.shape, value.stride(), value.storage_offset(), bits)
                add(view)
                slots.append(record.ids.get(view) or record.find(view))
                continue
            kind = type(value)
            add(kind)
            if kind is float or kind is Number:
                if self._floats:
                    slots.append(value)
                else:
                    add(value)
            elif kind is list or kind is tuple:
                add(len(value))
                self._gather(issuer, value, key, slots)
            elif kind is complex:
                if self._floats:
                    slots.append([value.real, value.imag])
                else:
                    add(value)
            elif isinstance(value, _Generator):
                slots.append(generators.id_of(value, issuer))
            else:
                add(value)

    def _gather_host(self, value: Any, key: list[Any], slots: list[Any]) -> None:
        """A tensor of the CPU: without dimensions it counts as a number of its dtype."""
        dtype = value.dtype
        if not value.is_cpu or value.shape:
            raise other_device(value.device)
        key.append(("host", dtype))
        number = value.item()
        slots.append([number.real, number.imag] if dtype.is_complex else number)

    def forget(self) -> None:
        """Makes all plans anew."""
        self._plans = {}

    def _remember(self, known: Any, plan: Plan) -> None:
        while len(self._plans) >= _PLANS:
            self._plans.pop(next(iter(self._plans)), None)
        self._plans[known] = plan


def setting_default(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns `torch.set_default_dtype`, or its older kin: a plan holds for one default dtype."""

    @functools.wraps(original)
    def set_default(chosen: Any) -> None:
        before = torch.get_default_dtype()
        original(chosen)
        if torch.get_default_dtype() is not before:
            for kernel in _kernels:
                kernel.forget()

    return set_default
