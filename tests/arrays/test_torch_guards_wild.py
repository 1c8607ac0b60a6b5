"""Operators of PyTorch that trust their arguments get none that they cannot be trusted with."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch")

from helpers.array_session import A, put, refused, run, session  # noqa: E402
from helpers.torch_node import Quota  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402
from rgpu_common.arrays.messages import UNKNOWN_OUTPUTS, Tag  # noqa: E402
from rgpu_server.arrays.torch_library import TorchLibrary  # noqa: E402


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with session(TorchLibrary(Quota(1 << 30), 1 << 30)) as made:
        yield made


WILD = (1 << 40, -1)
# An operator with arguments that trust each other: tensors by their shapes and what fills them.
TRUSTING = [
    ("max_pool2d_with_indices_backward", [(1, 1, 2, 2), (1, 1, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False, (1, 1, 2, 2, "int64")]),
    ("adaptive_max_pool2d_backward", [(1, 2, 2), (1, 4, 4), (1, 2, 2, "int64")]),
    ("fractional_max_pool3d_backward", [(1, 1, 1, 1), (1, 2, 2, 2), [2, 2, 2], [1, 1, 1], (1, 1, 1, 1, "int64")]),
    ("nll_loss_backward", [(2,), (2, 3), (2, "int64"), None, 0, -100, ()]),
    ("nll_loss2d_backward", [(1, 2, 2), (1, 3, 2, 2), (1, 2, 2, "int64"), None, 0, -100, ()]),
    ("multi_margin_loss_backward", [(), (2, 3), (2, "int64"), 1, 1.0, None, 1]),
    ("embedding_dense_backward", [(2, 3), (2, "int64"), 4, -1, False]),
    ("_embedding_bag", [(4, 3), (2, "int64"), (1, "zero"), False, 0, False, None, False, -1]),
    ("_embedding_bag", [(4, 3), (2, "zero"), (2, "int64"), False, 0, False, None, False, -1]),
    ("_ctc_loss", [(4, 1, 3), (1, 2, "int64"), [4], [2], 0, False]),
    ("lu_unpack", [(2, 2), (2, "int32"), True, True]),
    ("linalg_ldl_solve", [(3, 3), (3, "int32"), (3, 3)]),
    ("grid_sampler_2d_backward", [(1, 1, 2, 2), (1, 1, 4, 4), (1, 2, 2, 2, "nan"), 0, 2, False, [True, True]]),
]  # fmt: skip


@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize(("name", "arguments"), TRUSTING)
def test_wild_indices_are_refused(issuer: Issuer, name: str, arguments: Any, wild: int) -> None:
    trusted(issuer, name, arguments, wild)


# Two tensors that do not fit each other.
UNFITTING = [
    ("native_batch_norm", [(3, 2, 4), (1,), (2,), (2,), (2,), True, 0.1, 1e-5]),
    ("native_batch_norm_backward", [(3, 2, 4), (3, 2, 4), (2,), (2,), (2,), (2,), (0,), True, 1e-5, [True, True, True]]),
    ("native_layer_norm_backward", [(2, 3), (2, 3), [3], (2, 1), (9, 1), (3,), (3,), [True, True, True]]),
    ("_log_softmax_backward_data", [(1,), (64, 64), 1, [Tag.DTYPE, "float32"]]),
    ("_adaptive_avg_pool2d_backward", [(1, 1, 2, 2), (4, 8, 4, 4)]),
    ("reflection_pad1d_backward", [(1, 6), (64, 4), [1, 1]]),
    ("replication_pad2d_backward", [(1, 6, 6), (64, 4, 4), [1, 1, 1, 1]]),
    ("reflection_pad1d_backward", [(1, 6), (1, 4), [1]]),
    ("_cdist_backward", [(1, 1), (9, 3), (9, 3), 2.0, (9, 9)]),
    ("_pdist_backward", [(1,), (9, 3), 2.0, (36,)]),
    ("unfold_backward", [(1, 1), [1 << 20], 0, 4, 1]),
    ("_fft_c2c", [(4, "complex64"), [1 << 40], 0, True]),
    ("_fft_c2r", [(4, "complex64"), [0], 0, 1 << 30]),
    ("_scaled_dot_product_flash_attention_for_cpu", [(1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 1, 8)]),
    ("slow_conv_transpose3d", [(2, 2, 2, 3, 3), (2, 2, 2, 3, 3), [2, 0, 2]]),
    ("_upsample_bilinear2d_aa", [(1, 1, 4, 4), [4, 1 << 20], False, 1.0, 1.0]),
    ("_stack", [[Tag.LIST]]),
    ("_cummax_helper", [(64, 64), (1,), (64, 64, "zero"), 0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), UNFITTING)
def test_what_does_not_fit_is_refused(issuer: Issuer, name: str, arguments: Any) -> None:
    trusted(issuer, name, arguments, 0)


def test_a_division_that_ends_processes_is_refused(issuer: Issuer) -> None:
    least = torch.tensor([-(1 << 63)])
    for name, keywords in (("lcm", {}), ("div.Tensor_mode", {"rounding_mode": "trunc"})):
        slots = [put(issuer, least), put(issuer, torch.tensor([-1]))]
        refused(issuer, "out of range", f"aten::{name}", slots, [A, A], **keywords)


def state(left: int, place: int) -> Any:
    """The state of a generator, with so many numbers left and one more, and the next one's place."""
    made = torch.Generator().manual_seed(5).get_state()
    struct.pack_into("=iiQ", made.numpy(), 8, left, 1, place)
    return made


