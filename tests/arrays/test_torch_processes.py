"""A tensor of the device reaches another process by its bytes, or not at all: never as garbage."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from helpers import clients, pki
from helpers.agent import GRPC
from helpers.needs import import_needed
from helpers.server import PATIENT, Server

torch = import_needed("torch", "msgpack")

from helpers.torch_session import issuer, sent  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402
from rgpu_client.torch import processes  # noqa: E402

__all__ = ["issuer"]
PROGRAM = Path(__file__).parent / "programs" / "torch_processes.py"
_WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*GRPC, tls=pki.config(more=PATIENT)) as one:
        yield one


def crossed(value: Any) -> Any:
    """What another process would get from a queue, in this one."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))


def test_a_tensor_crosses_by_its_elements(issuer: Issuer) -> None:
    a = sent(2, 3)
    b = crossed(a)
    a.zero_()
    assert b.device == a.device
    assert b.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert b.requires_grad is False
    assert crossed(a.bool()).dtype == torch.bool


def test_views_of_one_message_share_their_copy(issuer: Issuer) -> None:
    a = sent(4, 3)
    whole, part, other = crossed([a, a.t()[1:], a.view(torch.int32)])
    assert part.tolist() == a.t()[1:].tolist()
    assert (part.stride(), part.storage_offset()) == ((1, 3), 1)
    whole.zero_()
    assert part.sum().item() == 0
    assert other.sum().item() == 0
    assert a.sum().item() == 66


def test_what_is_lazy_and_what_is_empty_crosses(issuer: Issuer) -> None:
    a = torch.tensor([1 + 2j, 3 - 1j]).to("rgpu")
    assert crossed(a.conj()).tolist() == [1 - 2j, 3 + 1j]
    assert crossed(a.conj().imag).tolist() == [-2, 1]
    assert crossed(torch.empty(0, 3, device="rgpu")).shape == (0, 3)
    assert crossed(a.untyped_storage()).tolist() == a.untyped_storage().tolist()


def test_a_module_crosses_as_a_copy_and_says_so(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_warned", set())
    model = torch.nn.Sequential(torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6, bias=False))
    model[1].weight = model[0].weight
    model.to("rgpu")
    with pytest.warns(UserWarning, match="reach another process as copies"):
        there = crossed(model)
    assert there[1].weight is there[0].weight
    assert torch.equal(there[0].weight, model[0].weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crossed(model)


def test_shared_memory_is_refused_where_it_is_sent(issuer: Issuer) -> None:
    a = sent(3)
    assert a.share_memory_() is a
    assert a.is_shared()
    with pytest.raises(RuntimeError, match="processes do not share memory of a GPU node"):
        crossed(a)
    assert crossed(a.clone()).tolist() == [0, 1, 2]


def test_a_result_with_a_graph_is_refused_as_on_the_cpu(issuer: Issuer) -> None:
    with pytest.raises(RuntimeError, match="call detach"):
        crossed(sent(3).requires_grad_() * 2)


def test_a_forked_child_that_sends_gets_a_sentence(issuer: Issuer) -> None:
    a, (ours, theirs) = sent(3), multiprocessing.Pipe()

    def send() -> None:
        try:
            theirs.send(a)
        except RuntimeError as error:
            theirs.send(str(error))

    child = multiprocessing.get_context("fork").Process(target=send)
    child.start()
    assert ours.poll(_WAIT_SECONDS)
    assert "start processes with the method 'spawn'" in ours.recv()
    child.join(_WAIT_SECONDS)
    assert child.exitcode == 0
    assert a.tolist() == [0, 1, 2]


def run(device: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), device], capture_output=True, text=True, timeout=300,
        env=environment,
    )  # fmt: skip


@pytest.mark.slow
def test_spawned_loaders_and_queues_give_what_they_give_on_the_cpu(server: Server) -> None:
    environment = clients.environment(server.unix)
    there = run("rgpu", **environment)
    assert there.returncode == 0, there.stderr
    here = run("cpu", **environment)
    assert here.stdout.count("True") == 3
    assert there.stdout == here.stdout
