"""Networks that are trained on a node give the losses that they give here, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch", "msgpack")

from helpers.torch_session import Counted, counted, issuer  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402

__all__ = ["issuer"]
STEPS = 4


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Block(torch.nn.Module):  # type: ignore[misc]
    """A small transformer with words as input."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 50)

    def forward(self, x: Any) -> Any:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.layers(self.words(x), mask=mask, is_causal=True)).flatten(0, 1)


class Encoder(torch.nn.Module):  # type: ignore[misc]
    """A transformer without dropout, so that attention is one fused operator."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(12 * 32, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(x).flatten(1))


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """Two layers of an LSTM or GRU."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.inner = kind(8, 16, 2, batch_first=True)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x)[0][:, -1])


def mlp() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4)
    )


def convolutions() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


def losses(
    device: str,
    make: Callable[[], Any],
    shape: tuple[int, ...],
    optimizer: Any,
    words: bool = False,
) -> list[float]:
    """The losses of a few steps with a seed."""
    torch.manual_seed(7)
    x = torch.randint(0, 50, shape) if words else torch.randn(shape)
    y = torch.randint(0, 4, (x.numel() if words else shape[0],))
    model = make().to(device)
    x, y = x.to(device), y.to(device)
    optimizer = optimizer(model.parameters())
    # The CPU has drawn numbers for the parameters, and the node has not.
    torch.manual_seed(8)
    told = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        told.append(loss.item())
    return told


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


def fused(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


@pytest.mark.parametrize(
    ("make", "shape", "optimizer", "words"),
    [
        (mlp, (16, 20), sgd, False),
        (mlp, (16, 20), adamw, False),
        (mlp, (16, 20), fused, False),
        (convolutions, (8, 3, 16, 16), sgd, False),
        (convolutions, (8, 3, 16, 16), adamw, False),
        (Block, (4, 12), adamw, True),
        (Encoder, (4, 12, 32), adamw, False),
    ],
)
def test_losses_are_those_of_this_machine(
    issuer: Issuer, make: Any, shape: Any, optimizer: Any, words: bool
) -> None:
    here = losses("cpu", make, shape, optimizer, words)
    assert here[0] != here[-1]
    assert losses("rgpu", make, shape, optimizer, words) == here


def test_attention_is_that_of_this_machine(issuer: Issuer) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 4, 9, 32)
    mask = torch.rand(9, 9) > 0.3
    few = torch.randn(2, 2, 9, 32)
    for given, options in (
        ((q, k, v), {}),
        ((q, k, v), {"is_causal": True, "scale": 0.3}),
        ((q, k, v, mask), {}),
        ((q, k, v, mask.float()), {}),
        ((q, few, few), {"enable_gqa": True}),
        ((q[0], k[0], v[0]), {}),
    ):
        there = [one.to("rgpu").requires_grad_(one.is_floating_point()) for one in given]
        here = [one.clone().requires_grad_(one.is_floating_point()) for one in given]
        made, wanted = attention(*there, **options), attention(*here, **options)
        assert torch.equal(made.cpu(), wanted)
        made.square().sum().backward()
        wanted.square().sum().backward()
        for ours, theirs in zip(there, here, strict=True):
            if theirs.grad is not None:
                assert torch.equal(ours.grad.cpu(), theirs.grad)


def test_attention_waits_for_nothing_and_refuses_what_pytorch_refuses(issuer: Issuer) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(2, 4, 9, 32).to("rgpu")
    attention(q, q, q)
    with counted(issuer) as seen:
        made = attention(q, q, q)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            plain = attention(q, q, q)
    assert seen.waits == 0
    assert torch.allclose(made.cpu(), plain.cpu(), atol=1e-6)
    with pytest.raises(RuntimeError, match="same dtype"):
        attention(q, q.double(), q)
    with pytest.raises(RuntimeError, match="is_causal"):
        attention(q, q, q, torch.ones(9, 9, device="rgpu"), is_causal=True)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_networks_train(issuer: Issuer, kind: Any) -> None:
    """Their losses differ in the last bits: a CPU takes oneDNN's LSTM, and cells of several
    operators for a GRU, where PyTorch has every other device take cells of one operator.
    """
    here = losses("cpu", lambda: Recurrent(kind), (6, 5, 8), adamw)
    there = losses("rgpu", lambda: Recurrent(kind), (6, 5, 8), adamw)
    assert there == pytest.approx(here, rel=1e-6)


@pytest.mark.parametrize("make", [mlp, convolutions])
def test_a_step_waits_once(issuer: Issuer, make: Any) -> None:
    model = make().to("rgpu")
    x = torch.randn((8, 20) if make is mlp else (8, 3, 16, 16)).to("rgpu")
    optimizer = adamw(model.parameters())

    def step() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    for _ in range(2):
        step()
    with counted(issuer) as seen:
        step()
    assert seen == Counted(waits=1, templates=0)
