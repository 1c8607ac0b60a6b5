# mypy: ignore-errors
# ruff: noqa: ANN201
"""An ordinary PyTorch program: it trains a small network for some seconds.

It prints a line when it begins, and the loss every second. `python train.py SECONDS`.
"""

import sys
import time

import torch

import rgpu_client.torch  # noqa: F401

DEVICE = "rgpu"


def main():
    """Learns a weighted sum of its inputs."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 512), torch.nn.Tanh(), torch.nn.Linear(512, 512), torch.nn.Tanh(),
        torch.nn.Linear(512, 1),
    ).to(DEVICE)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    inputs = torch.rand(4096, 32)
    wanted = (inputs @ torch.randn(32, 1)).to(DEVICE)
    inputs = inputs.to(DEVICE)
    print(
        f"training a network of {sum(p.numel() for p in model.parameters()):,} numbers", flush=True
    )
    ends, shown, step = time.monotonic() + float(sys.argv[1]), 0.0, 0
    first = last = None
    while time.monotonic() < ends:
        optimizer.zero_grad()
        loss = ((model(inputs) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        step += 1
        last = loss.item()
        first = last if first is None else first
        if time.monotonic() - shown >= 1:
            shown = time.monotonic()
            print(f"step {step}: loss {last:.4f}", flush=True)
    sys.exit(0 if last < first / 2 else 1)


if __name__ == "__main__":
    main()
