"""Guards of operators whose tensors must fit together: normalization, pooling, distances."""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_server.arrays.torch_guard_rules import (
    broadcast,
    has_count,
    has_shape,
    inside,
    leading,
    require,
    same_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Given = Mapping[str, Any]
    Guard = Callable[[Given], None]

torch: Any = import_module("torch")

_GRADIENT = "the gradient and the input"
_MOST_COORDINATE = 1 << 24
# Of interpolation: bilinear, nearest, bicubic; of padding: zeros, border, reflection.
_MODES = (0, 1, 2)
_PER_CHANNEL = "weight, bias and statistics of a normalization"


def _batch_norm(given: Given) -> None:
    """input: (N, C, ...). Without training, the statistics are read."""
    shape = given["input"].shape
    require(len(shape) >= 2, "a batch has at least two dimensions")
    for name in ("weight", "bias", "running_mean", "running_var"):
        has_count(given.get(name), shape[1], _PER_CHANNEL)
    if not given["training"]:
        there = given.get("running_mean") is not None and given.get("running_var") is not None
        require(there, "without training, batch normalization needs running statistics")


def _batch_norm_train(given: Given) -> None:
    _batch_norm({**given, "training": True})


def _batch_norm_stats(given: Given) -> None:
    _batch_norm({**given, "training": False})


def _batch_norm_backward(given: Given) -> None:
    """grad_out, input: (N, C, ...). Saved statistics of training are read, or running ones."""
    _batch_norm({**given, "training": True})
    same_shape(given["grad_out"], given["input"], _GRADIENT)
    train = given.get("train", given.get("update"))
    variance = "save_invstd" if "save_invstd" in given else "save_var"
    wanted = ("save_mean", variance) if train else ("running_mean", "running_var")
    for name in wanted:
        require(given[name] is not None, "the statistics of the forward pass are missing")
        has_count(given[name], given["input"].shape[1], _PER_CHANNEL)


def _layer_norm_backward(given: Given) -> None:
    """input: (*, *normalized_shape); mean, rstd: an element for each of *."""
    value, inner = given["input"], tuple(given["normalized_shape"])
    same_shape(given["grad_out"], value, _GRADIENT)
    at = value.dim() - len(inner)
    require(at >= 0 and tuple(value.shape[at:]) == inner, "normalized_shape ends another shape")
    for name in ("mean", "rstd"):
        if name in given:
            has_count(given[name], math.prod(value.shape[:at]), _PER_CHANNEL)
    for name in ("weight", "bias"):
        if given.get(name) is not None:
            has_shape(given[name], inner, _PER_CHANNEL)


def _group_norm(given: Given) -> None:
    """input: (N, C, HxW) or more dimensions."""
    count, channels, rest = given["N"], given["C"], given["HxW"]
    require(min(count, channels, rest, given["group"]) >= 0, "sizes are numbers from 0")
    value = given["input"]
    good = value.dim() >= 2 and value.numel() == count * channels * rest
    require(
        good and tuple(value.shape[:2]) == (count, channels), "N, C and HxW are another shape's"
    )
    for name in ("weight", "bias"):
        has_count(given.get(name), channels, _PER_CHANNEL)


def _gelu_backward(given: Given) -> None:
    """oneDNN reads as many elements of the input as the gradient has."""
    same_shape(given["grad_output"], given["self"], _GRADIENT)


def _extreme(given: Given) -> None:
    """With `out`, PyTorch returns what lay in memory as the largest of no elements."""
    require(given["self"].numel() > 0, "an input without elements has no largest or smallest one")


def _softmax_backward(given: Given) -> None:
    same_shape(given["grad_output"], given["output"], "the gradient and the output")


def _cdist_backward(given: Given) -> None:
    """x1: (*, P, M), x2: (*, R, M); grad, cdist: (*, P, R)."""
    x1, x2 = given["x1"], given["x2"]
    good = x1.dim() >= 2 and x2.dim() >= 2 and x1.shape[-1] == x2.shape[-1]
    require(good, "points of distances must have the same number of coordinates")
    batch = broadcast(x1.shape[:-2], x2.shape[:-2])
    for name in ("grad", "cdist"):
        has_shape(given[name], (*batch, x1.shape[-2], x2.shape[-2]), "distances and their gradient")


def _pdist(given: Given) -> None:
    require(given["self"].dim() == 2, "points of distances are a matrix")


def _pdist_backward(given: Given) -> None:
    """self: (N, M); grad, pdist: N (N - 1) / 2."""
    _pdist(given)
    rows = given["self"].shape[0]
    require(rows > 0, "there are no points")
    for name in ("grad", "pdist"):
        has_shape(given[name], (rows * (rows - 1) // 2,), "distances and their gradient")


def _pool_backward(inner: int) -> Guard:
    """Returns the guard of an average over `inner` dimensions."""

    def guard(given: Given) -> None:
        value = given["self"]
        leading(given["grad_output"], value, inner, _GRADIENT)
        require(value.dim() - inner in (1, 2), "an image has channels, and may have a batch")
        require(0 not in value.shape[-inner:], "an image must not be empty")

    return guard


def _max_pool_backward(inner: int) -> Guard:
    """Returns the guard of a maximum over `inner` dimensions, whose indices are of a plane."""
    average = _pool_backward(inner)

    def guard(given: Given) -> None:
        average(given)
        indices = given["indices"]
        if "output_size" in given:
            sizes = (len(given["output_size"]), len(given["kernel_size"]))
            require(sizes == (inner, inner), "a window has a size for each dimension")
        same_shape(indices, given["grad_output"], "the indices of maxima and the gradient")
        require(indices.dtype == torch.int64, "the indices of maxima must be int64")
        inside(indices, math.prod(given["self"].shape[-inner:]), "the indices of maxima")

    return guard


def _pad_backward(inner: int) -> Guard:
    def guard(given: Given) -> None:
        leading(given["grad_output"], given["self"], inner, _GRADIENT)
        require(len(given["padding"]) == 2 * inner, "a padding has two numbers for each dimension")

    return guard


def _grid(given: Given) -> None:
    """PyTorch computes nothing in a mode that does not exist, and returns what lay in memory."""
    good = given["interpolation_mode"] in _MODES and given["padding_mode"] in _MODES
    require(good, "there is no such mode of a grid")


def _grid_backward(given: Given) -> None:
    """input: (N, C, ...); grid: (N, *, 2 or 3); grad_output: (N, C, *)."""
    _grid(given)
    value, grid = given["input"], given["grid"]
    require(value.dim() == grid.dim() > 2, "a grid must have as many dimensions as the input")
    has_shape(given["grad_output"], (*value.shape[:2], *grid.shape[1:-1]), "the gradient of a grid")
    if given["padding_mode"] and grid.numel():
        # PyTorch makes an index of what is no number, or too large for one.
        near = bool((grid.abs() < _MOST_COORDINATE).all())
        require(near, f"the coordinates of a grid must be finite and below {_MOST_COORDINATE}")


def _attention(given: Given) -> None:
    """query: (N, H, L, E); key, value: (N, h, S, E); attn_mask: broadcasts to (N, H, L, S)."""
    query, key, value = given["query"], given["key"], given["value"]
    require(query.dim() == 4 and 0 not in query.shape, "a query must have four dimensions")
    same_shape(key, value, "keys and values")
    good = key.dim() == 4 and 0 not in key.shape and query.shape[1] % key.shape[1] == 0
    good = good and key.shape[0] == query.shape[0] and key.shape[3] == query.shape[3]
    require(good, "keys must fit the queries")
    mask = given.get("attn_mask")
    if mask is not None:
        whole = (*query.shape[:3], key.shape[2])
        wide = mask.dim() in (2, 4) and broadcast(mask.shape, whole) == whole
        require(wide, f"the mask of attention must broadcast to {[*whole]}")


def _attention_backward(given: Given) -> None:
    """As `_attention`; out, grad_out: as query; logsumexp: (N, H, L)."""
    _attention(given)
    query = given["query"]
    same_shape(given["grad_out"], query, "the gradient and the queries")
    same_shape(given["out"], query, "the result and the queries")
    has_shape(given["logsumexp"], query.shape[:3], "logsumexp")


def _slow_convolution(given: Given) -> None:
    """weight: (., ., *kernel_size)."""
    size = tuple(given["kernel_size"])
    good = len(size) > 1 and tuple(given["weight"].shape[2:]) == size
    require(good, "the weights of a convolution have another kernel_size")


def _noisy(given: Given) -> None:
    """noise, out: the shape of self."""
    same_shape(given["noise"], given["self"], "the noise and the input")
    if given.get("out") is not None:
        same_shape(given["out"], given["self"], "the result and the input")
        require(given["out"].is_contiguous(), "the result must be contiguous")


def _fft(given: Given) -> None:
    """dim: different dimensions, from 0."""
    dims, rank = list(given["dim"]), given["self"].dim()
    good = len(set(dims)) == len(dims) and all(0 <= one < rank for one in dims)
    require(good, "a transform needs different dimensions of its input")
    require(given["normalization"] in (0, 1, 2), "there is no such normalization")


def _fft_back(given: Given) -> None:
    """The last dimension has half of the result's elements, and one."""
    _fft(given)
    size = given["self"].shape[given["dim"][-1]] if given["dim"] else 0
    require(size == given["last_dim_size"] // 2 + 1, "the input of a transform has another length")


def _unfold_backward(given: Given) -> None:
    """grad_in: the shape that unfolding input_sizes has."""
    # A number alone is unfolded as a row of one.
    sizes, dim = list(given["input_sizes"]), given["dim"]
    whole = list(sizes) or [1]
    size, step = given["size"], given["step"]
    require(min(whole) >= 0 and 0 <= dim < len(whole), "there is no such dimension")
    require(0 <= size <= whole[dim] and step > 0, "parts are longer than what they are of")
    whole[dim] = (whole[dim] - size) // step + 1
    has_shape(given["grad_in"], (*whole, size) if sizes else (size,), "the gradient of parts")


def _upsample(given: Given) -> None:
    """A scale that is given does not lead beyond the input."""
    shape = given["input_size"] if "input_size" in given else given["self"].shape
    wanted = list(given["output_size"])
    for at, name in enumerate(("scales_h", "scales_w")):
        scale = given.get(name)
        if scale is not None:
            good = wanted[at] <= shape[2 + at] * scale + 1
            require(good, "the scale of an image does not lead to its size")


GUARDS: dict[str, Guard] = {
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"),
        _batch_norm,
    ),
    **dict.fromkeys(("_batch_norm_with_update", "batch_norm_update_stats"), _batch_norm_train),
    **dict.fromkeys(
        ("_batch_norm_no_update", "_native_batch_norm_legit_no_training"), _batch_norm_stats
    ),
    **dict.fromkeys(("native_batch_norm_backward", "batch_norm_backward"), _batch_norm_backward),
    "native_layer_norm_backward": _layer_norm_backward,
    "_fused_rms_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax_backward),
    "_cdist_backward": _cdist_backward,
    "_pdist_forward": _pdist,
    "_pdist_backward": _pdist_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    **dict.fromkeys(("_fft_c2c", "_fft_r2c"), _fft),
    "_fft_c2r": _fft_back,
    "unfold_backward": _unfold_backward,
    **dict.fromkeys(
        ("slow_conv_transpose2d", "slow_conv_transpose3d", "slow_conv_dilated2d",
         "slow_conv_dilated3d", "slow_conv3d_forward"), _slow_convolution,
    ),
    **dict.fromkeys(("rrelu_with_noise", "rrelu_with_noise_"), _noisy),
    **{f"_upsample_{kind}2d_aa{which}": _upsample
       for kind in ("bilinear", "bicubic", "lanczos") for which in ("", "_backward")},
    "gelu_backward": _gelu_backward,
    **dict.fromkeys(("max.unary_out", "min.unary_out"), _extreme),
    **{f"grid_sampler_{n}d": _grid for n in (2, 3)},
    **{f"grid_sampler_{n}d_backward": _grid_backward for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d_backward": _pool_backward(n) for n in (2, 3)},
    "adaptive_avg_pool3d_backward": _pool_backward(3),
    **{f"avg_pool{n}d_backward": _pool_backward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": _max_pool_backward(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices_backward": _max_pool_backward(n) for n in (2, 3)},
    **{f"fractional_max_pool{n}d_backward": _max_pool_backward(n) for n in (2, 3)},
    **{f"{kind}_pad{n}d_backward": _pad_backward(n)
       for kind in ("reflection", "replication") for n in (1, 2, 3)},
}  # fmt: skip
