"""`scaled_dot_product_attention` on a node with the CPU build, computed as on a CPU here.

PyTorch chooses between a fused operator and several plain ones by the device of the tensors. For
this device it always takes the plain ones, whose results differ in the last bits, so a transformer
would not give the losses that it gives on a CPU.
"""

from __future__ import annotations

import weakref
from typing import Any

from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.session import session

_CPU = torch._C.DispatchKey.CPU
# `sdp::SDPBackend::flash_attention`.
_FLASH = 1
_choice = torch.ops.aten._fused_sdp_choice.default
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_plain = torch.ops.aten.scaled_dot_product_attention.default.decompose

# For each session, whether its node computes on the CPU.
_on_cpu: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
_kept: list[Any] = []


def register() -> None:
    """Registers the operator for this device, with autograd and without."""
    library = torch.library.Library("aten", "IMPL")
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library.impl("scaled_dot_product_attention", attention, key)
    _kept.append(library)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """See `torch.nn.functional.scaled_dot_product_attention`."""
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    options = {"scale": scale, "enable_gqa": enable_gqa}
    # PyTorch's own kernel refuses what is wrong.
    if not _well_formed(*given[:4], is_causal) or not _computes_on_cpu():
        return _plain(*given, **options)
    # The CPU's kernel looks at sizes, strides and `sdpa_kernel`, and at no elements.
    if _choice._op_dk(_CPU, *given, **options) != _FLASH:
        return _plain(*given, **options)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.where(attn_mask, _number(0.0, query), _number(float("-inf"), query))
    return _flash(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def _well_formed(query: Any, key: Any, value: Any, mask: Any, is_causal: bool) -> bool:
    """True if all tensors are of this device, with dtypes that attention takes."""
    if not query.dtype is key.dtype is value.dtype:
        return False
    tensors = [query, key, value]
    if mask is not None:
        if is_causal or mask.dtype not in (torch.bool, query.dtype):
            return False
        tensors.append(mask)
    return all(kind_of(one.device) == "rgpu" and one.dim() >= 2 for one in tensors)


def _number(value: float, like: Any) -> Any:
    return torch.scalar_tensor(value, dtype=like.dtype, device=like.device)


def _computes_on_cpu() -> bool:
    issuer = session.current()
    known = _on_cpu.get(issuer)
    if known is None:
        known = _on_cpu[issuer] = issuer.ask("kind") == "cpu"
    return known
