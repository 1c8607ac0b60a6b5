"""atom and red: every operation and type, in global, shared and generic memory, with orders and scopes."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptx.program import result_of, run

from rgpu_emu.ptx.types import TYPES

THREADS = 40
REGISTER = {16: "%h", 32: "%r", 64: "%rd"}


def operations() -> list[tuple[str, str]]:
    found = [(op, t) for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")]
    found += [("add", t) for t in ("u32", "s32", "u64", "s64", "f32", "f64")]
    found += [(op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")]
    return found + [(op, "u32") for op in ("inc", "dec")]


def model(op: str, kind: str, start: int, values: list[int]) -> int:
    """The value after all threads in order (every operation here is insensitive to the order, or run in order)."""
    bits = TYPES[kind].bits
    wrap = (1 << bits) - 1
    if kind[0] == "f":
        code = "<f" if bits == 32 else "<d"
        total = sum(float(v) for v in values)
        return int.from_bytes(struct.pack(code, total), "little")
    sign = lambda v: v - (1 << bits) if kind[0] == "s" and v >> bits - 1 else v  # noqa: E731
    for v in values:
        if op == "inc":
            start = 0 if start >= v else start + 1
        elif op == "dec":
            start = v if start == 0 or start > v else start - 1
        else:
            start = {
                "and": start & v,
                "or": start | v,
                "xor": start ^ v,
                "exch": v,
                "add": start + v,
                "min": min(sign(start), sign(v)),
                "max": max(sign(start), sign(v)),
            }[op] & wrap
    return start


def inputs(op: str, kind: str) -> list[int]:
    if kind[0] == "f":
        return list(range(THREADS))
    if op in ("inc", "dec"):
        return [7] * THREADS
    rng = np.random.default_rng(len(op) + len(kind))
    return [int(v) for v in rng.integers(0, 1 << TYPES[kind].bits - 1, THREADS)]


@pytest.mark.parametrize("space", ["global", "shared", ""])
def test_read_modify_write(space: str) -> None:
    """All operations in one kernel: each on a word of its own, `atom` and `red`."""
    todo = operations()
    lines, at_in = ["mul.wide.u32 %rd30, %tid, 8; add.u64 %in, %in, %rd30;"], 0
    base = "window" if space == "shared" else "%out"
    if space == "shared":
        lines.append("setp.ne.u32 %p1, %tid, 0; @%p1 bra filled;")
        lines += [f"st.shared.u64 [window+{8 * n}], {n % 2};" for n in range(2 * len(todo))]
        lines.append("filled: bar.sync 0;")
    dot = f".{space}" if space else ""
    for n, (op, kind) in enumerate(todo):
        register = REGISTER[TYPES[kind].bits]
        lines.append(f"ld.global.b{TYPES[kind].bits} {register}1, [%in+{at_in}];")
        lines.append(f"atom{dot}.{op}.{kind} {register}2, [{base}+{16 * n}], {register}1;")
        if op != "exch":
            lines.append(f"red.relaxed.gpu{dot}.{op}.{kind} [{base}+{16 * n + 8}], {register}1;")
        at_in += 8 * THREADS
    if space == "shared":
        lines.append("bar.sync 0; @%p1 bra end;")
        lines += [
            f"ld.shared.u64 %rd1, [window+{8 * n}]; st.global.u64 [%out+{8 * n}], %rd1;"
            for n in range(2 * len(todo))
        ]
        lines.append("end:")
    data = np.zeros((len(todo), THREADS), np.uint64)
    for row, (op, kind) in zip(data, todo, strict=True):
        for k, v in enumerate(inputs(op, kind)):
            bits = TYPES[kind].bits
            row[k] = (
                int.from_bytes(struct.pack("<f" if bits == 32 else "<d", v), "little")
                if kind[0] == "f"
                else v
            )
    start = np.tile(np.array([0, 1], np.uint64), len(todo))
    before = f".shared .align 16 .b8 window[{16 * len(todo)}];\n"
    out = run("\n".join(lines), data, start, threads=THREADS, before=before).reshape(-1, 2)
    for (op, kind), (first, second) in zip(todo, out.tolist(), strict=True):
        values = inputs(op, kind)
        mask = (1 << TYPES[kind].bits) - 1
        assert first & mask == model(op, kind, 0, values), (op, kind)
        if op != "exch" and kind[0] != "f":
            assert second & mask == model(op, kind, 1, values), ("red", op, kind)


def test_the_old_value_is_returned() -> None:
    body = """
    atom.global.add.u32 %r1, [%in], 1;
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd1, %out, %rd1;
    add.u32 %r2, %r1, 100;
    st.u32 [%rd1], %r2;
    """
    out = run(body, np.zeros(1, np.uint32), np.zeros(64, np.uint32), threads=64)
    assert out.tolist() == list(range(100, 164))


def test_compare_and_swap_in_all_widths_and_orders() -> None:
    body = """
    mov.u32 %r3, 7; mov.u64 %rd3, 9; mov.b16 %h3, 5;
    atom.acquire.gpu.global.cas.b32 %r1, [%out], 0, %r3;
    atom.release.sys.cas.b32 %r2, [%out], 6, 1;
    atom.acq_rel.cta.global.cas.b64 %rd1, [%out+8], 0, %rd3;
    atom.relaxed.gpu.global.cas.b64 %rd2, [%out+8], %rd3, 10;
    atom.global.cas.b16 %h1, [%out+18], 0, %h3;
    atom.global.cas.b16 %h2, [%out+18], 4, 1;
    atom.global.cta.add.u64 %rd4, [%out+24], 2;
    atom.add.acq_rel.gpu.u64 %rd4, [%out+24], 1;
    st.v2.u32 [%out+32], {%r1, %r2}; st.v2.u64 [%out+48], {%rd1, %rd2}; st.v2.b16 [%out+64], {%h1, %h2};
    """
    out = run(body, np.zeros(1), np.zeros(72, np.uint8), threads=1)
    words = out.view(np.uint32)
    assert words[0] == 7
    assert out.view(np.uint64)[1] == 10
    assert out.view(np.uint16)[8:10].tolist() == [0, 5]
    assert out.view(np.uint64)[3] == 3
    assert words[8:10].tolist() == [0, 7]
    assert out.view(np.uint64)[6:8].tolist() == [0, 9]
    assert out.view(np.uint16)[32:34].tolist() == [0, 5]


def test_halves_and_pairs() -> None:
    body = """
    mov.b16 %h1, 0x3C00; mov.b32 %r1, 0x3C003800; mov.b16 %h2, 0x3F80; mov.b32 %r2, 0x3F804000;
    atom.global.add.noftz.f16 %h3, [%out+2], %h1;      red.global.add.noftz.f16x2 [%out+4], %r1;
    atom.global.add.noftz.bf16 %h4, [%out+8], %h2;     atom.global.add.noftz.bf16x2 %r3, [%out+12], %r2;
    """
    out = run(body, np.zeros(1), np.zeros(8, np.uint16), threads=16)
    assert out[1:4].view(np.float16).tolist() == [16.0, 8.0, 16.0]
    numbers = (out[4:].astype(np.uint32) << 16).view(np.float32)
    assert numbers.tolist() == [16.0, 0.0, 32.0, 16.0]


def test_fences() -> None:
    body = "\n".join(f"{name};" for name in FENCES) + "\nst.u32 [%out], 1;"
    assert run(body, np.zeros(1), np.zeros(1, np.uint32), threads=1)[0] == 1


def test_a_misaligned_atomic_is_refused_as_on_a_device() -> None:
    assert result_of("atom.global.add.u32 %r1, [%in+2], 1;") == 716
    assert result_of("atom.global.add.u64 %rd1, [%in+4], 1;") == 716
    assert result_of("atom.global.add.u32 %r1, [%in+4], 1;") == 0


FENCES = [
    *(f"membar.{s}" for s in ("cta", "gl", "sys")),
    *(
        f"fence.{o}.{s}"
        for o in ("sc", "acq_rel", "acquire", "release")
        for s in ("cta", "gpu", "sys")
    ),
    "fence.proxy.alias",
    "fence.proxy.async.global",
    "fence.mbarrier_init.release.cluster",
    "membar.proxy.alias",
]
FORMS = [
    *FENCES,
    *(
        f"{a}.global.{op}.{t}"
        for a in ("atom", "red")
        for op, t in operations()
        if (a, op) != ("red", "exch")
    ),
    "atom.global.cas.b32",
    *(f"{a}.global.add.noftz.f16" for a in ("atom", "red")),
]
