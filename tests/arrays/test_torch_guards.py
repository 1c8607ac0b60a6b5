"""Arguments that PyTorch's CPU kernels trust are checked: such calls ended the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch")

from helpers.array_session import A  # noqa: E402
from helpers.torch_node import Quota  # noqa: E402
from helpers.torch_session import torch_session  # noqa: E402

from rgpu_client.arrays.issuer import Issuer  # noqa: E402
from rgpu_common.arrays.messages import UNKNOWN_OUTPUTS, Tag  # noqa: E402
from rgpu_server.arrays.library import Slot  # noqa: E402
from rgpu_server.arrays.torch_allowed import Allowed  # noqa: E402
from rgpu_server.arrays.torch_guards import GUARDS, guarded  # noqa: E402
from rgpu_server.arrays.torch_library import TorchLibrary  # noqa: E402

FAR = 1 << 40


def t(*shape: int) -> Any:
    return torch.ones(shape)


def i(*values: int) -> Any:
    return torch.tensor(values)


# An operator, its arguments, and its keywords.
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("native_batch_norm", [t(5, 5, 5), t(0), t(5), t(5), t(5), True, 0.5, 0.5], {}),
    ("native_batch_norm", [t(5, 5, 5), None, None, None, None, False, 0.5, 0.5], {}),
    ("_batch_norm_with_update", [t(5, 5, 5), t(5), t(5), t(5), t(0), 0.5, 0.5], {}),
    ("_batch_norm_no_update", [t(2, 4, 5), None, None, None, None, 0.0, 0.5], {}),
    ("native_batch_norm_backward",
     [t(2, 1), t(2, 1), t(1), t(1), t(1), t(0), t(0), True, 0.5, [True, True, True]], {}),
    ("batch_norm_backward",
     [t(3, 2, 4), t(3, 0, 4), t(2), t(2), t(2), t(2), t(2), True, 0.5, [True, True, True], t(0)], {}),
    ("native_layer_norm_backward",
     [t(0), t(2, 2, 3), [2, 3], t(2, 1, 1), t(2, 1, 1), None, t(2, 3), [True, False, True]], {}),
    ("_adaptive_avg_pool2d_backward", [t(13, 5, 3), t(8, 4, 3)], {}),
    ("_adaptive_avg_pool3d_backward", [t(8, 4, 3, 7), t(108, 4, 3, 7)], {}),
    ("adaptive_max_pool2d_backward", [t(1, 1, 2), t(1, 2, 2), i(0, FAR).reshape(1, 1, 2)], {}),
    ("max_pool2d_with_indices_backward",
     [t(1, 1, 1), t(1, 2, 2), [2, 2], [2, 2], [0, 0], [1, 1], False, i(-FAR).reshape(1, 1, 1)], {}),
    ("adaptive_max_pool3d_backward", [t(1, 1, 1, 1), t(1, 2, 2, 2), i(FAR).reshape(1, 1, 1, 1)], {}),
    ("fractional_max_pool2d_backward", [t(2), t(5, 2, 4), [], [], i(1)], {}),
    ("fractional_max_pool3d_backward",
     [t(1, 2, 2, 2), t(101, 6, 5, 4), [2, 2, 2], [2, 2, 2], i(*range(8)).reshape(1, 2, 2, 2)], {}),
    ("reflection_pad1d_backward", [t(1, 10, 116), t(1, 10, 100), []], {}),
    ("replication_pad2d_backward", [t(5, 2, 2, 4), t(6, 2, 4, 4), [0, 0, 2, -4]], {}),
    ("grid_sampler_2d_backward",
     [t(2, 3, 13, 10), t(2, 3, 5, 20), t(2, 13, 110, 2), 0, 1, False, [True, True]], {}),
    ("grid_sampler_2d", [t(1, 1, 2, 2), t(1, 2, 2, 2), 0, 4, True], {}),
    ("grid_sampler_3d", [t(1, 1, 2, 2, 2), t(1, 2, 2, 2, 3), 9, 0, True], {}),
    ("grid_sampler_2d_backward",
     [t(1, 1, 2, 2), t(1, 1, 2, 2), t(1, 2, 2, 2), -1, 0, True, [True, True]], {}),
    ("_log_softmax_backward_data", [t(5), t(4), 0, torch.float32], {}),
    ("_pdist_forward", [t(3, 2, 5)], {}),
    ("_pdist_backward", [t(4, 2), t(5, 1), 2.0, t(10)], {}),
    ("_pdist_backward", [t(0), t(0, 5), 2.0, t(0)], {}),
    ("_cdist_backward", [t(5, 5), t(5, 105), t(5, 5), 1.0, t(0, 4)], {}),
    ("_weight_norm_interface", [t(1, 1, 2, 5), t(1, 4, 1), 3], {}),
    ("_weight_norm_interface_backward", [t(2, 3), t(2, 3), t(9), t(2), 0], {}),
    ("_transform_bias_rescale_qkv", [t(2, 2, 6), t(6), 0], {}),
    ("_fft_c2c", [t(3, 4), [1, 1 << 31], 1, False], {}),
    ("_fft_c2r", [t(3, 4), [-2], 1, 10], {}),
    ("_fft_r2c", [t(3, 4), [1, 1], 1, False], {}),
    ("_stack", [[], -1], {}),
    ("_foreach_copy", [[], [t(2)]], {}),
    ("_native_batch_norm_legit_functional", [t(2, 3), None, None, t(3), t(2), False, 0.5, 0.5], {}),
    ("unfold_backward", [t(), [5, 5, 5, 5, 5], 3, 3, 1], {}),
    ("unfold_backward", [t(1, 2), [5, 5, 5], 0, 3, 1], {}),
    ("_chunk_cat", [[t()], -1, 5], {}),
    ("_fused_sgd_", [[t(500)], [t(1)], []],
     {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False,
      "maximize": False, "is_first_step": True}),
    ("_fused_adam_", [[t(5)], [t(5)], [t(5)], [t(5)], [], [t()]],
     {"lr": 0.1, "beta1": 0.1, "beta2": 0.1, "weight_decay": 0.0, "eps": 0.1, "amsgrad": True,
      "maximize": False}),
    ("_fused_adagrad_", [[t(5)], [t(5)], [], [t()]],
     {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.0, "eps": 0.1, "maximize": False}),
    ("_cummax_helper", [t(5, 2), t(3, 2), i(0, 1), 0], {}),
    ("nll_loss_backward", [t(2), t(2, 3), i(FAR, 0), t(3), 0, -100, t()], {}),
    ("nll_loss2d_backward", [t(4, 1, 3), t(4, 2, 1, 3), i(9).expand(4, 1, 3), None, 0, -100, t()], {}),
    ("multi_margin_loss_backward", [t(0), t(5), i(1), 2, 1.0, None], {}),
    ("multilabel_margin_loss_backward", [t(0), t(5), i(1, 1, 0, 1, 4), 1, t(5)], {}),
    ("embedding_dense_backward", [t(5, 5), i(0, 1, 2, 3, FAR), 5, -1, True], {}),
    ("_embedding_bag_backward",
     [t(2, 5), i(3, FAR, 1), i(0, 2), i(), i(0, 0), i(0, 0), 10, False, 0, False, None], {}),
    ("_embedding_bag_per_sample_weights_backward",
     [t(2, 5), t(10, 5), i(1, -FAR), i(0, 1), i(), 0], {}),
    ("segment_reduce", [t(4), "max"], {"offsets": i(0, 0, FAR)}),
    ("segment_reduce", [t(4), "max"], {"lengths": i(3, 3), "unsafe": True}),
    ("_segment_reduce_backward", [t(1), t(1), t(5), "max"], {"lengths": i(FAR)}),
    ("_ctc_loss", [t(5, 1, 3), i(1, FAR).reshape(1, 2), [5], [2], 0, True], {}),
    ("_ctc_loss", [t(5, 1, 3), i(1, 2).reshape(1, 2), [5], [200], 0, True], {}),
    ("_ctc_loss_backward",
     [t(1), t(5, 1, 3), i(1, 2).reshape(1, 2), [5], [2], t(1), t(1, 1, 1), 0, True], {}),
    ("linalg_ldl_solve", [t(5, 5), i(-9, -9, -9, -9, -9).int(), t(5, 2)], {}),
    ("linalg_ldl_solve", [t(3, 3), i(1, 2, -3).int(), t(3, 2)], {}),
    ("lu_unpack", [t(5, 3, 2), i(3, 2, 3).int(), True, True], {}),
    # The sums of 64 bits are 5 and 1.
    ("repeat_interleave", [i(1 << 62, 1 << 62, 1 << 62, (1 << 62) + 5)], {}),
    ("repeat_interleave", [i(FAR, 1 - FAR)], {}),
    ("_native_multi_head_attention",
     [t(1, 2, 4), t(1, 2, 4), t(1, 2, 4), 4, 0, t(12, 4), t(12), t(4, 4), t(4)], {}),
    ("_transformer_encoder_layer_fwd",
     [t(1, 2, 4), 4, 0, t(12, 4), t(12), t(4, 4), t(4), False, False, 0.1, t(4), t(4), t(4), t(4),
      t(8, 4), t(8), t(4, 8), t(4)], {}),
]  # fmt: skip


def node(issuer: Issuer, value: Any, slots: list[Any]) -> Any:
    """Returns an argument's part of a template. Ids of the tensors in it are added to `slots`."""
    if isinstance(value, torch.Tensor):
        whole, made = value.contiguous(), issuer.new_id()
        data = memoryview(whole.reshape(-1).numpy()).cast("B") if whole.numel() else memoryview(b"")
        issuer.put(made, str(whole.dtype)[6:], list(whole.shape), data)
        slots.append(made)
        return [Tag.SLOT_OBJECT]
    if isinstance(value, list):
        return [Tag.LIST, *(node(issuer, one, slots) for one in value)]
    if isinstance(value, torch.dtype):
        return [Tag.DTYPE, str(value)[6:]]
    return value


