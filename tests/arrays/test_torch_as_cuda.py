"""A program that says `cuda` runs on a node unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import import_needed

import_needed("torch", "msgpack")

PROGRAM = Path(__file__).parent / "programs" / "train_cuda.py"
SECOND = """
import torch
for use in (torch.cuda.device, torch.ones(1).cuda, torch.nn.Linear(1, 1).cuda):
    try:
        use(1)
    except RuntimeError as error:
        print(error)
"""
THREADS = """
import concurrent.futures, threading
import torch
model = torch.nn.Linear(3, 2).cuda()
def work(number):
    x = torch.full((1, 3), float(number), device="cuda")
    assert model(x.to("cuda")).is_cuda
    return x.sum().item()
class Own(threading.Thread):
    def run(self):
        self.found = work(4)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print(list(pool.map(work, range(3))))
own = Own()
own.start()
own.join()
print(own.found)
"""
NAMES = """
import io
import torch

class Doubled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        return gradient * 2

def asked(x):
    return 1 if x.is_cuda else 0

model, x = torch.nn.Linear(3, 2).cuda(), torch.ones(1, 3, device="cuda", requires_grad=True)
device, script = x.device, torch.jit.script(asked)
print(device.type, model.weight.device.type, torch.empty(1).device.type, x.type())
print(script(x), script(x.cpu()), script.code.count("rgpu"))
for dtype in (torch.float16, torch.bfloat16):
    with torch.autocast(device_type=device.type, enabled=device.type == "cuda", dtype=dtype):
        print(model(x).dtype, torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype())
        print(Doubled.apply(x).dtype, x.grad)
print(torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda"), model(x).dtype)
storage = torch.cuda.FloatStorage(3)
print(len(storage), storage.is_cuda, x.storage().is_cuda, isinstance(x.storage(), torch.cuda.FloatStorage))
print(torch.UntypedStorage(8).cuda().device, x.cpu().is_cuda, x.cpu().type(x.type()).is_cuda)
file = io.BytesIO()
torch.save(x.detach(), file)
for where in (None, lambda storage, place: print(place) or storage):
    file.seek(0)
    print(torch.load(file, map_location=where).device)
for call in (lambda: torch.cuda.FloatTensor(3), lambda: torch.cuda.current_blas_handle()):
    try:
        print(call())
    except (RuntimeError, TypeError, AttributeError, AssertionError):
        print("refused")
torch.cuda.init()
torch.cuda._lazy_init()
"""
SCRIPTS = """
import torch

class Own:
    def __init__(self) -> None:
        self.type = 3

def asked(x: torch.Tensor, where: torch.device, where_too: "torch.device"):
    device, own = x.device, Own()
    here = (x.device.type, device.type, where.type, (x + 1).device.type, where_too.type)
    same = x.device.type == "cuda", device.type != "cuda", x.device.type in ["cuda", "mps"]
    return here, same, getattr(x, "is_cuda"), torch.is_autocast_enabled(), own.type, x.type(torch.int)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.type = 5
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor):
        if self.weight.device.type == "cuda" and self.weight.is_cuda:
            return x * self.type
        return x

def automatic(x: torch.Tensor):
    with torch.autocast("cpu"):
        return x @ x.t()

def kind(x: torch.Tensor):
    return torch.get_autocast_dtype("cpu")

x = torch.ones(1, 3, device="cuda")
script = torch.jit.script(asked)
with torch.autocast("cuda"):
    print(*script(x, x.device, x.device)[:-1])
print(*script(x.cpu(), torch.device("cpu"), torch.device("cpu"))[:-1])
for model in (Model(), Model().cuda()):
    print(torch.jit.script(model)(x).sum().item())
print(torch.jit.script(automatic)(torch.ones(1, 3)).dtype, torch.jit.script(kind)(x))
"""
SWEPT = """
import torch

x = torch.ones(2, 3, device="cuda")
for call in (
    lambda: torch.cuda.CUDAGraph(),
    lambda: torch.cuda.make_graphed_callables(torch.nn.Linear(3, 2).cuda(), (x,)),
    lambda: torch.cuda.memory_snapshot(),
    lambda: torch.cuda.memory._snapshot(),
    lambda: torch.nested.nested_tensor([torch.ones(2)], device="cuda"),
):
    try:
        print("made", call())
    except NotImplementedError as error:
        print(error)
