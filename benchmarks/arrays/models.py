"""Networks, and training steps that read their loss."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")


def mlp(width: int) -> tuple[Any, Any, Any]:
    """Three layers, and a batch of 256."""
    layers = (torch.nn.Linear(width, width), torch.nn.ReLU()) * 2
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)), *batch(256, width)


def batch(*shape: int) -> tuple[Any, Any]:
    """Inputs of a shape, and a wanted value for each."""
    return torch.randn(*shape), torch.randn(shape[0], 1)


def convnet(size: int) -> tuple[Any, Any, Any]:
    """Two convolutions, and a batch of 32 pictures."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    return model, *batch(32, 3, size, size)


def transformer(length: int) -> tuple[Any, Any, Any]:
    """Two blocks of an encoder, and a batch of 16 texts."""
    return _encoder(128, 4, 16, length)


def tiny_transformer(length: int) -> tuple[Any, Any, Any]:
    """The same operators with so few elements that their computing does not count."""
    return _encoder(16, 2, 2, length)


def _encoder(width: int, heads: int, texts: int, length: int) -> tuple[Any, Any, Any]:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(encoder, nn.Flatten(), nn.Linear(width * length, 1))
    return model, *batch(texts, length, width)


class Training:
    """A model with its optimizer, on a device."""

    def __init__(self, make: Callable[[int], tuple[Any, Any, Any]], size: int, device: str) -> None:
        torch.manual_seed(0)
        model, x, y = make(size)
        self.model, self.x, self.y = model.to(device), x.to(device), y.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.losses: list[float] = []
        self.loss: Any = None

    def issue(self) -> None:
        """One step, of which no value is read."""
        self.optimizer.zero_grad()
        self.loss = ((self.model(self.x) - self.y) ** 2).mean()
        self.loss.backward()
        self.optimizer.step()

    def read(self) -> None:
        """Reads the loss of the last step."""
        self.losses.append(float(self.loss.item()))

    def step(self) -> None:
        """One step, which reads its loss."""
        self.issue()
        self.read()

    def step_reading(self, values: int) -> None:
        """One step that reads its loss and the size of some parameters, each by itself."""
        self.step()
        for one in list(self.model.parameters())[: values - 1]:
            one.detach().norm().item()