def set_state(issuer: Issuer, given: Any) -> None:
    run(issuer, "rgpu::set_state", [put(issuer, given)], [None, A], outputs=0)
    issuer.sync()


@pytest.mark.parametrize(
    ("left", "place"),
    [(624, 624), (624, 2), (300, 400), (2, 624), (1, 625), (0, 0), (-1, 0), (625, 0), (9, 1 << 40)],
)
def test_a_generator_draws_no_numbers_from_beyond_its_block(
    issuer: Issuer, left: int, place: int
) -> None:
    with pytest.raises(RuntimeError, match="no state of a generator: give one that get_state"):
        set_state(issuer, state(left, place))


def test_other_tensors_are_no_states(issuer: Issuer) -> None:
    for given in (torch.zeros(3, dtype=torch.uint8), torch.zeros(5056), state(1, 0).reshape(2, -1)):
        with pytest.raises(RuntimeError, match="no state of a generator"):
            set_state(issuer, given)


def test_every_state_that_a_generator_has_is_taken(issuer: Issuer) -> None:
    before = torch.get_rng_state()
    try:
        for drawn in (0, 1, 2, 622, 623, 624, 625, 1248):
            there = torch.Generator().manual_seed(3)
            torch.rand(drawn, generator=there)
            set_state(issuer, there.get_state())
            assert torch.equal(torch.rand(1300), torch.rand(1300, generator=there))
    finally:
        torch.set_rng_state(before)


def trusted(issuer: Issuer, name: str, arguments: Any, wild: int) -> None:
    slots, shown = [], []
    for one in arguments:
        if isinstance(one, tuple):
            slots.append(put(issuer, filled(one, wild)))
            shown.append(A)
        else:
            tagged = isinstance(one, list) and not (one and isinstance(one[0], str))
            shown.append([Tag.LIST, *one] if tagged else one)
    refused(issuer, ".", f"aten::{name}", slots, shown, outputs=UNKNOWN_OUTPUTS)
    assert issuer.ask("version") == torch.__version__


def filled(shape: Any, wild: int) -> Any:
    if shape and isinstance(shape[-1], str):
        kind, shape = shape[-1], shape[:-1]
        if kind == "nan":
            return torch.full(shape, float("nan"))
        if kind == "zero":
            return torch.zeros(shape, dtype=torch.int64)
        value = min(wild, 1 << 30) if kind == "int32" else wild
        return torch.full(shape, value, dtype=getattr(torch, kind))
    return torch.ones(shape)
