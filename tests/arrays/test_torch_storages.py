"""Storages answer as those of a GPU: libraries compare them, and PyTorch saves and copies them."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.needs import import_needed, needs

torch = import_needed("torch", "msgpack")

from helpers.torch_session import issuer, sent  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402

__all__ = ["issuer"]
TESTS = Path(__file__).parent.parent
pytestmark = pytest.mark.filterwarnings("ignore:.*(TypedStorage|torch.jit).*")


def place(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


# Addresses and sizes


def test_each_storage_has_an_address_and_its_size(issuer: Issuer) -> None:
    tensors = [sent(2, 3), torch.empty(5, dtype=torch.int64, device="rgpu"), sent(4) + 1]
    assert [place(one)[1] for one in tensors] == [24, 40, 16]
    spans = sorted((start, start + size) for start, size in map(place, tensors))
    assert spans[0][0] > 0
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert [place(one) for one in tensors] == [place(one) for one in tensors]


def test_views_have_the_address_of_their_storage(issuer: Issuer) -> None:
    for device in ("cpu", "rgpu"):
        a = torch.arange(6.0).to(device).reshape(2, 3)
        b = a.t()[1:]
        assert place(b) == place(a)
        assert b.data_ptr() - a.data_ptr() == 4
        assert b.storage_offset() == 1
        assert b._is_view()
        assert (a[:, :0].data_ptr(), torch.empty(0, device=device).data_ptr()) == (0, 0)
        assert a.view(torch.int16).untyped_storage().data_ptr() == a.data_ptr()
        assert a.storage().data_ptr() == a.data_ptr()
        assert a.storage().size() == 6
    assert a.detach().data_ptr() == torch.nn.Parameter(a).data_ptr() == a.data_ptr()


def test_no_process_has_memory_at_these_addresses(issuer: Issuer) -> None:
    address = sent(3).data_ptr()
    maps = Path("/proc/self/maps").read_text()
    mapped = re.findall(r"^[0-9a-f]+-([0-9a-f]+) (?!.*\[vsyscall\])", maps, re.MULTILINE)
    assert max(int(end, 16) for end in mapped) < 1 << 55 <= address < 1 << 56


def test_an_address_lives_as_long_as_its_storage(issuer: Issuer) -> None:
    a = sent(1000)
    first, b = a.data_ptr(), a[1:]
    del a
    assert b.data_ptr() == first + 4
    assert sent(1000).data_ptr() != first
    del b
    assert sent(1000).data_ptr() == first


def test_a_storage_that_grows_has_room(issuer: Issuer) -> None:
    a, out = sent(3), torch.empty(0, device="rgpu")
    a.data_ptr()
    a.resize_(1000)
    other = sent(1000)
    assert place(a)[1] == 4000
    assert abs(place(a)[0] - place(other)[0]) >= 4000
    torch.add(sent(2, 3), 1, out=out)
    assert place(out)[1] == 24


def test_a_result_that_was_resized_is_saved_whole(issuer: Issuer) -> None:
    out, file = torch.empty(0, device="rgpu"), io.BytesIO()
    torch.add(sent(2, 3), 1, out=out)
    torch.save(out, file)
    file.seek(0)
    assert torch.load(file).tolist() == copy.deepcopy(out).tolist() == [[1, 2, 3], [4, 5, 6]]


# What PyTorch's methods do


def _written(storage: Any) -> list[int]:
    storage[1], storage[4:6] = 7, 8
    return list(storage)


def _resized(storage: Any) -> list[int]:
    storage.resize_(4)
    short = storage.tolist()
    storage.resize_(30)
    return [*short, *storage.tolist()[:4], storage.nbytes()]


def _typed(storage: Any) -> Any:
    return torch.TypedStorage(wrap_storage=storage, dtype=torch.int32)


def _loaded(storage: Any, zipped: bool) -> list[Any]:
    file, tensor = io.BytesIO(), torch.empty(0, dtype=torch.int32, device=storage.device)
    torch.save([tensor.set_(storage), tensor[1:]], file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    whole, part = torch.load(file)
    part.zero_()
    return [whole.tolist(), whole.device == tensor.device]


def _set(storage: Any) -> list[Any]:
    tensor = torch.empty(0, dtype=torch.int32, device=storage.device)
    part = torch.empty(0, dtype=torch.int16, device=storage.device)
    tensor.set_(storage)
    part.set_(storage, 1, (2, 2), (4, 1)).fill_(3)
    return [tensor.tolist(), part.tolist(), part.untyped_storage() is storage]


def _swapped(storage: Any) -> list[Any]:
    other = storage.clone().fill_(5)
    storage._swap_data_ptr_(other)
    return [storage.tolist(), other.tolist()]


CALLS: dict[str, Callable[[Any], Any]] = {
    "clone": lambda one: one.clone().fill_(1).tolist() + one.tolist(),
    "cpu": lambda one: one.cpu().tolist(),
    "to": lambda one: one.to(device="rgpu").cpu().to(device="rgpu").tolist(),
    "list": list,
    "length": lambda one: (len(one), one.size(), one.nbytes(), one.element_size()),
    "item": lambda one: (one[0], one[-1], one[4]),
    "text": lambda one: str(one).replace("rgpu:0", "cpu"),
    "setitem": _written,
    "fill": lambda one: one.fill_(9).tolist(),
    "copy": lambda one: one.copy_(torch.UntypedStorage(range(24))).tolist(),
    "resize": _resized,
    "new": lambda one: (len(one.new()), one.new().device == one.device),
    "float": lambda one: one.float().tolist(),
    "pinned": lambda one: one.is_pinned(),
    "pickle": lambda one: pickle.loads(pickle.dumps(_typed(one))).tolist(),
    "deepcopy": lambda one: copy.deepcopy(one).tolist(),
    "file": lambda one: _loaded(one, True),
    "file of old form": lambda one: _loaded(one, False),
    "set_": _set,
    "swap": _swapped,
    "typed": lambda one: _typed(one).tolist(),
    "shared": lambda one: one.share_memory_() is one and one.is_shared(),
}


@pytest.mark.parametrize("name", CALLS)
def test_methods_answer_as_on_the_cpu(issuer: Issuer, name: str) -> None:
    here = torch.arange(6, dtype=torch.int32)
    want = CALLS[name](here.clone().untyped_storage())
    assert CALLS[name](here.to("rgpu").untyped_storage()) == want


def test_storages_are_made_on_the_device(issuer: Issuer) -> None:
    assert torch.UntypedStorage(32, device="rgpu:0").fill_(2).tolist() == [2] * 32
    assert torch.UntypedStorage([1, 2], device="rgpu").tolist() == [1, 2]
    assert len(torch.UntypedStorage(device="rgpu")) == 0
    assert torch.TypedStorage([1.0, 2.0], device="rgpu").tolist() == [1.0, 2.0]
    assert torch.UntypedStorage._new_shared(8, device="rgpu").device == torch.device("rgpu:0")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.UntypedStorage(8, device="rgpu:1")
    typed = sent(3)._typed_storage()
    batch = sent(3).new(typed._new_shared(6, device="rgpu")).resize_(2, 3)
    assert torch.stack([sent(3), sent(3)], out=batch).tolist() == [[0, 1, 2]] * 2


def test_what_a_node_cannot_do_is_refused_with_a_sentence(issuer: Issuer) -> None:
    storage = sent(3).untyped_storage()
    with pytest.raises(NotImplementedError, match=r"use storage\.cpu"):
        storage.byteswap(torch.float32)
    with pytest.raises(NotImplementedError, match="a slice of a tensor"):
        storage[1:3]
    with pytest.raises(IndexError, match="index 12 out of range"):
        storage[12]
    with pytest.raises(RuntimeError, match="the devices must match"):
        sent(3).set_(torch.UntypedStorage(8))
    with pytest.raises(RuntimeError, match="size does not match"):
        storage.copy_(torch.UntypedStorage(8))
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        _ = sent(3).__cuda_array_interface__


def test_a_script_module_is_saved_with_its_weights(issuer: Issuer) -> None:
    file, model = io.BytesIO(), torch.nn.Linear(3, 2).to("rgpu")
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file, map_location="cpu").weight, model.weight.cpu())


def test_mixed_views_stay_views_of_one_copy(issuer: Issuer) -> None:
    a = sent(4)
    bits = a.view(torch.int32)
    first, second = copy.deepcopy([a, bits])
    first.zero_()
    assert second.sum().item() == 0
    assert a.sum().item() == 6


# Programs of libraries

SAVED = """
import sys, torch, accelerate, safetensors.torch
from pathlib import Path

