"""What calls of all of PyTorch's functions with tensors of a node have found."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest
from helpers.needs import import_needed

torch: Any = import_needed("torch", "msgpack")

from helpers.torch_session import issuer, sent  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402

__all__ = ["issuer"]
nn = torch.nn
HALVES = [torch.float16, torch.bfloat16]


# Dtypes that the CPU build and a GPU's have of their own


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "kind",
    [
        lambda: nn.LayerNorm(4),
        lambda: nn.LayerNorm(4, elementwise_affine=False),
        lambda: nn.BatchNorm1d(4),
        lambda: nn.BatchNorm1d(4).eval(),
        lambda: nn.BatchNorm1d(4, affine=False, track_running_stats=False),
        lambda: nn.Sequential(nn.Unflatten(0, (2, 4)), nn.InstanceNorm1d(4)),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.RMSNorm(4),
    ],
)
def test_modules_of_half_precision_are_normalized(
    issuer: Issuer, kind: Callable[[], Any], dtype: Any
) -> None:
    """Before: without a GPU on the node, "install the same release on both sides"."""

    def run(device: str) -> list[Any]:
        torch.manual_seed(0)
        model, x = kind().to(dtype), torch.randn(8, 4, dtype=dtype)
        model, x = model.to(device), x.to(device).requires_grad_()
        out = model(x)
        out.square().mean().backward()
        state = [*model.state_dict().values()]
        return [out, x.grad, *(one.grad for one in model.parameters()), *state]

    for here, there in zip(run("cpu"), run("rgpu"), strict=True):
        assert there.dtype == here.dtype
        torch.testing.assert_close(there.cpu(), here, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_node_has_the_default_dtype_of_the_program(issuer: Issuer, dtype: Any) -> None:
    """Before: "the node's PyTorch returned [3] of torch.float32, and the client's expects" others."""

    def run(device: str) -> list[Any]:
        count = torch.arange(3, device=device)
        made = [torch.ones(3, device=device), torch.full((3,), 0.5, device=device)]
        divided = [count / 2, count.sqrt(), count * 0.5, torch.linspace(0, 1, 3, device=device)]
        return [*made, *divided, count.to(torch.float32) / 2, count.float().mean()]

    usual = torch.get_default_dtype()
    orders = [dtype, usual, dtype, usual]
    try:
        for default in orders:
            torch.set_default_dtype(default)
            for here, there in zip(run("cpu"), run("rgpu"), strict=True):
                assert there.dtype == here.dtype
                assert torch.equal(there.cpu(), here)
    finally:
        torch.set_default_dtype(usual)


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_of_another_precision_are_taken(issuer: Issuer, dtype: Any) -> None:
    """Gradients are of the dtype of what they belong to."""
    for model in (nn.LayerNorm(4), nn.BatchNorm1d(4)):
        x = torch.randn(8, 4, dtype=dtype).to("rgpu").requires_grad_()
        out = model.to("rgpu")(x)
        out.float().square().mean().backward()
        assert (out.dtype, x.grad.dtype) == (dtype, dtype)
        assert model.weight.grad.dtype == model.bias.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", HALVES)
def test_matrices_are_multiplied_in_another_dtype(issuer: Issuer, dtype: Any) -> None:
    """Before: without a GPU on the node, "Could not run 'aten::mm.dtype'"."""
    a, wide = sent(3, 3).to(dtype), torch.arange(9.0).reshape(3, 3)
    kind, several = {"out_dtype": torch.float32}, a.expand(2, 3, 3)
    found = [
        torch.mm(a, a, **kind),
        torch.mm(a, a, **kind, out=torch.empty(0, device="rgpu")),
        torch.bmm(several, several, **kind)[1],
        torch.addmm(a, a, a, **kind, beta=0.0, alpha=1.0),
        torch.baddbmm(several, several, several, **kind, beta=0.0)[0],
    ]
    for one in found:
        assert one.dtype == torch.float32
        assert torch.equal(one.cpu(), wide @ wide)


# Tensors that lie elsewhere, and of other kinds


def test_a_write_to_a_tensor_of_the_cpu_is_not_lost(issuer: Issuer) -> None:
    """Before: a copy on the node was written to, and the tensor stayed as it was."""
    here, mask, at = torch.ones(2, 3), sent(2, 3) > 1, torch.tensor([0]).to("rgpu")
    for change in (
        lambda: here.__setitem__(mask, 0.0),
        lambda: here.__setitem__(at, 0.0),
        lambda: here.index_put_((at,), torch.zeros(3)),
        lambda: here[mask],
        lambda: here[at],
    ):
        with pytest.raises(RuntimeError, match="either on cpu or on the same device"):
            change()
    assert here.sum().item() == 6


def test_values_that_are_written_by_index_are_not_moved_in_silence(issuer: Issuer) -> None:
    """As for a GPU. Its indices may be on the CPU, and a value without dimensions."""
    x, at = sent(2, 3), torch.tensor([0])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x[at] = torch.zeros(3)
    x[at] = torch.tensor(7.0)
    assert x.tolist() == [[7, 7, 7], [3, 4, 5]]
    assert x[at].tolist() == [[7, 7, 7]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bool])
def test_a_number_is_copied(issuer: Issuer, dtype: Any) -> None:
    """Before: "'int' object has no attribute 'device'"."""
    for number in (1, 0.0, True):
        here, there = torch.zeros(2, dtype=dtype), torch.zeros(2, dtype=dtype, device="rgpu")
        assert there.copy_(number).tolist() == here.copy_(number).tolist()


def test_all_addresses_of_a_tensor_are_one(issuer: Issuer) -> None:
    """Before: `const_data_ptr()` was 0 for all tensors."""
    x = sent(2, 3)
    assert x[1:].const_data_ptr() == x[1:].data_ptr() == x.const_data_ptr() + 12 > 12


def test_a_strided_tensor_knows_its_dimensions(issuer: Issuer) -> None:
    for ask in (torch.Tensor.dense_dim, torch.Tensor.sparse_dim):
        assert ask(sent(2, 3)) == ask(torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore")
def test_forward_gradients_of_views_and_of_linearized_functions(issuer: Issuer) -> None:
    """Before: an internal operator was "left out because nothing reaches it"."""
    jvp, vmap, linearize = torch.func.jvp, torch.func.vmap, torch.func.linearize

    def f(x: Any) -> Any:
        return (x.sin() * x).sum()

    def written(x: Any) -> Any:
        made = torch.zeros(3, 3, device=x.device)
        made.t()[1:].copy_(x.t()[1:])
        return made * made

    def found(x: Any) -> list[Any]:
        v = x + 1
        value, push = linearize(f, x)
        several = vmap(lambda one: jvp(written, (x,), (one,))[1])(torch.stack([v, v * 2]))
        return [value, push(v), jvp(f, (x,), (v,))[1], *jvp(written, (x.t(),), (v,)), several]

    for here, there in zip(found(sent(3, 3).cpu()), found(sent(3, 3)), strict=True):
        assert there.device.type == "rgpu"
        torch.testing.assert_close(there.cpu(), here)


SPARSE = "sparse tensors are not offered on the device rgpu: use tensor.to_dense()"
QUANTIZED = "quantized tensors are not offered on the device rgpu: use tensor.dequantize()"
NESTED = "nested tensors are not offered on the device rgpu: use torch.nested with layout"


@pytest.mark.filterwarnings("ignore")
def test_what_makes_or_takes_another_kind_of_tensor_says_what_to_do(issuer: Issuer) -> None:
    """Before: "Could not run 'aten::mm' with arguments from the 'Sparsergpu' backend", and tensors
    in compressed rows were made.
    """
    x, here = sent(2, 3), torch.ones(2, 3)
    rows, at = torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [1, 2]])
    sparse, compressed = here.to_sparse(), here.to_sparse_csr()
    for text, call in (
        (SPARSE, lambda: torch.sparse_coo_tensor(at.to("rgpu"), sent(2), (2, 3))),
        (SPARSE, lambda: torch.sparse_coo_tensor(at, torch.ones(2), (2, 3), device="rgpu")),
        (SPARSE, lambda: torch.sparse_csr_tensor(rows, at[0], torch.ones(2), device="rgpu")),
        (SPARSE, lambda: torch.zeros(2, 3, layout=torch.sparse_csr, device="rgpu")),
        (SPARSE, lambda: torch.empty(2, 3, layout=torch.sparse_coo, device="rgpu")),
        (SPARSE, lambda: sparse.to("rgpu")),
        (SPARSE, lambda: compressed.to("rgpu")),
        (SPARSE, lambda: sparse @ x.t()),
        (SPARSE, lambda: compressed @ x.t()),
        (SPARSE, lambda: x + sparse),
        (SPARSE, lambda: x.copy_(sparse)),
        (QUANTIZED, lambda: torch.empty(2, dtype=torch.quint8, device="rgpu")),
        (QUANTIZED, lambda: torch.quantize_per_tensor(here, 0.1, 0, torch.quint8).to("rgpu")),
        (NESTED, lambda: torch.nested.nested_tensor([here, here]).to("rgpu")),
        (NESTED, lambda: torch.nested.nested_tensor([x, x])),
        (NESTED, lambda: torch.nested.as_nested_tensor(x)),
    ):
        with pytest.raises(NotImplementedError) as error:
            call()
        assert text in str(error.value)


def test_an_operator_that_is_left_out_says_what_to_do(issuer: Issuer) -> None:
    with pytest.raises(NotImplementedError, match=r"compute it on the CPU, with tensor\.cpu"):
        sent(2, 3).to_sparse()


def test_too_many_dimensions_are_called_so(issuer: Issuer) -> None:
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        torch.ones(1).expand([1] * 65).to("rgpu").cpu()


# Backward passes


def bad(*_: Any) -> None:
    raise ValueError("in a hook")


def through_a_tensor(x: Any) -> Any:
    y = x * 2
    y.register_hook(bad)
    return y


def through_an_accumulator(x: Any) -> Any:
    x.register_post_accumulate_grad_hook(bad)
    return x * 2


def before_a_node(x: Any) -> Any:
    y = x * 2
    y.grad_fn.register_prehook(bad)
    return y


def behind_a_node(x: Any) -> Any:
    y = x * 2
    y.grad_fn.register_hook(bad)
    return y


def through_saved_tensors(x: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, bad):
        return x * x


def in_a_checkpoint(x: Any) -> Any:
    def forward(one: Any) -> Any:
        return through_a_tensor(one) if torch.is_grad_enabled() else one * 2

    return torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=True)


HOOKS = [
    through_a_tensor,
    through_an_accumulator,
    before_a_node,
    behind_a_node,
    through_saved_tensors,
    in_a_checkpoint,
]


@pytest.mark.parametrize("given", HOOKS)
def test_an_exception_of_a_hook_is_raised(issuer: Issuer, given: Callable[[Any], Any]) -> None:
    """Before: it ended the process."""
    for number in range(3):
        x = sent(3).requires_grad_()
        with pytest.raises(ValueError, match="in a hook") as error:
            given(x).sum().backward()
        assert error.traceback[-1].name == "bad"
        if number == 1:
            with pytest.raises(ValueError, match="in a hook"):
                torch.autograd.grad(through_a_tensor(x).sum(), x)
    x = sent(3).requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_hooks_of_several_threads_raise_their_own(issuer: Issuer) -> None:
    def run(number: int) -> str:
        def own(_: Any) -> None:
            raise ValueError(str(number))

        y = sent(3).requires_grad_() * 2
        if number % 2:
            y.register_hook(own)
        try:
            y.sum().backward()
        except ValueError as error:
            return str(error)
        return "none"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, range(6)))
    assert found[::2] == ["none"] * 3
    assert sorted(found[1::2]) == ["1", "3", "5"]


def test_a_loss_whose_form_only_the_node_knows(issuer: Issuer) -> None:
    """Before: "install the same release on both sides"."""
    loss = nn.MultiLabelMarginLoss(reduction="none")
    x, target = torch.rand(4, requires_grad=True), torch.tensor([1, 0, -1, 2])
    there = x.detach().to("rgpu").requires_grad_()
    for given, aim in ((x, target), (there, target.to("rgpu"))):
        loss(given, aim).sum().backward()
    assert loss(there, target.to("rgpu")).shape == loss(x, target).shape
    torch.testing.assert_close(there.grad.cpu(), x.grad)