def overload(name: str) -> str:
    """Returns the listed name of the overload without outputs."""
    names = sorted(one for one in Allowed.installed().names if one.partition(".")[0] == name)
    return names[0]


def test_wrong_arguments_are_refused_by_a_session_that_lives_on() -> None:
    with torch_session(1 << 28) as issuer:
        for at, (name, arguments, keywords) in enumerate(CALLS):
            slots: list[Any] = []
            given = [node(issuer, one, slots) for one in arguments]
            named = {key: node(issuer, one, slots) for key, one in keywords.items()}
            template = issuer.template(at, overload(f"aten::{name}"), given, named, UNKNOWN_OUTPUTS)
            made = issuer.new_id()
            issuer.run(template, slots, [made])
            with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
                issuer.describe([made])
            assert "not executed on the node" not in str(caught.value), name
            assert "cannot take" not in str(caught.value), (name, caught.value)
        assert issuer.ask("version")


def test_what_a_gpu_node_computes_on_its_cpu_is_checked_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session may have tensors there (`rgpu::to_host`, the device "cpu")."""
    called: list[int] = []

    class Gpu(torch.Tensor):  # type: ignore[misc]
        """What guards take for a tensor of a GPU."""

        device = torch.device("cuda", 0)

    def call(*arguments: Any) -> None:
        called.append(len(arguments))

    (schema,) = torch._C._jit_get_schemas_for_operator("aten::_pdist_forward")[:1]
    on_cpu, on_gpu = t(3, 2, 5), t(3, 2, 5).as_subclass(Gpu)
    run = guarded("aten::_pdist_forward", call, schema, gpu=True)
    with pytest.raises(ValueError, match="points of distances are a matrix"):
        run(on_cpu, 2.0)
    assert called == []
    # A wild access there is the driver's affair, and a look would wait for the GPU.
    run(on_gpu, 2.0)
    assert called == [2]
    # A library on such a node has these guards.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    library = TorchLibrary(Quota(1 << 20))
    shown = [Slot(Tag.SLOT_OBJECT), 2.0]
    with pytest.raises(ValueError, match="points of distances are a matrix"):
        library.define("aten::_pdist_forward", shown, {}).call(on_cpu, 2.0)


def view(
    issuer: Issuer, base: int, dtype: str, *shape: int, stride: tuple[int, ...] | None = None
) -> int:
    """A view of the first elements of a tensor as others, by default in Fortran's order."""
    v, made = [Tag.SLOT_VALUE], issuer.new_id()
    stride = stride or (1, *shape[:-1])
    several = [Tag.LIST, *[v] * len(shape)]
    arguments = [[Tag.SLOT_OBJECT], [Tag.DTYPE, dtype], 0, several, several, v]
    template = issuer.template(("view", dtype, shape), "rgpu::view", arguments, {}, 1)
    issuer.run(template, [base, *shape, *stride, 0], [made])
    return made


