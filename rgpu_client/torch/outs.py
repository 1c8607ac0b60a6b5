"""Internal operators that write into tensors given to them, as `aten::_fft_c2c.out`.

Public functions end in them: `torch.fft.fft(x, out=y)`. The node is not offered them, because they
check little of what they are given. So the client has the node compute the results, and copies
them.
"""

from __future__ import annotations

from typing import Any

from rgpu_client.torch import infer, views
from rgpu_client.torch.package import torch


class Writing:
    """The kernel of an operator that writes into `names`. plain: the operator that returns them."""

    def __init__(self, operator: Any, plain: Any, names: tuple[str, ...]) -> None:
        self._operator, self._plain, self._names = operator, plain, names

    @property
    def __name__(self) -> str:
        return "rgpu"

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        # PyTorch's own check of the arguments, before anything is issued.
        infer.check(self._operator, arguments, keywords)
        outs = [keywords.pop(name) for name in self._names]
        results = self._plain(*arguments, **keywords)
        several = results if isinstance(results, tuple) else (results,)
        for out, result in zip(outs, several, strict=True):
            _write(out, result)
        return outs[0] if len(outs) == 1 else tuple(outs)


def writing(operator: Any) -> Writing | None:
    """Returns the kernel of an internal operator that writes its results into arguments; None: it
    is another operator, or there is none that returns the results.
    """
    schema = operator._schema
    outs = [one for one in schema.arguments if _writes(one)]
    if not schema.name.startswith("aten::_") or len(outs) != len(schema.returns) or not outs:
        return None
    if not all(one.kwarg_only and str(one.type) == "Tensor" for one in outs):
        return None
    wanted = _form(one for one in schema.arguments if not _writes(one))
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
    for overload in packet.overloads():
        plain = getattr(packet, overload)
        if _form(plain._schema.arguments) == wanted:
            return Writing(operator, plain, tuple(one.name for one in outs))
    return None


def _write(out: Any, result: Any) -> None:
    if not torch.can_cast(result.dtype, out.dtype):
        raise RuntimeError(
            f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead"
        )
    if out.shape != result.shape:
        views.resize_(out, result.shape)
        views.as_strided_(out, result.shape, result.stride())
    out.copy_(result)


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _form(arguments: Any) -> list[tuple[str, str, bool]]:
    return [(one.name, str(one.type), _writes(one)) for one in arguments]
