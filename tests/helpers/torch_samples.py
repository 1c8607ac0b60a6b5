"""PyTorch's own samples of its operators, executed here and on a node, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from rgpu_client.arrays.issuer import Issuer

DATA = Path(__file__).parent.parent / "arrays" / "torch_operators.json"
# Enough to see each form of an operator's arguments.
MOST_SAMPLES = 8
PARTS = 4
_SEED = 5
_FACTORIES = frozenset(
    [
        "arange",
        "linspace",
        "logspace",
        "empty_like",
        "randn",
        "randint",
        "ones",
        "zeros",
        "full",
        "new_empty",
        "new_empty_strided",
        "empty_strided",
        "empty",
        "eye",
        "empty_permuted",
        "scalar_tensor",
        "normal",
        "triu_indices",
        "tril_indices",
    ]
)


def full_name(one: Any) -> str:
    """The name of an operator with that of its variant."""
    return f"{one.name}.{one.variant_test_name}" if one.variant_test_name else str(one.name)


OPERATORS = {full_name(one): one for one in op_db}


def part(number: int) -> Callable[[Issuer, str], None]:
    """Returns the test of one of the PARTS. Each is a module, so they run side by side."""

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", _names(number))
    def test_samples_give_what_they_give_here(issuer: Issuer, name: str) -> None:
        assert _check(name) > 0

    return test_samples_give_what_they_give_here


def _names(number: int) -> list[str]:
    """One part of the operators that have samples which a node executes."""
    left_out = json.loads(DATA.read_text())["left_out"]
    return [name for name in sorted(OPERATORS) if name not in left_out][number::PARTS]


def _check(name: str) -> int:
    """Compares an operator's samples, and the gradients of those that have some. Returns how many
    there were.
    """
    operator = OPERATORS[name]
    dtype = _dtype(operator)
    grad = operator.supports_autograd and dtype.is_floating_point
    count = 0
    torch.manual_seed(3)
    for sample in operator.sample_inputs("cpu", dtype, requires_grad=grad):
        if count == MOST_SAMPLES:
            break
        count += 1
        here = (sample.input, sample.args, sample.kwargs)
        for leaf in _tensors(here):
            leaf.grad = None
        _compare(operator, here, _moved(operator, here), grad)
    return count


def _compare(operator: Any, here: Any, there: Any, grad: bool) -> None:
    wanted, got = [_results(operator, given) for given in (here, there)]
    assert len(wanted) == len(got)
    for x, y in zip(wanted, got, strict=True):
        _equal(operator, x, y)
    if not grad:
        return
    sums = [[one for one in given if _has_gradient(one)] for given in (wanted, got)]
    assert len(sums[0]) == len(sums[1])
    if not sums[0]:
        return
    for given in sums:
        torch.manual_seed(_SEED)
        sum(one.sum() * 0.7 for one in given).backward()  # type: ignore[union-attr]
    for x, y in zip(_tensors(here), _tensors(there), strict=True):
        assert (x.grad is None) == (y.grad is None)
        if x.requires_grad and x.grad is not None:
            _close(x.grad, y.grad.cpu())


def _results(operator: Any, given: Any) -> list[Any]:
    torch.manual_seed(_SEED)
    return list(tree_leaves(operator(given[0], *given[1], **given[2])))


def _equal(operator: Any, x: Any, y: Any) -> None:
    if not isinstance(x, torch.Tensor):
        assert x == y or (x != x and y != y)
        return
    assert y.device.type == ("rgpu" if x.device.type == "cpu" else x.device.type)
    assert x.dtype == y.dtype
    if x.numel() == 0 and operator.name in ("native_batch_norm", "_native_batch_norm_legit"):
        # The CPU build leaves out what GPUs return and nothing reads.
        return
    assert x.shape == y.shape
    if not operator.name.startswith(("empty", "new_empty")):
        _close(x, y.cpu())


def _close(x: Any, y: Any) -> None:
    if x.dtype.itemsize == 1 and x.dtype.is_floating_point:
        x, y = x.float(), y.float()
    torch.testing.assert_close(y, x, equal_nan=True, rtol=1e-4, atol=1e-4)


def _moved(operator: Any, here: Any) -> Any:
    if operator.name == "tensor_split":
        # Its indices stay on the CPU, as for a GPU.
        return (_sent(here[0]), *here[1:])
    there = tree_map(_sent, here)
    makes = operator.name in _FACTORIES or operator.name.startswith("signal.windows")
    filled = operator.name == "normal" and isinstance(here[0], torch.Tensor)
    gives = operator.name == "normal" and any(isinstance(one, torch.Tensor) for one in here[1])
    if makes and operator.variant_test_name != "in_place" and not filled and not gives:
        there[2]["device"] = "rgpu"
    return there


def _sent(value: Any) -> Any:
    if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
        return torch.device("rgpu")
    if not isinstance(value, torch.Tensor):
        return value
    base = value._base
    if base is None or base.dtype != value.dtype or value.is_conj() or value.is_neg():
        made = value.detach().to("rgpu")
    else:
        # Elements outside of a view count too.
        count = base.untyped_storage().nbytes() // base.element_size()
        whole = base.detach().as_strided((count,), (1,), 0).to("rgpu")
        made = whole.as_strided(value.shape, value.stride(), value.storage_offset())
    return made.requires_grad_() if value.requires_grad else made


def _dtype(operator: Any) -> Any:
    offered = operator.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.int64, torch.complex64):
        if dtype in offered:
            return dtype
    return min(offered, key=str)


def _tensors(values: Any) -> list[Any]:
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]


def _has_gradient(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.requires_grad and one.is_floating_point()
