"""Guards of operators that gather by indices, of factorizations, and of fused optimizers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_server.arrays.torch_guard_rules import (
    broadcast,
    has_count,
    has_shape,
    inside,
    require,
    rising,
    same_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Given = Mapping[str, Any]
    Guard = Callable[[Given], None]

torch: Any = import_module("torch")

_MOST_REPEATED = float(1 << 60)
_SIGNED = (torch.int64, torch.int32, torch.int16, torch.int8)
_INDICES = "the indices of an embedding"
_OFFSETS = "the offsets of bags"


def _embedding_backward(given: Given) -> None:
    """grad_output: (*, D); indices: (*)."""
    gradient, indices, rows = given["grad_output"], given["indices"], given["num_weights"]
    has_shape(indices, gradient.shape[:-1], _INDICES)
    inside(indices, rows, _INDICES)
    # PyTorch allocates this where it cannot say that there is no room.
    torch.empty((rows, 2 * gradient.shape[-1] + 2), dtype=torch.float64)


def _bags(given: Given) -> None:
    """weight: (V, D); indices: (B); offsets: where bags begin."""
    weight, indices = given["weight"], given["indices"]
    require(weight.dim() == 2 and indices.dim() == 1, "an embedding takes a row of indices")
    inside(indices, weight.shape[0], _INDICES)
    _offsets(given["offsets"], indices)
    has_count(given["per_sample_weights"], indices.numel(), "the weights of samples")


def _offsets(offsets: Any, indices: Any) -> None:
    require(offsets.dim() == 1, _OFFSETS + " are a row")
    rising(offsets, indices.numel(), _OFFSETS)
    if offsets.numel():
        require(int(offsets[0]) == 0, _OFFSETS + " begin at 0")
    require(bool(offsets.numel()) or not indices.numel(), "indices without a bag")


def _bags_backward(given: Given) -> None:
    """grad: (bags, D); offset2bag: the bag of each index, or empty."""
    gradient, indices = given["grad"], given["indices"]
    require(gradient.dim() == 2 and indices.dim() == 1, "the gradient of bags is a matrix")
    rows, of_bag = gradient.shape[0], given["offset2bag"]
    size = given["weight"].shape[0] if "weight" in given else given["num_weights"]
    inside(indices, size, _INDICES)
    if "weight" in given:
        has_shape(gradient, (rows, given["weight"].shape[-1]), "the gradient of bags")
    if of_bag.numel() or "offsets" not in given:
        has_shape(of_bag, indices.shape, "the bags of indices")
        inside(of_bag, rows, "the bags of indices")
    if "offsets" in given:
        offsets = given["offsets"]
        _offsets(offsets, indices)
        count = offsets.numel()
        whole = count == rows + 1 and int(offsets[-1]) == indices.numel()
        require(count == rows or whole or bool(of_bag.numel()), _OFFSETS + " are as many as bags")
    has_count(given.get("per_sample_weights"), indices.numel(), "the weights of samples")
    if "bag_size" in given:
        require(given["bag_size"].numel() >= rows, "each bag has a size")
        torch.empty((size, 2 * gradient.shape[1] + 2), dtype=torch.float64)
    _maxima(given, gradient)


def _maxima(given: Given, gradient: Any) -> None:
    of_maximum = 2
    if given["mode"] == of_maximum and "maximum_indices" in given:
        same_shape(given["maximum_indices"], gradient, "the indices of maxima and the gradient")


def _repeats(given: Given) -> None:
    """repeats: counts, which PyTorch adds up without looking whether the sum still fits, and writes
    results for before it sees that one is negative.
    """
    counts = given["repeats"]
    if isinstance(counts, int):
        return  # PyTorch makes a list of it, and calls the operator again
    require(counts.dtype in (torch.int64, torch.int32), "counts of repeats are int64 or int32")
    if counts.numel():
        require(int(counts.min()) >= 0, "counts of repeats are numbers from 0")
        require(float(counts.double().sum()) < _MOST_REPEATED, "there are too many repeats")


def _segments(given: Given) -> None:
    """data: (*, size, ...) along axis; lengths or offsets: (*, segments)."""
    data, axis = given["data"], given["axis"]
    require(0 <= axis < data.dim(), "there is no such axis")
    size = data.shape[axis]
    lengths, offsets = given["lengths"], given["offsets"]
    require((lengths is None) != (offsets is None), "segments need lengths, or offsets")
    parts = offsets if lengths is None else lengths
    require(parts.dim() == axis + 1 and parts.shape[:-1] == data.shape[:axis],
            "the lengths of segments must fit the data")  # fmt: skip
    if lengths is None:
        require(offsets.shape[-1] > 0, "offsets of segments have at least one element")
        rising(offsets, size, "the offsets of segments")
        return
    inside(lengths, size + 1, "the lengths of segments")
    require(bool((lengths.sum(-1) <= size).all()), "the segments are longer than the data")


def _segments_backward(given: Given) -> None:
    _segments(given)
    data, axis = given["data"], given["axis"]
    parts = given["offsets"] if given["lengths"] is None else given["lengths"]
    count = parts.shape[-1] - (given["lengths"] is None)
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    for name in ("grad", "output"):
        has_shape(given[name], shape, "the gradient of segments")


def _pivots(values: str, pivots: str) -> Guard:
    """Returns the guard of what uses a factorization: (*, M, N) with the smaller number of pivots,
    which are rows from 1.
    """

    def guard(given: Given) -> None:
        inside(given[pivots], _rows(given[values], given[pivots]) + 1, "the pivots", low=1)

    return guard


def _rows(whole: Any, pivots: Any) -> int:
    """Returns how many rows each matrix has."""
    require(whole.dim() >= 2, "a factorization is of matrices")
    m, n = whole.shape[-2:]
    has_shape(pivots, (*whole.shape[:-2], min(m, n)), "the pivots")
    require(pivots.dtype == torch.int32, "pivots are int32")
    return int(m)


def _symmetric(given: Given) -> None:
    """Pivots of LAPACK's sytrf: a negative one comes twice."""
    pivots = given["pivots"]
    rows = _rows(given["LD"], pivots)
    require(rows > 0 and given["B"].numel() > 0, "the matrices are empty")
    batch = given["LD"].shape[:-2]
    # PyTorch repeats the matrices for more right sides, and not the pivots.
    good = broadcast(batch, given["B"].shape[:-2]) == batch
    require(good, "there are more right sides than matrices")
    inside(pivots.abs(), rows + 1, "the pivots", low=1)
    for row in pivots.reshape(-1, rows).tolist():
        left = iter(row)
        for one in left:
            require(one > 0 or next(left, 0) == one, "a negative pivot comes twice")