def numbers(issuer: Issuer, tensor: int, count: int, dtype: Any = torch.float32) -> Any:
    """Reads the elements of a tensor in a row."""
    answer = bytearray(count * dtype.itemsize)
    issuer.read(tensor, lambda dtype, shape: memoryview(answer))
    return torch.frombuffer(answer, dtype=dtype)


def test_a_result_does_not_change_the_pivots_that_were_checked() -> None:
    """The operator writes the right side to its result before it goes along the pivots."""
    with torch_session(1 << 28) as issuer:
        slots: list[Any] = []
        for value in (torch.eye(3), i(1, 2, 3, 0, 0, 0).int(), t(3, 1)):
            node(issuer, value, slots)
        factors, memory, right = slots
        pivots, out = view(issuer, memory, "int32", 3), view(issuer, memory, "float32", 3, 1)
        template = issuer.template("solve", "aten::linalg_lu_solve.out", [A, A, A], {"out": A}, 0)
        issuer.run(template, [factors, pivots, right, out], [])
        assert numbers(issuer, out, 3).tolist() == [1, 1, 1]


def test_a_result_does_not_change_the_order_that_was_checked() -> None:
    """The operator writes pairs of 32 bits to where its sorter has numbers of 64 bits."""
    with torch_session(1 << 28) as issuer:
        slots: list[Any] = []
        values = torch.cat((torch.full((6192,), 1e9), torch.full((2000,), -1.0)))
        for value in (torch.arange(8192.0), values, torch.arange(8192)):
            node(issuer, value, slots)
        out = view(issuer, slots[2], "int32", 8192)
        given = {"out_int32": True, "sorter": A, "out": A}
        template = issuer.template("search", "aten::searchsorted.Tensor_out", [A, A], given, 0)
        issuer.run(template, [*slots, out], [])
        assert numbers(issuer, out, 8192, torch.int32).tolist() == [8192] * 6192 + [0] * 2000