folder = Path(sys.argv[1])


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mid, self.last = (torch.nn.Linear(4, 4) for _ in range(3))
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.mid(self.first(x)))


def values(model):
    return {name: one.cpu().tolist() for name, one in model.state_dict().items()}


def made():
    return Tied().to(DEVICE)


torch.manual_seed(0)
model = made()
safetensors.torch.save_model(model, str(folder / "m.safetensors"))
print(sorted(safetensors.torch.load_file(folder / "m.safetensors")))
again = made()
safetensors.torch.load_model(again, folder / "m.safetensors")
print(values(again) == values(model), again.last.weight is again.first.weight)
try:
    safetensors.torch.save_file(model.state_dict(), folder / "s.safetensors")
except RuntimeError as error:
    print("{'first.weight', 'last.weight'}" in str(error).replace("last.weight', 'first.weight", "first.weight', 'last.weight"))
x = model.first.weight.detach()
safetensors.torch.save_file({"a": x[:2].clone(), "b": x[2:].clone()}, folder / "p.safetensors")
both = safetensors.torch.load_file(folder / "p.safetensors")
print(torch.equal(torch.cat([both["a"], both["b"]]), x.cpu()))
helper = accelerate.Accelerator(cpu=DEVICE == "cpu")
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = helper.prepare(model, optimizer)
helper.save_state(str(folder / "state"), safe_serialization=True)
before = values(model)
with torch.no_grad():
    for one in model.parameters():
        one.zero_()
