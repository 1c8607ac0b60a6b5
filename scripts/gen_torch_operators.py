"""Writes the list of PyTorch operators that a worker executes, for the installed release.

The list is the dispatcher's operators less the classes below, each of which has its reason.

    python scripts/gen_torch_operators.py
"""

from __future__ import annotations

import functools
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "rgpu_server" / "arrays"

# (a pattern for the whole name, the reason)
BY_NAME = (
    (r"from_file", "it opens a file of the node"),
    (
        r"_?(print|assert_async|functional_assert_async|assert_scalar|functional_assert_scalar"
        r"|assert_tensor_metadata|async_error|functional_sym_constrain_range.*|sym_.*)",
        "it prints, or stops the device when a condition fails",
    ),
    (r"_test_.*|_foobar.*|.*_?debug_.*", "it is there for PyTorch's own tests"),
    (
        r"set_|set|set_data|_resize_output.*|_set_.*|resize_as_sparse.*|.*data_ptr.*|record_stream",
        "it changes what a storage is, which the session keeps account of",
    ),
    (
        r"(_cudnn_init|_cufft|_cudnn_set|_cslt|_use_cudnn).*",
        "it sets up the state of an NVIDIA library",
    ),
    (
        r"(quantize|dequantize|_?fake_quant|quantized|q_|int_repr|_make_per|_choose_qparams|fbgemm"
        r"|choose_qparams|qscheme|fused_moving|_fused_moving|_empty_affine|_empty_per|_dequantize"
        r"|empty_quantized|_saturate).*",
        "tensors of quantized dtypes are not offered",
    ),
    (
        r"(sparse|_sparse|to_sparse|_to_sparse|coalesce|_coalesce|_nnz|indices|_indices|values|_values"
        r"|crow_|ccol_|col_|row_|_spdiags|_dimI|_dimV|_validate_sparse|_validate_compressed|hspmm|sspaddmm"
        r"|_to_dense|to_dense|_spsolve|_sspaddmm|smm|is_coalesced|dense_dim|copy_sparse|_compressed"
        r"|_convert_indices_from_csr|_convert_indices_from_coo|resize_sparse).*",
        "sparse tensors are not offered yet",
    ),
    (
        r"(_?nested|_jagged|_padded_dense|_fbgemm|_nested|to_padded).*",
        "nested tensors are not offered yet",
    ),
    (
        r"(mkldnn|_mkldnn|to_mkldnn|mkl_|_mkl|miopen|_mps|mps_|_vulkan|xpu).*|.*_to_mkldnn.*",
        "it belongs to another library or device",
    ),
    (
        r"(_pin_memory|pin_memory|is_pinned|_copy_from.*|_to_cpu|_record_function|_nnpack_available"
        r"|_lazy.*|_has_.*|_version|_fw_primal|_make_dual|_unpack_dual|_backward|_transform_bias.*_nested|"
        r"_debug.*|_dirichlet_debug|rename|rename_|names|align_.*|unflatten_dense.*|_unsafe_view_copy|"
        r"_tensor_from_files|_load.*|_save.*|is_set_to|_is_zerotensor|_efficientzerotensor|"
        r"_propagate_xla_data|_sync|_local_scalar_dense)",
        "it is about the state of the client, which stays there",
    ),
)
# Operators whose names begin with a line check little of what they are given. Those that PyTorch's
# own samples reach are in `torch_internal.json`; these are reached by optimizers, models and a
# GPU's build.
INTERNAL = (
    r"_foreach_\w+(\.(?!.*out)\w+)?",
    r"_fused_(adam|adamw|sgd|adagrad)_(\.tensor_lr)?",
    r"__(i?[lr]shift)__\.(Tensor|Scalar)",
    r"_amp_(update_scale_|foreach_non_finite_check_and_unscale_)",
    r"_thnn_fused_(lstm|gru)_cell(_backward(_impl)?)?",
    r"_scaled_dot_product_(?!.*(mps|quantized))\w+",
    r"_(efficient|flash|cudnn)_attention_(forward|backward)",
    r"_(standard_gamma|standard_gamma_grad|sample_dirichlet|dirichlet_grad|aminmax|to_copy|stack)",
    r"_(transformer_encoder_layer_fwd|native_multi_head_attention|transform_bias_rescale_qkv)",
    r"_(fused_sdp_choice|fused_dropout|masked_scale|logcumsumexp|cummax_helper|cummin_helper)",
    r"_(is_all_true|is_any_true|int_mm|grouped_mm|scaled_grouped_mm|addmm_activation|log_softmax)",
    r"_(weight_norm_interface|masked_softmax|fused_rms_norm|softmax|ctc_loss)(_backward)?",
    r"_(softmax|log_softmax)_backward_data",
    r"_upsample_\w+(_backward)?",
    r"_linalg_\w+",
    r"_native_batch_norm_legit(_no_training|_functional)?(\.no_stats)?",
    r"_batch_norm_(no_update|with_update)",
    r"_embedding_bag\w*",
    r"_cdist_(forward|backward)|_pdist_(forward|backward)|_aminmax\.dim|_ctc_loss\w*\.Tensor",
    r"_unique2?|_neg_view_copy|_conj_physical|_conj_copy|_fft_\w+",
)
BY_TYPE = {
    "Storage": "a storage is no argument",
    "Stream": "streams stay on the node",
    "__torch__.torch.classes": "TorchScript's classes are not offered",
    "Any": "it takes anything",
    "Future": "it belongs to TorchScript",
    "t": "it belongs to TorchScript",
}


def main() -> None:
    """Writes the list."""
    torch: Any = import_module("torch")
    release = ".".join(torch.__version__.split(".")[:2])
    allowed, groups = [], {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::"):
            continue
        reason = _reason(torch, name)
        if reason is None:
            allowed.append(name)
        elif reason:
            groups.setdefault(reason, []).append(name)
    excluded = [{"reason": reason, "operators": names} for reason, names in sorted(groups.items())]
    data = {"torch": release, "operators": allowed, "excluded": excluded}
    path = FOLDER / f"torch_operators_{release.replace('.', '_')}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(f"{path.name}: {len(allowed)} operators, {sum(map(len, groups.values()))} left out")


def _reason(torch: Any, name: str) -> str | None:
    """Returns why an operator is left out; None: it is not."""
    base = name.removeprefix("aten::").partition(".")[0]
    for pattern, reason in BY_NAME:
        if reason and re.fullmatch(pattern, base):
            return reason
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, "CompositeImplicitAutograd") and not has(name, "CPU"):
        return "PyTorch composes it of other operators on the client"
    if base.startswith("_") and name not in _reached() and not _internal(name):
        return "it is internal, and neither models nor PyTorch's own samples reach it"
    schemas = [
        one for one in torch._C._jit_get_schemas_for_operator(f"aten::{base}") if _full(one) == name
    ]
    if not schemas:
        return "it has no schema"
    for part in (*schemas[0].arguments, *schemas[0].returns):
        kind = str(part.real_type if hasattr(part, "real_type") else part.type)
        for wrong, reason in BY_TYPE.items():
            if re.search(rf"(^|\[){re.escape(wrong)}($|\]|\.)", kind):
                return reason
    return None


@functools.cache
def _reached() -> frozenset[str]:
    data = json.loads((Path(__file__).parent / "torch_internal.json").read_text())
    return frozenset(data["reached"])


def _internal(name: str) -> bool:
    short = name.removeprefix("aten::")
    return any(re.fullmatch(pattern, short) for pattern in INTERNAL)


def _full(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


if __name__ == "__main__":
    main()