def test_a_result_does_not_change_the_classes_that_were_checked() -> None:
    """The operator marks a class where it reads the next one."""
    with torch_session(1 << 28) as issuer:
        slots: list[Any] = []
        for value in (t(1, 4096), torch.zeros(1, 4096, dtype=torch.int64), t()):
            node(issuer, value, slots)
        marks = view(issuer, slots[1], "float32", 1, 4096)
        template = issuer.template(
            "loss", "aten::multilabel_margin_loss_forward.output", [A, A, 1],
            {"output": A, "is_target": A}, 0,
        )  # fmt: skip
        issuer.run(template, [*slots, marks], [])
        assert numbers(issuer, marks, 4096).tolist() == [1.0] + [0.0] * 4095


@pytest.mark.parametrize("name", ["gelu_backward", "gelu_backward.grad_input"])
def test_a_gradient_of_one_number_is_not_longer_than_the_input(name: str) -> None:
    """oneDNN would read as much of the input as the gradient shows."""
    with torch_session(1 << 28) as issuer:
        slots: list[Any] = []
        for value in (t(1), t(4), t(0)):
            node(issuer, value, slots)
        gradient = view(issuer, slots[0], "float32", 1 << 20, 4, stride=(0, 0))
        out = {"grad_input": A} if name.endswith("grad_input") else {}
        template = issuer.template(name, f"aten::{name}", [A, A], out, 0 if out else 1)
        made = issuer.new_id()
        issuer.run(template, [gradient, slots[1], *slots[2:] * len(out)], [] if out else [made])
        with pytest.raises(ValueError, match="the gradient and the input must have one shape"):
            issuer.describe([slots[2] if out else made])


