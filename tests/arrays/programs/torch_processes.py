"""Tensors that cross processes, on the CPU and on the device of the first argument: both print the
same.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import torch

if "rgpu" in sys.argv:
    import rgpu_client.torch  # noqa: F401

_WAIT_SECONDS = 120


class Squares(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples that lie on the device."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return torch.arange(3.0, device=self._device) + index * index


def work(asked: Any, answers: Any) -> None:
    """Changes what comes, and sends it back."""
    x, part = asked.get(timeout=_WAIT_SECONDS)
    x += 1
    answers.put((x, part))
    # The answer has arrived before this process ends.
    asked.get(timeout=_WAIT_SECONDS)


def main(device: str) -> None:
    loader = torch.utils.data.DataLoader(
        Squares(device), batch_size=3, num_workers=1, multiprocessing_context="spawn",
        timeout=_WAIT_SECONDS,
    )  # fmt: skip
    for batch in loader:
        print(batch.device.type == device, batch.tolist())
    context = multiprocessing.get_context("spawn")
    asked, answers = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(asked, answers))
    worker.start()
    x = torch.arange(6.0, device=device).reshape(2, 3)
    asked.put((x, x[1:, ::2]))
    back, part = answers.get(timeout=_WAIT_SECONDS)
    print(back.device.type == device, back.tolist(), part.tolist(), part.stride())
    asked.put("thanks")
    worker.join(_WAIT_SECONDS)
    print(worker.exitcode)


if __name__ == "__main__":
    main(sys.argv[1])