helper.load_state(str(folder / "state"))
print(values(model) == before, sum(map(len, before)) > 0)
"""
START = """
import sys
sys.path.insert(0, sys.argv[2])
from helpers.torch_session import torch_session
with torch_session():
    import torch
    torch.set_num_threads(1)
    import rgpu_client.torch
    if sys.argv[3] == "cuda":
        from rgpu_client.torch import as_cuda
        as_cuda.install()
    exec(compile(open(sys.argv[4]).read(), sys.argv[4], "exec"), {"DEVICE": sys.argv[3]})
"""


def run(folder: Path, device: str, source: str) -> str:
    """Runs a program on a device, in a process of its own, and returns what it prints."""
    program = folder / "program.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", START, str(folder), str(TESTS), device, str(program)],
        capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@needs("accelerate")
def test_libraries_save_all_weights(tmp_path: Path) -> None:
    folders = {device: tmp_path / device for device in ("cpu", "cuda")}
    for folder in folders.values():
        folder.mkdir()
    here, there = (run(folder, device, SAVED) for device, folder in folders.items())
    assert (
        here.splitlines()[0]
        == "['first.bias', 'first.weight', 'last.bias', 'mid.bias', 'mid.weight']"
    )
    assert here.count("True") == 6
    assert there == here


OPENED = """
import sys, torch, safetensors, safetensors.torch as files

path, x = sys.argv[1] + "/a.safetensors", torch.arange(4.0).to(DEVICE)
files.save_file({"a": x}, path)
for device in (DEVICE, DEVICE + ":0", 0, "rgpu", "rgpu:0", x.device, str(x.device)):
    with safetensors.safe_open(path, framework="pt", device=device) as file:
        found = [file.get_tensor("a"), file.get_slice("a")[:], files.load_file(path, device=device)["a"]]
        print({str(one.device) for one in found}, all(torch.equal(one, x) for one in found))
        print(isinstance(file, safetensors.safe_open))
for device in (1, "rgpu:1"):
    try:
        files.load_file(path, device=device)
    except RuntimeError as error:
        print(error)
