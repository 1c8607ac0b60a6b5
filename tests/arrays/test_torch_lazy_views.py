"""Every write through a view that is conjugated or negated lazily reaches the tensor itself, as on
the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch", "msgpack")

from helpers.torch_session import issuer  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402

__all__ = ["issuer"]
Tensor = Any

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "conj": lambda x: x.conj(),
    "mH": lambda x: x.mH,
    "adjoint": lambda x: x.adjoint(),
    "conj().t()": lambda x: x.conj().t(),
    "conj()[1:]": lambda x: x.conj()[1:],
    "conj().imag": lambda x: x.conj().imag,
    "conj().imag[0]": lambda x: x.conj().imag[0],
    "_neg_view": lambda x: torch._neg_view(x),
    "_neg_view of conj": lambda x: torch._neg_view(x.conj()),
    "real of _neg_view": lambda x: torch._neg_view(x.real),
}


def like(view: Tensor) -> Tensor:
    """Other elements for a view, on the device of the test."""
    values = torch.arange(view.numel(), dtype=torch.float32).reshape(view.shape) + 1
    return (values - 2j * values if view.is_complex() else values).to(view.device, view.dtype)


def rows(view: Tensor) -> Tensor:
    return torch.tensor([0], device=view.device)


def set_items(view: Tensor) -> None:
    view[...] = like(view)


def index_put(view: Tensor) -> None:
    view.index_put_((rows(view),), like(view)[:1])


def scatter(view: Tensor) -> None:
    index = torch.zeros((1,) * view.dim(), dtype=torch.int64, device=view.device)
    view.scatter_(0, index, like(view))


def out_of(name: str) -> Callable[[Tensor], None]:
    def write(view: Tensor) -> None:
        getattr(torch, name)(like(view), like(view), out=view)

    return write


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "mul_": lambda v: v.mul_(3),
    "add_": lambda v: v.add_(like(v)),
    "sub_": lambda v: v.sub_(like(v), alpha=2),
    "div_": lambda v: v.div_(2),
    "copy_": lambda v: v.copy_(like(v)),
    "copy_ of a lazy view": lambda v: v.copy_(torch._neg_view(like(v))),
    "copy_ from the host": lambda v: v.copy_(like(v).cpu()),
    "fill_": lambda v: v.fill_(7),
    "zero_": lambda v: v.zero_(),
    "exp_": lambda v: v.exp_(),
    "neg_": lambda v: v.neg_(),
    "setitem": set_items,
    "index_put_": index_put,
    "index_fill_": lambda v: v.index_fill_(0, rows(v), 5),
    "index_copy_": lambda v: v.index_copy_(0, rows(v), like(v)[:1]),
    "index_add_": lambda v: v.index_add_(0, rows(v), like(v)[:1]),
    "masked_fill_": lambda v: v.masked_fill_(like(v).real > 1, 9),
    "scatter_": scatter,
    "add out=": out_of("add"),
    "mul out=": out_of("mul"),
}


def elements() -> Tensor:
    return torch.tensor([[1 + 2j, 3 - 4j], [5 + 6j, -7 + 8j]], dtype=torch.complex64)


@pytest.mark.parametrize("view", VIEWS)
def test_a_write_through_a_lazy_view_is_kept(issuer: Issuer, view: str) -> None:
    wrong = []
    for name, write in WRITES.items():
        here, there = elements(), elements().to("rgpu")
        write(VIEWS[view](here))
        write(VIEWS[view](there))
        if not torch.allclose(here, there.cpu()):
            wrong.append(f"{name}: {there.cpu().tolist()}, and {here.tolist()} on the CPU")
    assert not wrong, "\n".join(wrong)


def test_a_lazy_view_is_read_as_on_the_cpu(issuer: Issuer) -> None:
    for name, view in VIEWS.items():
        here, there = elements(), elements().to("rgpu")
        assert torch.equal(view(here).clone(), view(there).cpu()), name
        assert torch.equal((view(here) * 2).resolve_conj(), (view(there) * 2).cpu()), name
        target = torch.empty_like(view(here))
        assert torch.equal(target.copy_(view(there)), view(here)), name


def test_a_gradient_through_a_lazy_view_is_that_of_the_cpu(issuer: Issuer) -> None:
    gradients = []
    for device in ("cpu", "rgpu"):
        x = elements().to(device).requires_grad_()
        y = x * 1
        y.conj().mul_(2j)
        y.conj().imag.add_(3)
        y.abs().sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.allclose(*gradients)
