"""A client that means harm gets a sentence, or loses its session, and nothing else happens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from helpers.needs import import_needed

torch = import_needed("torch")

from helpers.array_session import A, Served, put, refused, run, session  # noqa: E402
from helpers.torch_node import Quota  # noqa: E402
from helpers.torch_session import torch_session  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402
from rgpu_common.arrays.messages import UNKNOWN_OUTPUTS, Op, Tag  # noqa: E402
from rgpu_common.wire.frame import Kind  # noqa: E402
from rgpu_server.arrays.library import NotOfferedError  # noqa: E402
from rgpu_server.arrays.torch_allowed import Allowed  # noqa: E402
from rgpu_server.arrays.torch_layout import Layouts  # noqa: E402
from rgpu_server.arrays.torch_library import TorchLibrary  # noqa: E402
from rgpu_server.arrays.torch_memory import Accounts  # noqa: E402

V = [Tag.SLOT_VALUE]
TOTAL = 1 << 24


@pytest.fixture
def quota() -> Quota:
    return Quota(TOTAL)


@pytest.fixture
def issuer(quota: Quota) -> Iterator[Issuer]:
    with session(TorchLibrary(quota, TOTAL)) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("aten::from_file", "it opens a file"),
        ("aten::set_.source_Storage", "changes what a storage is"),
        ("aten::_foobar", "PyTorch's own tests"),
        ("aten::quantize_per_tensor", "quantized"),
        ("aten::add", "no such operator"),
        ("aten::Bool.Tensor", "no such operator"),
        ("aten::add.Tensor.__call__", "no such operator"),
        ("prim::data", "no such operator"),
        ("os::system", "no such operator"),
        ("__class__", "no such operator"),
        ("rgpu::__init__", "there is no operation"),
        ("aten::" + "x" * 4000, "no such operator"),
    ],
)
def test_only_what_is_listed_is_executed(issuer: Issuer, name: str, why: str) -> None:
    refused(issuer, why, name, [put(issuer, torch.ones(2))], [A])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::sum", [A, [Tag.DTYPE, "float32"]]),
        ("aten::sum", ["text"]),
        ("aten::sum", [[Tag.LIST, A]]),
        ("aten::cat", [A]),
        ("aten::mm", [A, None]),
        ("aten::softmax.int", [A, 0]),
        ("aten::_softmax", [A, 0, 1]),
        ("aten::relu", [A, A]),
        ("aten::full", [[Tag.LIST, 2], [Tag.SLICE, 1, 2, 3]]),
        ("aten::gelu", [A, None]),
    ],
)
def test_arguments_have_the_types_of_the_schema(issuer: Issuer, name: str, arguments: Any) -> None:
    slots = [put(issuer, torch.ones(2, 2)) for _ in range(str(arguments).count("'a'"))]
    refused(
        issuer,
        r"cannot take what was given|takes \d+ arguments|not executed",
        name,
        slots,
        arguments,
    )


def test_keywords_and_constants_are_checked(issuer: Issuer) -> None:
    a = put(issuer, torch.ones(2))
    refused(issuer, "has no argument 'self2'", "aten::relu", [a], [A], self2=1)
    refused(
        issuer,
        "there is no device",
        "aten::ones",
        [],
        [[Tag.LIST, 2]],
        device=[Tag.LIBRARY, "device", "meta"],
    )
    refused(
        issuer,
        "there is no layout",
        "aten::ones",
        [],
        [[Tag.LIST, 2]],
        layout=[Tag.LIBRARY, "layout", "sparse"],
    )
    refused(
        issuer, "there is no dtype", "aten::ones", [], [[Tag.LIST, 2]], dtype=[Tag.DTYPE, "qint8"]
    )
    refused(
        issuer, "there is no dtype", "aten::ones", [], [[Tag.LIST, 2]], dtype=[Tag.DTYPE, "load"]
    )


@pytest.mark.parametrize(
    "text",
    ["float32", "float32:1", "float32:1:1:1", "float32:-1:1", "float32:1,2:1", "nothing:1:1", "float32:x:1",
     f"float32:{1 << 62},{1 << 62}:1,1", f"float32:{','.join(['1'] * 65)}:{','.join(['1'] * 65)}", f"float32:{1 << 50}:1"],
)  # fmt: skip
def test_layouts_of_results_are_checked(text: str) -> None:
    with pytest.raises(NotOfferedError):
        Layouts.parsed(text)


def test_a_client_that_lies_about_results_hurts_itself(issuer: Issuer) -> None:
    a = put(issuer, torch.ones(2, 3))
    for text in ("float32:3:1", "int64:2,3:3,1", "-", "float32:2,3:3,1;float32:2,3:3,1", ""):
        refused(
            issuer,
            "results|returned",
            "aten::relu",
            [a],
            [A],
            **{"=": [Tag.LIBRARY, "results", text]},
        )
    made = run(issuer, "aten::relu", [a], [A], **{"=": [Tag.LIBRARY, "results", "float32:2,3:1,2"]})
    assert issuer.describe([made])[0][2] == [1, 2]


@pytest.mark.parametrize(
    "slots",
    [([4], [1], 0), ([3], [1], 1), ([2], [2], 1), ([1], [1], 3), ([1], [1], 1 << 61), ([-1], [1], 0), ([2], [-1], 1), ([1 << 61], [1], 0),
     ([1.5], [1], 0), ([None], [1], 0), ([True], [1], 0)],
)  # fmt: skip
def test_a_view_ends_within_its_storage(issuer: Issuer, slots: Any) -> None:
    a = put(issuer, torch.ones(3))
    shape, stride, offset = slots
    arguments = [A, [Tag.DTYPE, "float32"], 0, [Tag.LIST, V], [Tag.LIST, V], V]
    refused(issuer, "a view|sizes, strides", "rgpu::view", [a, *shape, *stride, offset], arguments)
    arguments[1] = [Tag.DTYPE, "complex128"]
    refused(issuer, "a view", "rgpu::view", [a, 1, 1, 0], arguments)


def test_objects_of_other_kinds_are_refused(issuer: Issuer) -> None:
    generator = run(issuer, "rgpu::generator", [1], [V])
    several = run(
        issuer,
        "aten::split.Tensor",
        [put(issuer, torch.ones(4)), 2],
        [A, V],
        outputs=UNKNOWN_OUTPUTS,
    )
    a = put(issuer, torch.ones(2))
    for wrong in (generator, several):
        refused(issuer, ".", "aten::relu", [wrong], [A])
    for wrong in (a, generator):
        refused(issuer, "no list", "rgpu::item", [wrong, 0], [A, V])
    refused(issuer, "index out of range", "rgpu::item", [several, 7], [A, V])
    refused(issuer, ".", "rgpu::item", [several, "x"], [A, V])
    refused(issuer, "in place of a generator", "rgpu::get_state", [a], [A])
    refused(issuer, "seed", "rgpu::generator", ["x"], [V])
    with pytest.raises(RuntimeError, match="has no elements"):
        issuer.read(generator, lambda dtype, shape: memoryview(bytearray()))
    assert issuer.describe([run(issuer, "aten::relu", [a], [A])])


def test_storages_stay_within_the_lease(issuer: Issuer, quota: Quota) -> None:
    def resize(size: object) -> None:
        """After the first refusal the client waits for each at once."""
        run(issuer, "rgpu::resize_storage", [a, size], [A, V], outputs=0)
        issuer.sync()

    a = put(issuer, torch.ones(2))
    issuer.sync()
    for size in (TOTAL + 1, -1, 1 << 60, "x", None):
        with pytest.raises(RuntimeError):
            resize(size)
        a = put(issuer, torch.ones(2))
    refused(
        issuer,
        "out of memory",
        "aten::ones",
        [],
        [[Tag.LIST, TOTAL]],
        **{"=": [Tag.LIBRARY, "results", f"float32:{TOTAL}:1"]},
    )
    big = issuer.new_id()
    issuer.put(big, "float32", [1 << 60, 1 << 60], memoryview(b""))
    with pytest.raises(RuntimeError, match="out of memory"):
        issuer.describe([big])


def test_what_operators_grow_is_charged(issuer: Issuer, quota: Quota) -> None:
    a, big = put(issuer, torch.ones(2)), 1 << 20
    run(issuer, "aten::resize_", [a], [A, [Tag.LIST, big]], outputs=0)
    assert issuer.ask("memory")[0] == 4 * big
    out = put(issuer, torch.ones(0))
    run(issuer, "aten::arange.out", [out], [big], outputs=0, out=A)
    assert issuer.ask("memory")[0] == 8 * big
    outs = [put(issuer, torch.ones(0)) for _ in range(2)]
    both = [Tag.LIST, A, A]
    halves = [Tag.LIST, big // 2, big // 2]
    name = "aten::split_with_sizes_copy.out"
    run(issuer, name, [a, *outs], [A, halves], outputs=0, out=both)
    assert issuer.ask("memory")[0] == 12 * big
    run(issuer, "aten::cat.out", [a, out, outs[0]], [both], outputs=0, out=A)
    with pytest.raises(RuntimeError, match="out of memory"):
        issuer.sync()
    assert issuer.ask("memory")[0] == 10 * big
    issuer.free(a)
    issuer.free(out)
    for one in outs:
        issuer.free(one)
    assert issuer.ask("memory")[0] == 0
    assert quota.charge(TOTAL)


def test_what_cannot_be_charged_has_its_old_size_again() -> None:
    accounts = Accounts(Quota(100), 100)
    with torch.inference_mode():
        a = torch.arange(10.0)
        part = a[8:]
        for one in (a, part):
            accounts.hold(one)
        a.resize_(1000)
        with pytest.raises(torch.OutOfMemoryError):
            accounts.settle([a, torch.zeros(3)])
        assert (a.numel(), a.untyped_storage().nbytes(), part.tolist()) == (0, 40, [8, 9])
        a.resize_(20)
        accounts.settle([a])
        assert accounts.used == 80


def test_a_storage_never_shrinks_below_its_tensors(issuer: Issuer) -> None:
    a = put(issuer, torch.ones(1 << 16))
    run(issuer, "rgpu::resize_storage", [a, 8], [A, V], outputs=0)
    with pytest.raises(RuntimeError, match="cannot shrink to 8"):
        issuer.sync()


def test_a_tensor_that_is_not_announced_cannot_fill_the_node() -> None:
    with torch_session(TOTAL) as issuer:
        for announced in ({}, {"=": [Tag.LIBRARY, "results", "float32:2:1"]}):
            made = run(issuer, "aten::ones", [], [[Tag.LIST, 1 << 36]], **announced)
            with pytest.raises(torch.OutOfMemoryError):
                issuer.describe([made])
        assert issuer.ask("memory") == [0, TOTAL, 0]


def test_all_memory_comes_back(quota: Quota) -> None:
    with session(TorchLibrary(quota, TOTAL)) as issuer:
        a = put(issuer, torch.ones(100))
        parts = run(issuer, "aten::split.Tensor", [a, 10], [A, V], outputs=UNKNOWN_OUTPUTS)
        made = [run(issuer, "aten::add.Tensor", [a, a], [A, A]) for _ in range(9)]
        assert issuer.ask("memory") == [4000, TOTAL, 4000]
        for one in (a, parts, *made):
            issuer.free(one)
        assert issuer.ask("memory") == [0, TOTAL, 4000]
    assert quota.charge(TOTAL)


def test_accounts_charge_a_storage_once() -> None:
    quota = Quota(100)
    accounts = Accounts(quota, 100)
    a = torch.zeros(10)
    accounts.hold(a)
    accounts.hold(a[2:])
    assert accounts.used == 40
    with pytest.raises(torch.OutOfMemoryError, match="The lease of 100 bytes has 40 bytes in use"):
        accounts.hold(torch.zeros(20))
    accounts.drop(a)
    assert accounts.used == 40
    accounts.drop(a[2:])
    assert quota.charge(100)


def test_every_listed_operator_exists() -> None:
    allowed = Allowed.installed()
    assert allowed.names
    for name in allowed.names:
        assert allowed.find(name)._schema is not None


def test_nonsense_never_ends_the_worker() -> None:
    """Random templates of real operators: each is executed, refused, or ends its session."""
    chance = random.Random(5)
    names = sorted(Allowed.installed().names)
    served: Served | None = None
    for _ in range(300):
        if served is None:
            served = Served(TorchLibrary(Quota(TOTAL), TOTAL))
            for at in range(1, 4):
                put_raw(served, at)
            following = 10
        name = chance.choice(names)
        arguments = [argument(chance) for _ in range(chance.randint(0, 5))]
        slots = [
            chance.choice([1, 2, 3, 0, -1, None, 1.5])
            for _ in range(str(arguments).count("['a'") + str(arguments).count("['v'"))
        ]
        following += 1
        operations = [
            [Op.DEFINE, following, name, arguments, {}, UNKNOWN_OUTPUTS],
            [Op.RUN, following, slots, [following]],
            [Op.SYNC, following],
        ]
        served.line.send(Kind.COMMAND, 1, msgpack.packb(operations))
        try:
            message = served.line.next()
            served.line.skip(message.body_bytes)
        except ConnectionError:
            served.join()
            assert served.broken
            served.line.close()
            served = None
    if served is not None:
        served.line.shutdown()
        served.join()
        served.line.close()


def put_raw(served: Served, made: int) -> None:
    data = torch.ones(2, 3).numpy().tobytes()
    served.line.send(
        Kind.COMMAND,
        1,
        msgpack.packb([[Op.PUT, made, "float32", [2, 3], len(data)]]),
        [memoryview(data)],
    )


def argument(chance: random.Random) -> Any:
    return chance.choice([
        A, A, A, V, None, 0, 1, -1, 2, 0.5, True, "mean", [Tag.LIST, A, A], [Tag.LIST, 1, 2], [Tag.LIST],
        [Tag.DTYPE, "int64"], [Tag.LIBRARY, "memory_format", "channels_last"], [Tag.SLOT_SCALAR, "float64"],
    ])  # fmt: skip
