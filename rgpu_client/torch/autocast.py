"""`torch.autocast("rgpu")` casts what `torch.autocast("cuda")` does.

The lists name PyTorch's operators by what autocast does to their arguments: cast to the lower
precision, cast to float32, compute in float32, or cast to the widest of them.
"""

from __future__ import annotations

from typing import Any

from rgpu_client.torch.package import kind_of, torch

_KEY = "AutocastPrivateUse1"
_LOWER = """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum
    mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    scaled_dot_product_attention
"""
_FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
    frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
    cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss
    huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
    logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d
    _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
    _upsample_bicubic2d_aa norm.Scalar norm.ScalarOpt_dim
"""
_COMPUTED = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
    linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
_WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    cat stack
"""
_BANNED = "binary_cross_entropy"

_kept: list[Any] = []


def register() -> None:
    """Registers the casts."""
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, _KEY)
    casts = torch.library.Library("aten", "IMPL")
    for names, make in (
        (_LOWER, _lower), (_FLOAT32, _float32), (_COMPUTED, _computed), (_WIDEST, _widest),
        (_BANNED, _banned),
    ):  # fmt: skip
        for name in names.split():
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            casts.impl(name, make(operator), _KEY)
    _kept.extend((rest, casts))


def _without() -> Any:
    """Autocast is off while a cast operator runs."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    return torch._C._ExcludeDispatchKeyGuard(keys)


def _lower(operator: Any) -> Any:
    def kernel(*arguments: Any, **keywords: Any) -> Any:
        with _without():
            to = torch.get_autocast_dtype("rgpu")
            given, named = _cast((arguments, keywords), to)
            return operator(*given, **named)

    return kernel


def _float32(operator: Any) -> Any:
    def kernel(*arguments: Any, **keywords: Any) -> Any:
        with _without():
            given, named = _cast((arguments, keywords), torch.float32)
            return operator(*given, **named)

    return kernel


def _computed(operator: Any) -> Any:
    """The operator takes a dtype to compute in; one that the caller gives wins."""

    def kernel(*arguments: Any, **keywords: Any) -> Any:
        with _without():
            if (
                _castable(arguments[0])
                and keywords.get("dtype") is None
                and not any(isinstance(one, torch.dtype) for one in arguments)
            ):
                keywords["dtype"] = torch.float32
                if "dtype" not in _keyword_only(operator):
                    del keywords["dtype"]
                    arguments = (*arguments, torch.float32)
            return operator(*arguments, **keywords)

    return kernel


def _keyword_only(operator: Any) -> set[str]:
    return {one.name for one in operator._schema.arguments if one.kwarg_only}


def _widest(operator: Any) -> Any:
    def kernel(*arguments: Any, **keywords: Any) -> Any:
        with _without():
            found = _dtypes((arguments, list(keywords.values())))
            wide = torch.float32 in found
            to = torch.float32 if wide else torch.get_autocast_dtype("rgpu")
            given, named = _cast((arguments, keywords), to)
            return operator(*given, **named)

    return kernel


def _banned(operator: Any) -> Any:
    def kernel(*arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
            "\n"
            "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
            "In this case, combine the two layers using "
            "torch.nn.functional.binary_cross_entropy_with_logits\n"
            "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits "
            "are\nsafe to autocast."
        )

    return kernel


def _castable(value: Any) -> bool:
    """True for tensors of this device whose precision autocast changes; double stays double."""
    return (
        isinstance(value, torch.Tensor)
        and kind_of(value.device) == "rgpu"
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _cast(value: Any, to: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(to) if _castable(value) else value
    if isinstance(value, list | tuple):
        return type(value)([_cast(one, to) for one in value])
    if isinstance(value, dict):
        return {name: _cast(one, to) for name, one in value.items()}
    return value


def _dtypes(value: Any) -> set[Any]:
    if isinstance(value, torch.Tensor):
        return {value.dtype} if _castable(value) else set()
    if isinstance(value, list | tuple):
        return set().union(*[_dtypes(one) for one in value])
    return set()
