"""Stand-ins on the CPU build for operators that PyTorch has for GPUs alone.

PyTorch's own composites choose them for every device that is not the CPU, as the client's is.
Gates lie side by side: input, forget, cell and output of an LSTM; reset, update and new of a GRU.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")


def lstm_cell(
    input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Any, Any, Any]:
    """Returns hidden state, cell state, and the gates after activation: (N, 4 H)."""
    gates = _sum(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(
    grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool
) -> tuple[Any, Any, Any]:
    """Returns the gradients of the gates (N, 4 H), of the cell state before, and of the bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    grad_hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    grad_cy = torch.zeros_like(cy) if grad_cy is None else grad_cy
    bent = cy.tanh()
    grad_o = grad_hy * bent * o * (1 - o)
    grad_c = grad_hy * o * (1 - bent * bent) + grad_cy
    grad_i = grad_c * g * i * (1 - i)
    grad_f = grad_c * cx * f * (1 - f)
    grad_g = grad_c * i * (1 - g * g)
    gates = torch.cat((grad_i, grad_f, grad_g, grad_o), 1)
    return gates, grad_c * f, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Any, Any]:
    """Returns the hidden state, and what the backward pass needs: (N, 5 H)."""
    given = input_gates if input_bias is None else input_gates + input_bias
    hidden = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    ir, iz, new = given.chunk(3, 1)
    hr, hz, hn = hidden.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (new + r * hn).tanh()
    return n + z * (hx - n), torch.cat((r, z, n, hx, hn), 1)


def gru_cell_backward(
    grad_hy: Any, workspace: Any, has_bias: bool
) -> tuple[Any, Any, Any, Any, Any]:
    """Returns the gradients of both kinds of gates (N, 3 H), of the state, and of both biases."""
    r, z, n, hx, hn = workspace.chunk(5, 1)
    grad_z = grad_hy * (hx - n) * (1 - z) * z
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r = grad_n * hn * (1 - r) * r
    given = torch.cat((grad_r, grad_z, grad_n), 1)
    hidden = torch.cat((grad_r, grad_z, grad_n * r), 1)
    biases = (given.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return given, hidden, grad_hy * z, *biases


def _sum(a: Any, b: Any, *biases: Any) -> Any:
    total = a + b
    for bias in biases:
        if bias is not None:
            total = total + bias
    return total


STAND_INS: dict[str, Any] = {
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
}

# Mean and deviation that a normalization keeps for its backward pass, in evaluation.
SPARE_RESULTS: dict[str, tuple[int, ...]] = {
    "aten::native_batch_norm": (1, 2),
    "aten::_native_batch_norm_legit": (1, 2),
    "aten::_native_batch_norm_legit.no_stats": (1, 2),
    "aten::_native_batch_norm_legit_no_training": (1, 2),
    "aten::_batch_norm_no_update": (1, 2),
    "aten::cudnn_batch_norm": (1, 2),
}