stats, nested = torch.cuda.memory_stats(), torch.cuda.memory_stats_as_nested_dict()
print(nested["allocated_bytes"]["all"]["peak"] == stats["allocated_bytes.all.peak"] > 0)
torch.cuda.set_per_process_memory_fraction(0.5)
print(torch.cuda.get_per_process_memory_fraction(), torch.cuda.nccl.is_available([x]))
torch.cuda.reset_max_memory_cached()
model = torch.nn.DataParallel(torch.nn.Linear(3, 2)).cuda()
out = model(torch.ones(4, 3))
out.sum().backward()
print(out.device, model.module.weight.grad.tolist())
two = [torch.ones(2), torch.ones(3)]
jagged = torch.nested.nested_tensor(two, layout=torch.jagged, device="cuda")
print(jagged.is_cuda, [one.tolist() for one in jagged.unbind()])
"""
MOVES = """
import io
import torch

def moved(x: torch.Tensor, name: str):
    i, where = 0, "cuda" if x.dim() else "cpu"
    named = x.to("cuda"), x.cuda(), x.to(name), x.to(where), x.to(device="cuda:0")
    made = (
        torch.zeros(1, device="cuda"), torch.ones(1, device=torch.device("cuda", 0)),
        torch.ones(1, device=f"cuda:{i}"), torch.ones(1, device="cuda" if x.dim() else "cpu"),
    )
    return named, made, x.to("cpu"), x.device.type == "cuda"

def same(x: torch.Tensor, name: str):
    return x.to("cuda").add_(1), x.to(name).add_(1), x.cuda().add_(1)

def second(x: torch.Tensor):
    return x.to("cuda:1")

def other(x: torch.Tensor, names: list[str]):
    return torch.zeros(1, device=names[0] + ":0")

def chosen(x: torch.Tensor, device: str) -> str:
    return device

def asks(x: torch.Tensor):
    return chosen(x, device="cuda"), chosen(x, "cuda")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(self.cuda(x.cuda()))) + torch.zeros(2, device="cuda")

    def cuda(self, x):
        return x + 1

x = torch.ones(2)
named, made, here, on_cuda = torch.jit.script(moved)(x, "cuda")
print({str(one.device) for one in (*named, *made)}, here.device, on_cuda)
# A program's own function gets what the program says.
print(torch.jit.script(asks)(x))
y = x.to("cuda")
torch.jit.script(same)(y, "cuda")
print(y.tolist(), x.tolist())
for call in (lambda: torch.jit.script(second)(x), lambda: torch.jit.script(other)(x, ["cuda"])):
    try:
        print(call())
    except RuntimeError as error:
        print("invalid device ordinal: rgpu:1" in str(error), "a script uses the device cuda" in str(error))
model, file = Model(), io.BytesIO()
torch.jit.save(torch.jit.script(model), file)
file.seek(0)
again = torch.jit.load(file, map_location="cuda")
wanted = model.last(model.first(x + 1))
print(torch.allclose(again(x).cpu(), wanted), again.first.weight.requires_grad, again.first.weight.device)
with torch.no_grad():
    again.first.weight.zero_()
print(again.last.weight.sum().item())
print(torch.jit.trace(lambda x: x.cuda() + torch.zeros(2, device="cuda"), x)(x).device)
"""
SEEDS = """
import torch

def seeds():
    return torch.cuda.initial_seed(), torch.initial_seed()

torch.manual_seed(5)
torch.cuda.manual_seed(7)
state = torch.cuda.get_rng_state()
print(seeds())
torch.cuda.manual_seed(-1)
print(seeds())
torch.cuda.set_rng_state(state)
with torch.random.fork_rng():
    torch.manual_seed(9)
    print(seeds())
print(seeds())
generator, other = torch.Generator("cuda"), torch.Generator("cuda").manual_seed(-2)
print(generator.initial_seed(), other.initial_seed() == torch.Generator().manual_seed(-2).initial_seed())
print(generator.set_state(other.manual_seed(4).get_state()).initial_seed(), generator.clone_state().initial_seed())
for one in (torch.Generator(), generator, torch.cuda):
    try:
        one.manual_seed(1 << 64)
    except ValueError as error:
        print(error, seeds())
"""
ACCELERATOR = """
import torch
x, chosen = torch.ones(1 << 10, device="cuda"), torch.accelerator
print(chosen.current_accelerator().type, chosen.memory_allocated("cuda") == chosen.memory_allocated())
for call in (chosen.empty_host_cache, chosen.empty_cache, chosen.reset_peak_memory_stats,
             chosen.reset_accumulated_memory_stats):
    assert call() is None
stats, (free, limit) = chosen.memory_stats(), chosen.get_memory_info("cuda:0")
print(stats["allocated_bytes.all.current"], chosen.max_memory_allocated(), limit - free)
chosen.synchronize("cuda")
stream = torch.Stream(device="cuda")
with stream:
    stream.record_event().synchronize()
start, end = (torch.Event(device="cuda", enable_timing=True) for _ in range(2))
start.record()
end.record(chosen.current_stream())
print(start.elapsed_time(end) >= 0, end.query(), isinstance(stream, torch.Stream), stream.device.type)
x[torch.tensor([1 << 20], device="cuda")]
try:
    torch.Event(device="cuda").synchronize()
