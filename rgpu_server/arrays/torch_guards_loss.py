"""Guards of losses, whose targets are indices of classes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_server.arrays.torch_guard_rules import (
    has_count,
    has_shape,
    inside,
    numbers,
    require,
    same_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Given = Mapping[str, Any]
    Guard = Callable[[Given], None]

torch: Any = import_module("torch")

_CLASSES = "the classes of targets"
_NO_REDUCTION = 0


def _classes(target: Any, count: int, ignored: int | None = None) -> None:
    """target: classes from 0, or the one that is ignored."""
    require(target.dtype in (torch.int64, torch.uint8), "targets are int64")
    chosen = target.long()
    if ignored is not None:
        chosen = chosen[chosen != ignored]
    inside(chosen, count, _CLASSES)


def _gradient(given: Given, shape: tuple[int, ...]) -> None:
    gradient = given["grad_output"]
    if given["reduction"] == _NO_REDUCTION:
        has_shape(gradient, shape, "the gradient of a loss")
    else:
        has_count(gradient, 1, "the gradient of a loss")


def _nll_backward(given: Given) -> None:
    """self: (C) or (N, C); target: () or (N)."""
    value, target = given["self"], given["target"]
    require(value.dim() in (1, 2), "the input of a loss has one or two dimensions")
    rows = tuple(value.shape[:-1])
    has_count(target, rows[0] if rows else 1, "the targets")
    _classes(target, value.shape[-1], given["ignore_index"])
    has_count(given["weight"], value.shape[-1], "the weights of classes")
    has_count(given["total_weight"], 1, "the total weight")
    _gradient(given, rows)


def _nll2d_backward(given: Given) -> None:
    """self: (N, C, H, W); target: (N, H, W)."""
    value, target = given["self"], given["target"]
    require(value.dim() == 4, "the input of a loss of images has four dimensions")
    rows = (value.shape[0], *value.shape[2:])
    has_shape(target, rows, "the targets")
    _classes(target, value.shape[1], given["ignore_index"])
    has_count(given["weight"], value.shape[1], "the weights of classes")
    has_count(given["total_weight"], 1, "the total weight")
    _gradient(given, rows)


def _count_of_classes(value: Any) -> int:
    """value: (), (C) or (N, C)."""
    require(value.dim() <= 2 and value.numel() > 0, "a loss needs an input of (N, C)")
    return int(value.shape[-1]) if value.dim() else 1


def _margin_backward(given: Given) -> None:
    """self: (), (C) or (N, C); target: () or (N)."""
    value = given["self"]
    count, rows = _count_of_classes(value), tuple(value.shape[:-1])
    has_count(given["target"], rows[0] if rows else 1, "the targets")
    _classes(given["target"], count)
    has_count(given["weight"], count, "the weights of classes")
    _gradient(given, rows)


def _multilabel_backward(given: Given) -> None:
    """self, target, is_target: (), (C) or (N, C). A target of -1 ends the targets of a row."""
    value = given["self"]
    count = _count_of_classes(value)
    same_shape(given["target"], value, "targets and input")
    same_shape(given["is_target"], value, "targets and input")
    inside(given["target"], count, _CLASSES, low=-1)
    _gradient(given, tuple(value.shape[:-1]))


def _ctc(given: Given) -> None:
    """log_probs: (T, N, C); targets: (N, S), or all of them in a row; lengths: N numbers."""
    scores, targets = given["log_probs"], given["targets"]
    require(scores.dim() == 3, "the scores of CTC have three dimensions")
    steps, batch, classes = scores.shape
    inputs, lengths = numbers(given["input_lengths"]), numbers(given["target_lengths"])
    require(len(inputs) == len(lengths) == batch, "CTC needs two lengths for each of the batch")
    require(all(0 <= one <= steps for one in inputs), "a length of CTC is beyond its scores")
    require(min(lengths, default=0) >= 0, "lengths are numbers from 0")
    require(0 <= given["blank"] < classes, "the blank of CTC must be a class")
    if targets.dim() == 1:
        require(
            sum(lengths) <= targets.numel(), "the targets of CTC are shorter than their lengths"
        )
        used = targets[: sum(lengths)]
    else:
        good = targets.dim() == 2 and targets.shape[0] == batch
        require(
            good and max(lengths, default=0) <= targets.shape[1], "the targets of CTC are (N, S)"
        )
        places = torch.arange(targets.shape[1])
        used = targets[places < torch.tensor(lengths).reshape(-1, 1)]
    inside(used, classes, _CLASSES)


def _ctc_backward(given: Given) -> None:
    """grad, neg_log_likelihood: (N); log_alpha: (N, T, 2 S + 1) of the longest target."""
    _ctc(given)
    steps, batch, _ = given["log_probs"].shape
    longest = max(numbers(given["target_lengths"]), default=0)
    has_shape(given["grad"], (batch,), "the gradient of CTC")
    has_shape(given["neg_log_likelihood"], (batch,), "the loss of CTC")
    has_shape(given["log_alpha"], (batch, steps, 2 * longest + 1), "log_alpha")


GUARDS: dict[str, Guard] = {
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll2d_backward,
    "multi_margin_loss_backward": _margin_backward,
    "multilabel_margin_loss_backward": _multilabel_backward,
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": _ctc_backward,
}
