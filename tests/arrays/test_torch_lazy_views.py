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


# Operators whose results share the storage of an argument, on the CPU for some lazy views at least.
# Many of them do not say so in their schemas.
SHARING: dict[str, Callable[[Tensor], Tensor]] = {
    "_unsafe_view": lambda v: torch.ops.aten._unsafe_view(v, [v.numel()]),
    "unsafe_split": lambda v: torch.unsafe_split(v, 1)[0],
    "unsafe_split_with_sizes": lambda v: torch.unsafe_split_with_sizes(v, [1] * len(v))[0],
    "unsafe_chunk": lambda v: torch.unsafe_chunk(v, len(v))[0],
    "lift": lambda v: torch.ops.aten.lift(v),
    "lift_fresh": lambda v: torch.ops.aten.lift_fresh(v),
    "alias": lambda v: torch.ops.aten.alias(v),
    "detach": lambda v: v.detach(),
    "_reshape_alias": lambda v: torch.ops.aten._reshape_alias(v, v.shape, v.stride()),
    "reshape": lambda v: v.reshape(v.numel()),
    "flatten": lambda v: v.flatten(),
    "contiguous": lambda v: v.contiguous(),
    "view": lambda v: v[:1].view(1, *v.shape[1:]),
    "to": lambda v: v.to(v.device),
    "type_as": lambda v: v.type_as(v),
    "atleast_3d": lambda v: torch.atleast_3d(v),
    "sum_to_size": lambda v: v.sum_to_size(v.shape),
    "resolve_conj": lambda v: v.resolve_conj(),
    "resolve_neg": lambda v: v.resolve_neg(),
    "conj_physical": lambda v: v.conj_physical(),
    "dropout": lambda v: torch.dropout(v, 0.0, False),
    "data": lambda v: v.data,
    "broadcast_tensors": lambda v: torch.broadcast_tensors(v)[0],
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


def outcome(view: str, share: Callable[[Tensor], Tensor], device: str) -> Any:
    """The elements after a write into the result, and whether it is lazy; None: it was refused."""
    x = elements().to(device)
    try:
        shared = share(VIEWS.get(view, lambda x: x)(x))
    except RuntimeError:
        return None
    shared.fill_(7 - 2j if shared.is_complex() else 7)
    return x.tolist(), shared.is_conj(), shared.is_neg()


@pytest.mark.parametrize("view", ["plain", *VIEWS])
def test_a_result_shares_its_storage_where_that_of_the_cpu_does(issuer: Issuer, view: str) -> None:
    wrong = []
    for name, share in SHARING.items():
        here, there = (outcome(view, share, device) for device in ("cpu", "rgpu"))
        if here != there:
            wrong.append(f"{name}: {there}, and {here} on the CPU")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("lazy", ["conj", "mH", "_neg_view", "_neg_view of conj"])
def test_an_operator_that_pytorch_composes_writes_into_a_lazy_view(
    issuer: Issuer, lazy: str
) -> None:
    results = []
    for device in ("cpu", "rgpu"):
        x = elements().to(device)
        out = torch.zeros(4, 4, dtype=x.dtype, device=device)
        torch.kron(x, x, out=VIEWS[lazy](out))
        results.append(out.cpu())
    assert torch.equal(*results)
    assert results[0].abs().sum() > 0


# Public functions that end in an internal operator with `out=`.
SQUARE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "linalg.solve": lambda x, out: torch.linalg.solve(x, x + 1, out=out),
    "linalg.solve of a row": lambda x, out: torch.linalg.solve(x, x[0], out=out[0]),
    "linalg.inv": lambda x, out: torch.linalg.inv(x, out=out),
    "linalg.det": lambda x, out: torch.linalg.det(x, out=out[0, 0]),
    "linalg.slogdet": lambda x, out: torch.linalg.slogdet(x, out=(out[0, 0], out[1, 1].real)),
    "linalg.eigvalsh": lambda x, out: torch.linalg.eigvalsh(x @ x.mH, out=out.imag[0]),
    "linalg.svdvals": lambda x, out: torch.linalg.svdvals(x, out=out.imag[0]),
    "fft.fft": lambda x, out: torch.fft.fft(x, out=out),
    "fft.fft of reals": lambda x, out: torch.fft.fft(x.real, out=out),
    "fft.ifft": lambda x, out: torch.fft.ifft(x, out=out),
    "fft.fft2": lambda x, out: torch.fft.fft2(x, out=out),
    "fft.irfft": lambda x, out: torch.fft.irfft(x, 2, out=out.real),
    "fft.rfft": lambda x, out: torch.fft.rfft(x.real, out=out),
    "an argument": lambda x, out: torch.fft.fft(out, out=out),
}


def written(write: Callable[[Tensor, Tensor], Any], lazy: str, device: str) -> Any:
    """The elements after a write through a view; None: PyTorch does not take it on any device."""
    out = (elements() + 1).to(device)
    try:
        write(elements().to(device), VIEWS.get(lazy, lambda x: x)(out))
    except RuntimeError:
        return None
    return out.tolist()


@pytest.mark.parametrize("lazy", ["plain", "conj", "mH", "_neg_view"])
def test_an_internal_operator_writes_where_it_is_told(issuer: Issuer, lazy: str) -> None:
    wrong = []
    for name, write in SQUARE.items():
        here, there = (written(write, lazy, device) for device in ("cpu", "rgpu"))
        if (here is None) != (there is None) or not torch.allclose(
            torch.as_tensor(here or 0), torch.as_tensor(there or 0), atol=1e-5
        ):
            wrong.append(f"{name}: {there}, and {here} on the CPU")
    assert not wrong, "\n".join(wrong)


def test_an_internal_operator_gives_its_target_the_size_of_the_result(issuer: Issuer) -> None:
    strides = []
    for device in ("cpu", "rgpu"):
        x = elements().to(device)
        out = torch.empty(0, dtype=x.dtype, device=device)
        assert torch.fft.fft(x, out=out) is out
        assert torch.allclose(out.cpu(), torch.fft.fft(elements()))
        values, vectors = (
            torch.empty(0, device=device),
            torch.empty(0, dtype=x.dtype, device=device),
        )
        torch.linalg.eigh(x @ x.mH, out=(values, vectors))
        assert (values.shape, vectors.shape) == ((2,), (2, 2))
        strides.append((out.stride(), vectors.stride()))
        with pytest.raises(RuntimeError, match="dtype"):
            torch._softmax(x.real, 0, False, out=torch.empty(2, 2).int().to(device))
        with pytest.raises(RuntimeError, match=r"square|batches"):
            torch.linalg.det(x[:1], out=x[0, 0])
    assert strides[0] == strides[1]
    issuer.sync()


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