print(files.load_file(path)["a"].device)
"""


@pytest.mark.slow
@needs("accelerate")
@pytest.mark.parametrize("device", ["rgpu", "cuda"])
def test_safetensors_opens_files_on_the_device(tmp_path: Path, device: str) -> None:
    assert run(tmp_path, device, OPENED).splitlines() == [
        *["{'rgpu:0'} True", "True"] * 7,
        *["invalid device ordinal: rgpu:1; there is one device, rgpu:0"] * 2,
        "cpu",
    ]


# A language model with tied weights: trained from a loader, saved, loaded in all ways, sampled.
LANGUAGE = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel

folder = sys.argv[1]
torch.manual_seed(0)
config = GPT2Config(
    n_layer=2, n_head=2, n_embd=16, vocab_size=30, n_positions=16,
    resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
)
model = GPT2LMHeadModel(config).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
words = torch.randint(30, (8, 12))
losses = []
for _ in range(3):
    for batch in torch.utils.data.DataLoader(words, batch_size=4):
        batch = batch.to(DEVICE)
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(f"{loss.item():.4f}")
print(losses)
model.eval().save_pretrained(folder)
prompt = words[:1, :4]
expected = model(prompt.to(DEVICE)).logits.cpu()
for where in ({}, {"device_map": DEVICE}):
    again = GPT2LMHeadModel.from_pretrained(folder, **where).eval()
    logits = again(prompt.to(again.device)).logits.cpu()
    print(torch.allclose(logits, expected, atol=1e-4), again.lm_head.weight is again.transformer.wte.weight)
    print(again.device.type == (DEVICE if where else "cpu"))
print(model.generate(prompt.to(DEVICE), max_new_tokens=5, do_sample=False, pad_token_id=0).tolist())
"""


@pytest.mark.slow
@needs("accelerate", "transformers")
def test_a_language_model_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    here, there = (run(tmp_path, device, LANGUAGE) for device in ("cpu", "cuda"))
    assert here.count("True") == 6
    assert there == here


# Calls that take an address of this process, or end it on the CPU too.
SWEEP = """
import io, warnings
import torch
warnings.simplefilter("ignore")
LEFT = {
    "_free_weak_ref", "_new_with_weak_ptr", "_expired", "_set_cdata", "_shared_decref", "__del__",
    "__class__", "__init_subclass__", "__subclasshook__", "__new__",
}
GIVEN = [
    lambda x: (), lambda x: (x,), lambda x: (0,), lambda x: (x.untyped_storage(),),
    lambda x: (torch.float64,), lambda x: ("cpu",), lambda x: (0, 1), lambda x: ((2, 3),),
    lambda x: (x.cpu().untyped_storage(),), lambda x: (io.BytesIO(), True, True, 4),
]
SUBJECTS = [
    (lambda x: x.untyped_storage(), GIVEN), (lambda x: x.storage(), GIVEN), (lambda x: x, GIVEN[:4]),
]
called = 0
for subject, all_given in SUBJECTS:
    for name in sorted(set(dir(subject(torch.ones(1)))) - LEFT):
        for given in all_given:
            x = torch.arange(6.0).to(torch.device(DEVICE))
            print(name, flush=True)
            try:
                call = getattr(subject(x), name)
                call(*given(x))
            except Exception:
                pass
            called += 1
for kind in ("UntypedStorage", "TypedStorage", "FloatStorage", "Tensor"):
    for owner in (torch, torch.cuda, getattr(torch, "rgpu", torch)):
        for given in GIVEN:
            for keywords in ({}, {"device": DEVICE}, {"device": torch.device(DEVICE)}):
                print(kind, flush=True)
                try:
                    repr(getattr(owner, kind)(*given(x), **keywords))
                except Exception:
                    pass
x = torch.arange(6.0).to(torch.device(DEVICE))
print(called > 1000, x.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", ["rgpu", "cuda"])
def test_no_method_ends_the_process(tmp_path: Path, device: str) -> None:
    said = run(tmp_path, device, SWEEP).splitlines()
    assert said[-1] == "True [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]"