def _least_squares(given: Given) -> None:
    require(given["b"].numel() > 0, "least squares need a right side")


def _common_multiple(given: Given) -> None:
    """The smallest number of a type has no opposite, and its division ends the process."""
    for name in ("self", "other"):
        value = given[name]
        if value.dtype in (torch.int32, torch.int64) and value.numel():
            least = torch.iinfo(value.dtype).min
            require(int(value.min()) > least, f"the common multiple of {least} is out of range")


def _truncating(given: Given) -> None:
    """As `_common_multiple`: the smallest number by -1."""
    value, by = given["self"], given["other"]
    if given["rounding_mode"] != "trunc" or value.dtype not in _SIGNED:
        return
    if isinstance(by, torch.Tensor):
        opposite = not by.is_floating_point() and bool((by == -1).any())
    else:
        opposite = by == -1
    if opposite and value.numel():
        least = torch.iinfo(value.dtype).min
        require(int(value.min()) > least, f"{least} by -1 is out of range")


def _running(given: Given) -> None:
    """values, indices: the results, of the shape of self."""
    for name in ("values", "indices"):
        same_shape(given[name], given["self"], "the results and the input")
    require(given["indices"].dtype == torch.int64, "indices are int64")
    require(0 <= given["dim"] < max(1, given["self"].dim()), "there is no such dimension")


def _stack(given: Given) -> None:
    several = given["tensors"]
    require(bool(several), "there is nothing to stack")
    for one in several:
        same_shape(one, several[0], "what is stacked")
    whole = len(several) > 1 or several[0].is_contiguous()
    require(whole, "a tensor that is stacked alone must be contiguous")


def _masked_index(given: Given) -> None:
    """indices: at most one for each dimension."""
    indices = given["indices"]
    good = len(indices) <= given["self"].dim() and any(one is not None for one in indices)
    require(good, "there are as many indices as dimensions")


def _chunks(given: Given) -> None:
    require(all(one.dim() for one in given["tensors"]), "chunks are of tensors with dimensions")


def _eigenvalues(given: Given) -> None:
    """LAPACK refuses other numbers, and PyTorch goes on."""
    require(bool(given["self"].isfinite().all()), "the matrix has an inf or a NaN")


def _pairs(given: Given) -> None:
    require(len(given["self"]) == len(given["src"]), "both lists must have one length")


def _range(given: Given) -> None:
    """PyTorch divides by the step as an integer, if the result has integers."""
    out = given.get("out")
    dtype = given.get("dtype") if out is None else out.dtype
    if dtype in (torch.uint8, *_SIGNED):
        require(int(given.get("step", 1)) != 0, "the step of a range of integers is below 1")


