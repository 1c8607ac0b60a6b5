"""Packed sequences, whose lengths PyTorch keeps on the CPU for every device."""

from __future__ import annotations

from typing import Any

from rgpu_client.torch.package import torch


def pack(padded: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
    """Returns the elements of padded sequences step by step, and the sequences of each step.

    padded: (steps, sequences, ...), or (sequences, steps, ...) if `batch_first`. lengths: of the
    CPU, in decreasing order. The second result is of the CPU too.

    Raises:
        RuntimeError: the lengths do not fit.
    """
    rows = padded.transpose(0, 1) if batch_first else padded
    sizes = lengths.tolist()
    if len(sizes) != rows.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={rows.shape[1]})"
        )
    if not sizes or sizes[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if sizes != sorted(sizes, reverse=True):
        raise RuntimeError("`lengths` array has to be sorted in decreasing order")
    steps = [sum(size > at for size in sizes) for at in range(sizes[0])]
    data = torch.cat([rows[at, :count] for at, count in enumerate(steps)])
    return data, torch.tensor(steps, dtype=torch.int64, device="cpu")