except IndexError:
    print("told")
print(x.to("cpu", non_blocking=True).device, torch.zeros(2, pin_memory=True).tolist())
"""
START = """
import runpy, sys
sys.path.insert(0, sys.argv[2])
from helpers.torch_session import torch_session
with torch_session():
    import torch
    torch.set_num_threads(1)
    from rgpu_client.torch import as_cuda
    as_cuda.install()
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


def output(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", *command],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=PROGRAM.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_program_that_says_cuda_gives_the_losses_of_the_cpu() -> None:
    here = output(str(PROGRAM))
    there = output("-c", START, str(PROGRAM), str(Path(__file__).parent.parent))
    assert len(there.splitlines()) == 4
    assert there == here


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a program of both parts prints."""
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(THREADS + SECOND)
    return output("-c", START, str(program), str(Path(__file__).parent.parent)).splitlines()


@pytest.mark.slow
def test_threads_that_a_program_starts_say_cuda_too(said: list[str]) -> None:
    assert said[:2] == ["[0.0, 3.0, 6.0]", "12.0"]


@pytest.mark.slow
def test_what_a_program_asks_about_cuda_is_true_of_the_node(tmp_path: Path) -> None:
    said = lines_of(NAMES, tmp_path)
    assert said == [
        "cuda cuda cpu torch.cuda.FloatTensor",
        "1 0 1",
        "torch.float16 True torch.float16",
        "torch.float16 None",
        "torch.bfloat16 True torch.bfloat16",
        "torch.float16 None",
        "False False torch.float32",
        "3 True True True",
        "rgpu:0 False True",
        "rgpu:0",
        "cuda:0",
        "cpu",
        "refused",
        "refused",
    ]


def lines_of(text: str, folder: Path) -> list[str]:
    """Runs a program from a file, because TorchScript reads its text, and returns its lines."""
    program = folder / "program.py"
    program.write_text(text)
    return output("-c", START, str(program), str(Path(__file__).parent.parent)).splitlines()


@pytest.mark.slow
def test_scripts_see_the_device_as_cuda(tmp_path: Path) -> None:
    said = lines_of(SCRIPTS, tmp_path)
    assert said == [
        f"{('cuda',) * 5} (True, False, True) True False 3",
        f"{('cpu',) * 5} (False, True, False) False False 3",
        "3.0",
        "15.0",
        "torch.bfloat16 15",
    ]


@pytest.mark.slow
def test_scripts_move_and_make_tensors_where_they_say_cuda(tmp_path: Path) -> None:
    said = lines_of(MOVES, tmp_path)
    assert said == [
        "{'rgpu:0'} cpu False",
        "('cuda', 'cuda')",
        "[4.0, 4.0] [1.0, 1.0]",
        "True False",
        "False True",
        "True True rgpu:0",
        "0.0",
        "rgpu:0",
    ]


@pytest.mark.slow
def test_seeds_are_told_as_those_of_a_gpu(tmp_path: Path) -> None:
    said = lines_of(SEEDS, tmp_path)
    assert said == [
        "(7, 5)",
        f"({(1 << 64) - 1}, 5)",
        "(9, 9)",
        "(7, 5)",
        "67280421310721 True",
        "4 4",
        *["Overflow when unpacking long long (7, 5)"] * 3,
    ]


@pytest.mark.slow
def test_what_a_program_asks_the_accelerator_is_answered_by_the_node(tmp_path: Path) -> None:
    said = lines_of(ACCELERATOR, tmp_path)
    assert said == [
        "cuda True",
        "4096 4096 4096",
        "True True True cuda",
        "told",
        "cpu [0.0, 0.0]",
    ]


@pytest.mark.slow
def test_a_second_device_is_refused(said: list[str]) -> None:
    assert said[2:] == ["invalid device ordinal: rgpu:1; there is one device, rgpu:0"] * 3


@pytest.mark.slow
def test_what_uses_cuda_itself_is_refused_or_answered(tmp_path: Path) -> None:
    """Before: a CUDA error of PyTorch, and `memory_snapshot` ended the process."""
    said = lines_of(SWEPT, tmp_path)
    graphs = "CUDA graphs are not offered on the device rgpu"
    assert [line.startswith(graphs) for line in said[:2]] == [True, True]
    assert [line.endswith("use torch.cuda.memory_stats()") for line in said[2:4]] == [True, True]
    assert "nested tensors are not offered on the device rgpu" in said[4]
    assert said[5:] == [
        "True",
        "1.0 False",
        "rgpu:0 [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]",
        "True [[1.0, 1.0], [1.0, 1.0, 1.0]]",
    ]