def _projections(given: Given) -> None:
    """qkv: (N, T, 3 D); qkv_bias: (3 D); D is num_heads times a width."""
    qkv, bias, heads = given["qkv"], given["qkv_bias"], given["num_heads"]
    require(qkv.dim() == 3 and bias.shape == qkv.shape[2:], "projections are (N, T, 3 D)")
    good = heads > 0 and bias.numel() > 0 and bias.numel() % (3 * heads) == 0
    require(good, "the width of projections is no multiple of the heads")


def _heads(given: Given) -> None:
    """PyTorch divides the width of the projections by the number of heads."""
    heads = given.get("num_heads", given.get("num_head", 0))
    require(heads > 0, "attention has at least one head")


def _weight_norm(given: Given) -> None:
    """v: any shape, contiguous; g: its first or last dimension, with the others 1."""
    value, dim = given.get("v", given.get("saved_v")), given["dim"]
    require(
        value.dim() > 0 and dim in (0, value.dim() - 1), "a norm is of the first or last dimension"
    )
    require(value.numel() > 0, "weights must not be empty")
    shape = [n if at == dim else 1 for at, n in enumerate(value.shape)]
    for name in ("g", "saved_g", "saved_norms"):
        if name in given:
            has_shape(given[name], shape, "the norms of weights")
    if "grad_w" in given:
        same_shape(given["grad_w"], value, "the weights and their gradient")


def _smooth_backward(given: Given) -> None:
    require(given["self"].is_floating_point(), "this loss has gradients for floating point only")


def _whole(tensor: Any) -> None:
    """The storage has as many elements, from the tensor's first one on, as the tensor has."""
    room = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    require(room >= tensor.numel(), "parameters and states have all of their elements in memory")


def _fused(*lists: str) -> Guard:
    """Returns the guard of a fused optimizer: each list has a tensor for each parameter, of its
    shape and without gaps; a list may be empty where the optimizer has no such state.
    """

    def guard(given: Given) -> None:
        parameters = given["self"]
        for one in parameters:
            _whole(one)
        for name in lists:
            states = given[name]
            needed = name == "max_exp_avg_sqs" and given["amsgrad"]
            needed = needed or (name == "momentum_buffer_list" and given["momentum"] != 0)
            if not states and name in ("max_exp_avg_sqs", "momentum_buffer_list") and not needed:
                continue
            require(len(states) == len(parameters), f"{name} needs a tensor for each parameter")
            for one, state in zip(parameters, states, strict=True):
                same_shape(one, state, "a parameter and its state")
                _whole(state)
                require(one.dtype == state.dtype, "a parameter and its state have one dtype")
        steps = given.get("state_steps")
        if steps is not None:
            require(len(steps) == len(parameters), "each parameter has a count of steps")
            for one in steps:
                has_count(one, 1, "a count of steps")
        for name in ("grad_scale", "found_inf", "lr"):
            if isinstance(given.get(name), torch.Tensor):
                has_count(given[name], 1, name)

    return guard


GUARDS: dict[str, Guard] = {
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bags),
    **dict.fromkeys(
        ("_embedding_bag_backward", "_embedding_bag_dense_backward",
         "_embedding_bag_per_sample_weights_backward"), _bags_backward,
    ),
    "repeat_interleave": _repeats,
    "segment_reduce": _segments,
    "_segment_reduce_backward": _segments_backward,
    "linalg_ldl_solve": _symmetric,
    "linalg_lu_solve": _pivots("LU", "pivots"),
    "lu_unpack": _pivots("LU_data", "LU_pivots"),
    "linalg_lstsq": _least_squares,
    **dict.fromkeys(("_cummax_helper", "_cummin_helper"), _running),
    "_stack": _stack,
    "_chunk_cat": _chunks,
    **dict.fromkeys(
        ("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"), _masked_index
    ),
    "_linalg_eigvals": _eigenvalues,
    "_foreach_copy": _pairs,
    "range": _range,
    "_transform_bias_rescale_qkv": _projections,
    **dict.fromkeys(("_native_multi_head_attention", "_transformer_encoder_layer_fwd"), _heads),
    **dict.fromkeys(("_weight_norm_interface", "_weight_norm_interface_backward"), _weight_norm),
    "smooth_l1_loss_backward": _smooth_backward,
    **dict.fromkeys(("lcm", "lcm_"), _common_multiple),
    **dict.fromkeys(
        ("div.Tensor_mode", "div.Scalar_mode", "div.out_mode", "div.Scalar_mode_out",
         "div_.Tensor_mode", "div_.Scalar_mode"), _truncating,
    ),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_"),
                    _fused("grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs")),
    "_fused_sgd_": _fused("grads", "momentum_buffer_list"),
    "_fused_adagrad_": _fused("grads", "state_sums"),
}  # fmt: skip
