"""Errors of PyTorch with a node: their types, their texts, and the lines that they name."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch", "msgpack")

from helpers.torch_session import Counted, counted, issuer, sent, torch_session  # noqa: E402

from rgpu_client.arrays.issuer import Issuer, SessionLostError  # noqa: E402
from rgpu_client.torch import as_cuda, package  # noqa: E402
from rgpu_client.torch.session import session, use  # noqa: E402
from rgpu_common.errors import MissingPartError, NoSessionError  # noqa: E402

__all__ = ["issuer"]


def test_devices_do_not_mix(issuer: Issuer) -> None:
    with pytest.raises(
        RuntimeError,
        match="Expected all tensors to be on the same device, but found at least two devices, rgpu:0 and cpu!",
    ):
        sent(3) + torch.ones(3)
    assert (sent(3) + torch.tensor(2.0)).tolist() == [2, 3, 4]
    assert (sent(3).to(torch.int32) + torch.tensor(2)).dtype == torch.int32
    assert sent(3)[torch.tensor([2, 0])].tolist() == [2, 0]


def test_errors_have_the_type_the_text_and_the_line(issuer: Issuer) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        sent(2, 3) @ sent(2, 3)
    assert caught.value.rgpu_site[0] == __file__  # type: ignore[attr-defined]
    late = torch.linalg.cholesky(-torch.eye(2, device="rgpu"))
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        late.cpu()
    with pytest.raises(IndexError, match=r"out of range|out of bounds"):
        sent(3)[torch.tensor([7], device="rgpu")].cpu()
    with pytest.raises(TypeError, match="can't convert rgpu"):
        sent(2).numpy()
    assert sent(2).tolist() == [0, 1]


def test_a_full_lease_is_pytorchs_own_error() -> None:
    with torch_session(1 << 20) as issuer:
        kept = torch.zeros(1 << 17, device="rgpu")
        full = r"CUDA out of memory\. Tried to allocate 1\.00 MiB"
        for make in (torch.zeros, torch.empty, torch.randn):
            with pytest.raises(torch.OutOfMemoryError, match=full):
                make(1 << 18, device="rgpu")
        assert torch.rgpu.mem_get_info() == ((1 << 20) - (1 << 19), 1 << 20)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.ones(1 << 18).to("rgpu")
        with pytest.raises(torch.OutOfMemoryError):
            kept.resize_(1 << 19)
        assert kept.sum().item() == 0
        del kept
        issuer.sync()
        assert torch.rgpu.memory_allocated() == 0
        assert torch.zeros(1 << 17, device="rgpu").sum().item() == 0
        for _ in range(20):
            torch.zeros(1 << 16, device="rgpu").add_(1)
        assert torch.ones(1, device="rgpu").item() == 1


GROWING: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda one, out: torch.add(one.expand(1 << 15), 1, out=out),
    "cat": lambda one, out: torch.cat([one.expand(1 << 14)] * 2, out=out),
    "stack": lambda one, out: torch.stack([one.expand(1 << 14)] * 2, out=out),
    "mm": lambda one, out: torch.mm(one.expand(256, 1), one.expand(1, 128), out=out),
    "matmul": lambda one, out: torch.matmul(one.expand(256, 1), one.expand(1, 128), out=out),
    "arange": lambda one, out: torch.arange(1 << 15, out=out),
    "ones": lambda one, out: torch.ones(1 << 15, out=out),
    "clamp": lambda one, out: torch.clamp(one.expand(1 << 15), 0, out=out),
    "sum": lambda one, out: torch.sum(one.expand(2, 1 << 15), 0, out=out),
    "add into a larger one": lambda one, out: torch.add(
        one.expand(1 << 15), 1, out=out.resize_(1 << 10).resize_(0)
    ),
    "resize_": lambda one, out: out.resize_(1 << 15),
    "resize_as_": lambda one, out: out.resize_as_(one.expand(1 << 15)),
}


@pytest.mark.parametrize("name", GROWING)
def test_what_an_operator_adds_to_a_tensor_is_allocated_in_the_call(name: str) -> None:
    with torch_session(1 << 20) as issuer:
        one = torch.ones(1, device="rgpu")
        kept: list[Any] = []

        def fill() -> None:
            while len(kept) < 8:
                kept.append(GROWING[name](one, torch.empty(0, device="rgpu")))

        with pytest.raises(torch.OutOfMemoryError):
            fill()
        # The number itself takes a little.
        assert len(kept) == 7
        assert sum(one.untyped_storage().nbytes() for one in kept) == 7 << 17
        issuer.sync()
        del kept[:3]
        with pytest.raises(torch.OutOfMemoryError):
            fill()
        assert len(kept) == 7
        issuer.sync()


def test_what_only_the_node_knows_is_counted_too() -> None:
    with torch_session(1 << 20) as issuer:
        row = torch.ones(1 << 15, device="rgpu")
        kept = [torch.masked_select(row, row > 0, out=torch.empty(0, device="rgpu"))]
        kept += [torch.masked_select(row, row > 0) for _ in range(3)]
        issuer.sync()
        with pytest.raises(torch.OutOfMemoryError):
            kept += [torch.ones(1 << 15, device="rgpu") for _ in range(4)]
        issuer.sync()


@pytest.mark.parametrize("make", [torch.ones, torch.empty])
def test_a_program_finds_how_many_tensors_fit(make: Any) -> None:
    with torch_session(1 << 20):
        kept: list[Any] = []
        while len(kept) < 8:
            kept.append(make(1 << 15, device="rgpu"))
        with pytest.raises(torch.OutOfMemoryError):
            make(1 << 15, device="rgpu")
        del kept[0]
        kept.append(make(1 << 15, device="rgpu"))
        # What was only claimed is there when it is used.
        assert [one.fill_(3).cpu()[-1].item() for one in kept] == [3.0] * 8


def test_a_step_that_does_not_fit_raises_where_it_allocates() -> None:
    with torch_session(1 << 20):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).to("rgpu")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(rows: int) -> None:
            optimizer.zero_grad()
            model(torch.ones(rows, 64, device="rgpu")).square().mean().backward()
            optimizer.step()

        rows, largest = 8, 0
        before = [one.detach().clone() for one in model.parameters()]
        try:
            while rows < 1 << 20:
                step(rows)
                before = [one.detach().clone() for one in model.parameters()]
                rows, largest = 2 * rows, rows
        except torch.OutOfMemoryError:
            pass
        assert 64 <= largest < 2048
        after = [one.detach() for one in model.parameters()]
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(before, after, strict=True))
        step(largest // 2)
        torch.rgpu.synchronize()


def test_a_step_that_has_failed_leaves_the_weights_and_the_optimizer(issuer: Issuer) -> None:
    torch.manual_seed(0)
    rows = torch.nn.Embedding(4, 3).to("rgpu")
    layer = torch.nn.Linear(3, 1).to("rgpu")
    parameters = [*rows.parameters(), *layer.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-2)

    def step(*numbers: int) -> float:
        optimizer.zero_grad()
        loss = layer(rows(torch.tensor(numbers, device="rgpu"))).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    def state() -> list[list[float]]:
        moments = [one["exp_avg"] for one in optimizer.state.values()]
        return [one.detach().flatten().tolist() for one in (*parameters, *moments)]

    step(1, 2)
    before = state()
    # Only the node can find it. The client has issued the whole step when it reads the loss.
    with pytest.raises(IndexError, match="out of range"):
        step(1, 9)
    assert state() == before
    assert step(1, 2) > 0
    assert state() != before


def test_numbers_behind_an_error_that_the_program_has_not_seen_are_not_drawn(
    issuer: Issuer,
) -> None:
    own = torch.Generator(device="rgpu")
    drawing: list[Any] = [
        lambda: torch.rand(3, device="rgpu"),
        lambda: torch.rand(3, device="rgpu", generator=own),
        lambda: torch.randperm(9, device="rgpu"),
        lambda: torch.nn.functional.dropout(sent(64) + 1),
        lambda: torch.bernoulli(sent(2, 2) / 4, generator=own),
        lambda: torch.multinomial(sent(8), 2),
        lambda: sent(3).normal_(generator=own),
    ]

    def state() -> list[Any]:
        return [torch.rgpu.get_rng_state(), own.get_state()]

    def issue() -> list[Any]:
        return [draw() for draw in drawing]

    torch.manual_seed(5)
    own.manual_seed(6)
    before = state()
    expected = [one.tolist() for one in issue()]
    for _ in range(2):
        torch.manual_seed(5)
        own.manual_seed(6)
        wrong = sent(3).index_select(0, torch.tensor([100], device="rgpu"))
        drawn = issue()
        torch.manual_seed(7)
        own.manual_seed(8)
        with pytest.raises(IndexError, match="out of range"):
            wrong.sum().item()
        assert all(map(torch.equal, before, state()))
        for one in drawn[:-1]:
            with pytest.raises(IndexError, match="out of range"):
                one.tolist()
        assert [one.tolist() for one in issue()] == expected


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch, issuer: Issuer) -> None:
    monkeypatch.setattr(package, "_checked", weakref.WeakSet())
    monkeypatch.setattr(issuer, "ask", lambda question: "2.12.1+cu130")
    with pytest.raises(
        RuntimeError, match=r"the node has PyTorch 2\.12\.1.*install the node's release"
    ):
        sent(3).erfinv()
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(
        MissingPartError, match=r"does not know PyTorch 2\.99\.0: install torch>=2\.13,<2\.14"
    ):
        package.checked_package()


def test_without_a_session_a_sentence_names_the_remedy(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGPU_SERVER", "unix:/nowhere/rgpu.sock")
    use(None)
    try:
        with pytest.raises(NoSessionError, match=r"PyTorch has no session .* start 'rgpu serve"):
            torch.ones(2, device="rgpu")
    finally:
        use(issuer)


def test_a_program_that_asks_for_a_device_learns_once_why_there_is_none(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGPU_SERVER", "unix:/nowhere/rgpu.sock")
    monkeypatch.setattr(session, "_warned", "")
    use(None)
    try:
        with pytest.warns(UserWarning, match=r"no session .* start 'rgpu serve") as warned:
            assert [as_cuda.is_available() for _ in range(2)] == [False, False]
        assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
        assert not torch.rgpu.is_available()
    finally:
        use(issuer)
    assert torch.rgpu.is_available()


def test_a_lost_session_says_so() -> None:
    with torch_session() as issuer:
        a = sent(3)
        issuer._line.shutdown()
        with pytest.raises(SessionLostError, match="lost"):
            a.cpu()


def test_counting_is_exact(issuer: Issuer) -> None:
    a = sent(3)
    (a + a).cpu()
    with counted(issuer) as seen:
        (a + a).cpu()
    assert seen == Counted(waits=1, templates=0)