@pytest.mark.parametrize("name", ["max.unary_out", "min.unary_out"])
def test_the_largest_of_nothing_is_not_what_lay_in_memory(name: str) -> None:
    with torch_session(1 << 28) as issuer:
        slots: list[Any] = []
        for value in (t(0), t(0)):
            node(issuer, value, slots)
        template = issuer.template(name, f"aten::{name}", [A], {"out": A}, 0)
        issuer.run(template, slots, [])
        with pytest.raises(ValueError, match="has no largest or smallest one"):
            issuer.sync()


def test_every_guarded_operator_is_listed() -> None:
    listed = {name.removeprefix("aten::") for name in Allowed.installed().names}
    assert set(GUARDS) <= listed | {name.partition(".")[0] for name in listed}


# Calls each operator of the list with simple arguments, which many refuse, as a worker does.
EVERY_OPERATOR = """
import sys
from rgpu_common.arrays.seams import Seam
from rgpu_server.arrays import confine, equipment
confine.single_thread()
equipment._warm_torch()
import torch
from rgpu_server.arrays.torch_allowed import Allowed, resolved
from rgpu_server.arrays.torch_library import STAND_INS
from rgpu_server.arrays.torch_guards import guarded

VALUES = {"int": 1, "float": 0.5, "bool": False, "number": 1, "str": "none", "List[int]": [1, 1],
          "List[bool]": [True], "List[float]": [1.0]}
BASES = torch.rand(3, 3), torch.tensor([0, 1, 2]), torch.rand(3, 3, dtype=torch.complex64)

def given(argument, base):
    kind = str(argument.type)
    if argument.has_default_value():
        return argument.default_value
    if "Tensor" in kind:
        return [base, base.clone()] if "List" in kind else base.clone()
    return VALUES.get(kind)

called, before = 0, set(sys.modules)
with torch.inference_mode():
    for name in sorted(Allowed.installed().names):
        operator = resolved(name)
        schema = operator._schema
        call = guarded(name, STAND_INS.get(name, operator._op), schema)
        for base in BASES:
            plain = [given(one, base) for one in schema.arguments if not one.kwarg_only]
            named = {one.name: given(one, base) for one in schema.arguments
                     if one.kwarg_only and not one.has_default_value()}
            try:
                call(*plain, **named)
                called += 1
            except Exception:
                pass
print(called > 1000, sorted(set(sys.modules) - before)[:20])
"""


def test_no_operator_imports_what_a_worker_may_not_be_able_to_read() -> None:
    """A worker imports before it gives up its rights; Python may lie in somebody's home."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", EVERY_OPERATOR], cwd="/", text=True, capture_output=True,
        timeout=150, check=False,
    )  # fmt: skip
    assert done.stdout.split("\n")[-2] == "True []", done.stderr[-2000:]
