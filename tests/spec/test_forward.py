"""Calls of which both ends are generated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaspec import check, model, rows
from cudaspec.gen import forward
from cudaspec.model import Call, Command, Device, Forward, In, InOut, Mode, Out

ASK = Call(
    "CUresult cuDeviceAsk(CUdevice dev, CUkind whatKind, void *value, size_t *most)",
    Mode.CALL,
    args={"dev": Device(), "value": InOut(len="8"), "most": Out()},
    forward=Forward(0x0777),
)
TELL = Call(
    "CUresult cuTell(float factor)",
    Mode.POSTED,
    forward=Forward(0x0778, context=True),
)
TYPES = (model.Alias("CUdevice", "int"), model.Enum("CUkind", {"CU_A": 1}))
SHIM = """\
CUresult cuDeviceAsk(CUdevice dev, CUkind whatKind, void *value, size_t *most) {
  const Here here = DeviceHere(dev);
  rgpuDeviceAsk_Request request;
  request.dev = here.session->devices().Find(dev)->server_ordinal;
  request.what_kind = static_cast<decltype(request.what_kind)>(whatKind);
  request.value = *static_cast<cuuint64_t*>(value);
  rgpuDeviceAsk_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuDeviceAsk>(here.issuer(), request, &reply);
  if (status != CUDA_SUCCESS) return status;
  *static_cast<cuuint64_t*>(value) = static_cast<cuuint64_t>(reply.value);
  *most = static_cast<size_t>(reply.most);
  return CUDA_SUCCESS;
}

CUresult cuTell(float factor) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  rgpuTell_Request request;
  request.factor = static_cast<decltype(request.factor)>(factor);
  return here.channel().Post<op_rgpuTell>(here.issuer(), request);
}
"""
HANDLER = """\
  if (executor.driver()->cuDeviceAsk == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (request.dev != 0) return CUDA_ERROR_INVALID_DEVICE;
  cuuint64_t value = static_cast<cuuint64_t>(request.value);
  size_t most{};
  const CUresult result = executor.driver()->cuDeviceAsk(executor.device(), \
static_cast<CUkind>(request.what_kind), &value, &most);
  reply->value = static_cast<decltype(reply->value)>(value);
  reply->most = static_cast<decltype(reply->most)>(most);
  return result;
}
"""


def test_the_command_is_made_from_the_row(toy: Callable[..., rows.Spec]) -> None:
    spec = toy(calls=[ASK, TELL], commands=[], types=TYPES)
    check.check(spec)
    assert spec.calls["cuDeviceAsk"].row.sends == ("rgpuDeviceAsk",)
    assert spec.opcodes[0x0777].canonical == (
        "rgpuDeviceAsk C (i32 dev, i32 what_kind, u64 value) -> (u64 value, u64 most) bulk=none"
    )
    assert spec.opcodes[0x0778].canonical == "rgpuTell P (f32 factor) -> () bulk=none"


def test_both_ends_are_generated(toy: Callable[..., rows.Spec]) -> None:
    spec = toy(calls=[ASK, TELL], commands=[], types=TYPES)
    assert SHIM in forward.shim_forwards_cc(spec)
    assert HANDLER in forward.exec_forwards_cc(spec)


def test_an_output_that_may_be_null_is_written_only_if_it_is_not(
    toy: Callable[..., rows.Spec],
) -> None:
    call = Call("CUresult cuAsk(int *n)", Mode.CALL, args={"n": Out(nullable=True)},
                forward=Forward(0x0777))  # fmt: skip
    assert "  if (n != nullptr) *n = static_cast<int>(reply.n);\n" in forward.shim_forwards_cc(
        toy(calls=[call], commands=[], types=TYPES)
    )


def test_an_existing_command_needs_no_handler(toy: Callable[..., rows.Spec]) -> None:
    call = Call(
        "CUresult cuX(size_t *free)",
        Mode.CALL,
        args={"free": Out()},
        forward=Forward(command="rgpuX"),
    )
    spec = toy(calls=[call], commands=[Command(1, "rgpuX", Mode.CALL, reply=("u64 free",))])
    check.check(spec)
    assert "Call<op_rgpuX>" in forward.shim_forwards_cc(spec)
    assert "cuX" not in forward.exec_forwards_cc(spec)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            Call("CUresult cuX(int n)", Mode.LOCAL, state="Dev", forward=Forward(1)),
            "cuX: only a call that sends one command and names no stream can be forwarded.",
        ),
        (
            Call("CUresult cuX(int n)", Mode.CALL, forward=Forward()),
            "cuX: a forwarded call has the opcode of a new command, or the name of an existing "
            "one.",
        ),
        (
            Call(
                "CUresult cuX(int *n)",
                Mode.CALL,
                args={"n": Out(late="of a handle")},
                forward=Forward(1),
            ),
            "cuX: it is forwarded, so the guard must check 'n': not late, not nullable.",
        ),
        (
            Call(
                "CUresult cuX(int *n)",
                Mode.CALL,
                args={"n": InOut(nullable=True)},
                forward=Forward(1),
            ),
            "cuX: it is forwarded, so the guard must check 'n': not late, not nullable.",
        ),
        (
            Call("CUresult cuX(int n)", Mode.CALL, forward=Forward(command="rgpuY")),
            "cuX: the field 'm' of rgpuY is not a parameter.",
        ),
        (
            Call("CUresult cuX(CUstream s)", Mode.CALL, forward=Forward(1)),
            "cuX: 'CUstream s' cannot travel as a number, so the call cannot be forwarded.",
        ),
        (
            Call("CUresult cuX(void *p, size_t n)", Mode.CALL, args={"p": In(len="n")},
                 forward=Forward(1)),
            "cuX: 'void * p' cannot travel as a number, so the call cannot be forwarded.",
        ),
    ],
)  # fmt: skip
def test_refused(toy: Callable[..., rows.Spec], call: Call, sentence: str) -> None:
    with pytest.raises(rows.SpecError) as error:
        check.check(
            toy(calls=[call], commands=[Command(9, "rgpuY", Mode.CALL, request=("u32 m",))])
        )
    assert str(error.value) == sentence
