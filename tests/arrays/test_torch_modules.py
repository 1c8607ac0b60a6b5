"""Modules come to the node and back with all that they are, script modules and files of them, too."""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from helpers.needs import import_needed

torch: Any = import_needed("torch", "msgpack")

from helpers.torch_session import issuer, sent  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402

__all__ = ["issuer"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
HERE, THERE = "cpu", "rgpu"


class Marked(torch.nn.Parameter):  # type: ignore[misc]
    """A parameter of a program's own kind."""


def linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(2, 2)


def gradient(model: Any, device: str) -> list[Any]:
    model(torch.ones(1, 2, device=device)).sum().backward()
    found: list[Any] = model.weight.grad.cpu().tolist()
    return found


@pytest.mark.parametrize("moves", [[THERE], [THERE, HERE], [THERE, HERE, THERE]])
def test_a_parameter_is_the_same_object_with_all_that_it_has(
    issuer: Issuer, moves: list[str]
) -> None:
    """Before: it had a new object's hooks, attributes and class, so hooks were not called."""
    model, seen = linear(), []
    weight = model.weight
    weight._no_decay = True
    weight.register_hook(lambda gradient: gradient * 3)
    weight.register_post_accumulate_grad_hook(lambda one: seen.append(one))
    model.special = Marked(torch.ones(2), requires_grad=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    reference = weakref.ref(weight)
    for device in moves:
        model.to(device)
        assert weight.device.type == model.special.device.type == device
    assert reference() is model.weight is optimizer.param_groups[0]["params"][0]
    assert weight._no_decay
    assert (type(model.special), model.special.requires_grad) == (Marked, False)
    before = weight.detach().cpu().clone()
    assert gradient(model, moves[-1]) == [[3, 3], [3, 3]]
    assert len(seen) == 1
    assert seen[0] is weight
    optimizer.step()
    assert torch.equal(weight.cpu(), before - 3)


def test_a_gradient_moves_along(issuer: Issuer) -> None:
    model = linear()
    expected = gradient(model, HERE)
    model.to(THERE)
    assert model.weight.grad.device.type == THERE
    assert model.weight.grad.cpu().tolist() == expected
    assert gradient(model, THERE) == [[2, 2], [2, 2]]
    assert model.to(HERE).weight.grad.tolist() == [[2, 2], [2, 2]]


def test_a_parameter_that_others_hold_moves(issuer: Issuer) -> None:
    """Results that are not yet forgotten, views, and norms, which keep a result themselves."""
    for made in (
        linear(),
        torch.nn.utils.spectral_norm(linear()),
        torch.nn.utils.parametrizations.weight_norm(linear()),
        torch.nn.BatchNorm1d(2),
    ):
        held = [made(torch.ones(3, 2)), *(one[0] for one in made.parameters())]
        made.to(THERE)
        assert {one.device.type for one in made.parameters()} == {THERE}
        assert made(torch.ones(3, 2, device=THERE)).device.type == THERE
        assert held[0].device.type == HERE


def test_a_move_between_the_two_passes_is_told(issuer: Issuer) -> None:
    model = linear()
    loss = model(torch.ones(1, 2)).sum()
    model.to(THERE)
    with pytest.raises(RuntimeError, match="between its forward pass and the backward pass"):
        loss.backward()


def test_a_state_is_copied_into_what_is_there(issuer: Issuer) -> None:
    """Before: loading gave each parameter a new object's attributes and hooks."""
    for device in (HERE, THERE):
        model = linear().to(device)
        model.weight._no_decay = True
        model.weight.register_hook(lambda gradient: gradient * 3)
        model.load_state_dict({name: one * 2 for name, one in linear().state_dict().items()})
        assert model.weight._no_decay
        assert torch.equal(model.weight.cpu(), linear().weight * 2)
        assert gradient(model, device) == [[3, 3], [3, 3]]


def test_a_lazy_module_moves_before_it_knows_its_sizes(issuer: Issuer) -> None:
    for device in (HERE, THERE):
        lazy = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d())
        lazy.to(torch.float64).to(device)
        result = lazy(torch.ones(2, 2, device=device, dtype=torch.float64))
        assert (tuple(result.shape), result.dtype) == ((2, 3), torch.float64)
        assert result.device.type == device
        assert type(lazy[0]) is torch.nn.Linear


# Script modules


class Tied(torch.nn.Module):  # type: ignore[misc]
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.last.weight = self.first.weight
        self.register_buffer("more", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)) + self.more


