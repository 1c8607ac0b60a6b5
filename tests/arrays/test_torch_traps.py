"""What a device of PyTorch written in Python gets wrong when nobody looks."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch", "msgpack")

from helpers.torch_session import Counted, counted, issuer, sent  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402

__all__ = ["issuer"]
nn = torch.nn


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


# Copies


def test_a_deep_copy_is_made_on_the_node(issuer: Issuer) -> None:
    a = sent(3, 4)
    with counted(issuer) as seen:
        b = copy.deepcopy(a)
    assert seen.waits == 0
    a += 1
    assert b.device.type == "rgpu"
    assert b.tolist() == sent(3, 4).tolist()


def test_deep_copies_share_what_their_originals_share(issuer: Issuer) -> None:
    a = sent(4, 4)
    pair = copy.deepcopy([a, a.t()[1:], a])
    assert pair[0] is pair[2]
    pair[0].zero_()
    assert pair[1].sum().item() == 0
    assert a.sum().item() == 120


def test_a_deep_copied_module_trains_alone(issuer: Issuer) -> None:
    first = nn.Linear(3, 2).to("rgpu")
    first(torch.ones(1, 3, device="rgpu")).sum().backward()
    second = copy.deepcopy(first)
    assert second.weight.requires_grad
    with torch.no_grad():
        first.weight.zero_()
    assert second.weight.abs().sum().item() > 0
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(first.weight * 2)


# Saving


def test_tensors_are_saved_and_loaded(issuer: Issuer) -> None:
    a = sent(3, 4)
    loaded = torch.load(saved({"a": a, "t": a.t()}))
    assert loaded["a"].device == a.device
    assert loaded["t"].tolist() == a.t().tolist()
    loaded["a"].zero_()
    assert loaded["t"].sum().item() == 0


def test_a_file_can_be_loaded_where_there_is_no_node(issuer: Issuer) -> None:
    loaded = torch.load(saved(sent(2, 2)), map_location="cpu")
    assert loaded.device.type == "cpu"
    assert loaded.tolist() == [[0, 1], [2, 3]]
    assert torch.load(saved(torch.ones(2)), map_location="rgpu").device.type == "rgpu"


def test_optimizer_state_is_saved_and_goes_on_alike(issuer: Issuer) -> None:
    def train(model: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss = model(sent(2, 3)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    model = nn.Linear(3, 2).to("rgpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again = nn.Linear(3, 2).to("rgpu")
    other = torch.optim.AdamW(again.parameters(), lr=0.1)
    state = torch.load(file)
    again.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    assert [train(again, other) for _ in range(3)] == [train(model, optimizer) for _ in range(3)]


def test_a_module_is_pickled(issuer: Issuer) -> None:
    model = nn.Linear(3, 2).to("rgpu")
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.weight, model.weight)


# Modules


def test_an_optimizer_made_before_the_move_still_trains(issuer: Issuer) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to("rgpu")
    before = model.weight.tolist()
    model(sent(2, 3)).sum().backward()
    optimizer.step()
    assert model.weight.tolist() != before


def test_tied_weights_stay_tied(issuer: Issuer) -> None:
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    model[1].weight = model[0].weight
    model.to("rgpu")
    assert model[1].weight is model[0].weight
    with torch.no_grad():
        model[0].weight.zero_()
    assert model[1].weight.sum().item() == 0
    assert len(list(model.cpu().parameters())) == 1


# Sizes that change in place


def test_sizes_change_in_place(issuer: Issuer) -> None:
    a = sent(2, 3)
    assert a.t_().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert a.unsqueeze_(0).shape == (1, 3, 2)
    assert a.squeeze_().transpose_(0, 1).tolist() == [[0, 1, 2], [3, 4, 5]]
    a.add_(1)
    assert a.sum().item() == 21
    assert sent(2, 3).swapaxes_(0, 1).shape == (3, 2)


def test_storages_grow_and_shrink(issuer: Issuer) -> None:
    a = sent(2, 3)
    assert a.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    a.resize_(3, 3)
    assert a.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    a.fill_(2)
    assert a.sum().item() == 18
    b = torch.empty(0, device="rgpu")
    b.set_(a)
    b.zero_()
    assert a.sum().item() == 0


def test_results_resize_what_they_are_written_to(issuer: Issuer) -> None:
    out = torch.empty(0, device="rgpu")
    torch.add(sent(2, 3), 1, out=out)
    assert out.tolist() == [[1, 2, 3], [4, 5, 6]]
    where = torch.empty(0, dtype=torch.int64, device="rgpu")
    torch.nonzero(sent(3), out=where)
    assert where.tolist() == [[1], [2]]


def test_changes_in_place_are_checked_by_autograd(issuer: Issuer) -> None:
    a = sent(3).requires_grad_()
    b = a * 2
    c = b.square().sum()
    b += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.backward()


# Lazy bits, overlaps, views


def test_lazy_conjugation_and_negation_are_seen(issuer: Issuer) -> None:
    here = torch.tensor([1 + 2j, 3 - 1j])
    a = here.to("rgpu")
    for change in (
        lambda x: x.conj(),
        lambda x: x.conj().imag,
        lambda x: (x.conj() * 2).real,
        lambda x: torch.fft.ifft(x),
        lambda x: torch.view_as_real(x.conj().resolve_conj()),
        lambda x: x.conj().clone().mul_(x),
    ):
        assert torch.equal(change(a).cpu(), change(here))


def test_views_cost_no_message_until_they_are_used(issuer: Issuer) -> None:
    a = sent(4, 6)
    issuer.sync()
    before = issuer.waiting
    b = a.t()[1:4].unsqueeze(0).expand(2, 3, 4)
    assert issuer.waiting == before
    assert b.cpu().tolist() == a.cpu().t()[1:4].expand(2, 3, 4).tolist()
    a.view(torch.int32).zero_()
    assert a.sum().item() == 0


def test_numbers_that_change_make_no_new_templates(issuer: Issuer) -> None:
    a = sent(3)
    (a + 100 + 0.5).pow(3)
    with counted(issuer) as seen:
        for at in range(4):
            b = (a + at + at / 8).pow(at)
    assert seen == Counted(waits=0, templates=0)
    assert b.tolist() == ((torch.arange(3.0) + 3 + 3 / 8).pow(3)).tolist()
    assert (sent(3).to(torch.int32) * 3).dtype == torch.int32


def test_views_of_many_rows_do_not_pile_up(issuer: Issuer) -> None:
    table = sent(5000, 2).to(torch.int64)
    total = sum((row + 0).sum() for row in table)
    assert total.item() == sum(range(10000))
    record = table.untyped_storage()._rgpu
    assert len(record.ids) <= 129
    assert len(record.retired) < 3000


def test_what_is_uploaded_is_one_message(issuer: Issuer) -> None:
    issuer.sync()
    number = issuer.waiting[1]
    a = torch.ones(5, 5).t().to("rgpu")
    assert issuer.waiting[1] == number + 1
    assert a.stride() == (1, 5)


# Random numbers


def test_seeds_and_states_give_the_numbers_of_the_cpu(issuer: Issuer) -> None:
    torch.manual_seed(3)
    here = torch.rand(4)
    torch.manual_seed(3)
    state = torch.rgpu.get_rng_state()
    assert torch.equal(torch.rand(4, device="rgpu").cpu(), here)
    torch.rgpu.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="rgpu").cpu(), here)
    with torch.random.fork_rng(devices=[0], device_type="rgpu"):
        torch.rand(3, device="rgpu")
    assert torch.rand(1, device="rgpu").item() != here[0]


def test_generators_are_independent(issuer: Issuer) -> None:
    first, second = torch.Generator("rgpu").manual_seed(1), torch.Generator("rgpu").manual_seed(2)
    want = torch.randn(3, generator=torch.Generator().manual_seed(1))
    torch.randn(2, device="rgpu", generator=second)
    assert torch.equal(torch.randn(3, device="rgpu", generator=first).cpu(), want)
    state = second.get_state()
    a = torch.randperm(9, device="rgpu", generator=second).tolist()
    second.set_state(state)
    assert torch.randperm(9, device="rgpu", generator=second).tolist() == a
    assert first.device == torch.device("rgpu:0")
    assert first.initial_seed() == 1
    assert isinstance(first, torch.Generator)
    assert isinstance(torch.Generator(), torch.Generator)
    with pytest.raises(
        RuntimeError, match="Expected a 'rgpu' device type for generator but found 'cpu'"
    ):
        torch.randn(2, device="rgpu", generator=torch.Generator())


# What the CPU keeps, and what has no pointer


def test_packed_sequences(issuer: Issuer) -> None:
    def run(device: str) -> list[Any]:
        torch.manual_seed(0)
        model, x = nn.LSTM(4, 6, batch_first=True, bidirectional=True), torch.randn(3, 5, 4)
        model, x = model.to(device), x.to(device).requires_grad_()
        pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
        out, _ = model(pack(x, torch.tensor([2, 5, 3]), batch_first=True, enforce_sorted=False))
        padded, lengths = pad(out, batch_first=True)
        padded.sum().backward()
        return [padded.detach().cpu(), lengths, x.grad.cpu()]

    for here, there in zip(run("cpu"), run("rgpu"), strict=True):
        assert torch.allclose(here, there, atol=1e-6)


def test_there_is_no_pointer(issuer: Issuer) -> None:
    with pytest.raises(BufferError, match=r"use tensor\.cpu"):
        torch.utils.dlpack.to_dlpack(sent(2))
    with pytest.raises(BufferError, match=r"use tensor\.cpu"):
        torch.from_dlpack(sent(2))


def test_quantized_dtypes_are_refused_at_the_call(issuer: Issuer) -> None:
    for call in (
        lambda: torch.quantize_per_tensor(sent(3), 0.1, 0, torch.quint8),
        lambda: torch.quantize_per_tensor_dynamic(sent(3), torch.qint8, False),
        lambda: torch.quantize_per_channel(
            sent(2, 3), torch.ones(2, device="rgpu"), sent(2).long(), 0, torch.qint32
        ),
    ):
        with pytest.raises(NotImplementedError, match="quantized dtype torch"):
            call()


@pytest.mark.parametrize("grad", [True, False])
def test_encoders_evaluate_alike(issuer: Issuer, grad: bool) -> None:
    torch.manual_seed(1)
    layer, x = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), torch.randn(2, 5, 16)
    with torch.set_grad_enabled(grad):
        here = layer(x).detach()
        there = layer.to("rgpu")(x.to("rgpu"))
    assert torch.allclose(there.cpu(), here, atol=1e-6)


# Autocast, compile, func, pinned memory


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_casts_as_it_does_for_cuda(issuer: Issuer, dtype: Any) -> None:
    a = sent(3, 3)
    with torch.autocast("rgpu", dtype=dtype):
        assert (a @ a).dtype == dtype
        assert nn.functional.linear(a, a).dtype == dtype
        assert (a @ a).softmax(0).dtype == torch.float32
        assert (a @ a).exp().dtype == torch.float32
        assert (a @ a).sum().dtype == torch.float32
        assert torch.cat([a, a @ a]).dtype == torch.float32
        assert (a + 1).dtype == torch.float32
        assert (a.double() @ a.double()).dtype == torch.float64
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            nn.functional.binary_cross_entropy(
                torch.rand(2, device="rgpu"), torch.ones(2, device="rgpu")
            )
    assert (a @ a).dtype == torch.float32


def test_autocast_trains_with_a_scaler(issuer: Issuer) -> None:
    model = nn.Linear(3, 2).to("rgpu")
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("rgpu")
    with torch.autocast("rgpu", dtype=torch.float16):
        loss = model(sent(2, 3)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model.weight.grad.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_functions_of_functions(issuer: Issuer) -> None:
    def f(x: Any) -> Any:
        return (x.sin() * x).sum()

    here, there = torch.arange(4.0), sent(4)
    for change in (
        torch.func.grad(f),
        torch.func.vmap(torch.sin),
        torch.func.jacrev(torch.cos),
        torch.func.hessian(f),
    ):
        assert torch.allclose(change(there).cpu(), change(here))


def test_a_loader_pins_nothing(issuer: Issuer) -> None:
    loader = torch.utils.data.DataLoader(torch.arange(6.0), batch_size=3, pin_memory=True)
    assert [one.to("rgpu", non_blocking=True).sum().item() for one in loader] == [3, 12]
    assert not torch.ones(2).pin_memory().is_pinned()


def test_no_call_asks_for_pinned_memory(issuer: Issuer) -> None:
    x, numbers = sent(2, 3), [[0, 1, 2], [3, 4, 5]]
    copies = [
        x.to("cpu", non_blocking=True),
        x.to("cpu", torch.float64, True),
        x.to(torch.ones(1), True),
        x.type("torch.DoubleTensor", True),
        torch.empty(2, 3).copy_(x, non_blocking=True),
    ]
    assert [(one.device.type, one.tolist()) for one in copies] == [("cpu", numbers)] * 5
    module = nn.Linear(2, 2).to("rgpu", non_blocking=True).to("cpu", non_blocking=True)
    assert module.weight.device.type == "cpu"
    assert len(torch.UntypedStorage(5).pin_memory("rgpu")) == 5


def test_a_tensor_that_should_be_pinned_is_made(issuer: Issuer) -> None:
    one = torch.ones(2)
    made = [
        torch.empty(2, pin_memory=True), torch.zeros(2, pin_memory=True),
        torch.full((2,), 1.0, pin_memory=True), torch.tensor([1.0, 2.0], pin_memory=True),
        torch.rand(2, pin_memory=True), torch.arange(2, pin_memory=True),
        torch.empty_strided((2,), (1,), pin_memory=True), torch.ones_like(one, pin_memory=True),
        torch.empty_like(sent(2), device="cpu", pin_memory=True),
        torch.hann_window(2, pin_memory=True), one.new_empty(2, pin_memory=True),
        one.new_full((2,), 3.0, pin_memory=True), one.new_tensor([1.0, 2.0], pin_memory=True),
    ]  # fmt: skip
    assert {(one.device.type, one.shape) for one in made} == {("cpu", (2,))}
    assert torch.zeros(2, device="rgpu", pin_memory=True).tolist() == [0, 0]


def made() -> Any:
    return torch.zeros(2) + torch.ones_like(torch.empty(2)) + torch.tensor(1.0)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_functions_that_make_tensors_are_known_to_the_rest_of_pytorch(issuer: Issuer) -> None:
    with torch.device("rgpu"):
        assert {torch.empty(1).device.type, torch.tensor([1]).device.type} == {"rgpu"}
    assert torch.jit.script(made)().tolist() == [2, 2]
    assert pickle.loads(pickle.dumps(torch.zeros)) is torch.zeros


@pytest.mark.filterwarnings("ignore")
def test_compile_falls_back_to_eager(issuer: Issuer) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)).to("rgpu")
    compiled = torch.compile(model)
    compiled(sent(2, 3)).sum().backward()
    assert model[0].weight.grad is not None
    assert torch.equal(compiled(sent(2, 3)), model(sent(2, 3)))