def scripted() -> Any:
    torch.manual_seed(0)
    return torch.jit.script(Tied())


def traced() -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    return torch.jit.trace(model, torch.ones(2, 2))


def losses(model: Any) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], device=next(model.parameters()).device)
    found = []
    for _ in range(3):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("made", [scripted, traced])
def test_a_script_module_trains_wherever_it_is_moved(
    issuer: Issuer, made: Callable[[], Any]
) -> None:
    """Before: a script module could not be moved."""
    expected = pytest.approx(losses(made()), rel=1e-4)
    assert losses(made().to(THERE)) == expected
    assert losses(made().to(THERE).to(HERE)) == expected
    assert losses(torch.nn.Sequential(made()).to(THERE)) == expected
    assert next(made().to(THERE).half().parameters()).dtype == torch.float16
    model = made().to(THERE)
    model.load_state_dict(made().state_dict())
    assert losses(model) == expected
    first = next(iter(model.parameters()))
    assert next(iter(model.double().parameters())) is first


def test_a_shared_weight_stays_one_weight(issuer: Issuer) -> None:
    model = scripted().to(THERE)
    assert model.first.weight is model.last.weight
    assert len(list(model.parameters())) == 3


class Constants(torch.nn.Module):  # type: ignore[misc]
    """Tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), 2.0))
        self.plain, self.many = torch.full((2,), 10.0), [torch.full((2,), 20.0)]
        self.named, self.pair = {"a": torch.full((2,), 40.0)}, (torch.full((2,), 80.0), 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight + self.plain + self.many[0]
        return x + self.named["a"] + self.pair[0] * self.pair[1]


TEN = torch.full((2,), 10.0)


def calls() -> Any:
    """A module that calls a function with a constant of its own."""
    added = torch.jit.trace(lambda x: x + TEN, torch.ones(2))

    class Calls(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return added(x)  # type: ignore[no-any-return]

    return torch.jit.script(Calls())


class WithTen(torch.nn.Module):  # type: ignore[misc]
    """Has a constant once it is traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + TEN


FILES: dict[str, tuple[Callable[[], Any], float]] = {
    "attributes": (lambda: torch.jit.script(Constants()), 312),
    "frozen": (lambda: torch.jit.freeze(torch.jit.script(Constants()).eval()), 312),
    "traced": (lambda: torch.jit.trace(WithTen(), torch.ones(2)), 11),
    "function": (calls, 11),
}


def opened(model: Any, **where: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(model, file)
    file.seek(0)
    return torch.jit.load(file, **where)


@pytest.mark.parametrize("kind", FILES)
def test_all_tensors_of_a_script_module_come_out_of_a_file(issuer: Issuer, kind: str) -> None:
    """Before: those that are neither parameters nor buffers stayed on the CPU."""
    made, expected = FILES[kind]
    model = opened(made(), map_location=THERE)
    assert model(sent(2) * 0 + 1).cpu().tolist() == [expected, expected]
    assert opened(made())(torch.ones(2)).tolist() == [expected, expected]
    # From the node to a file and back, wherever it says, or where it was.
    for where in ({}, {"map_location": THERE}, {"map_location": torch.device(THERE, 0)}):
        assert opened(model, **where)(sent(2) * 0 + 1).cpu().tolist() == [expected, expected]
    again = opened(model, map_location=HERE)
    assert again(torch.ones(2)).tolist() == [expected, expected]


def test_a_file_that_is_none_has_pytorchs_error(issuer: Issuer) -> None:
    with pytest.raises(RuntimeError, match="reader"):
        torch.jit.load(io.BytesIO(b"nothing"))
    with pytest.raises(ValueError, match="does not exist"):
        torch.jit.load("/there/is/none")
