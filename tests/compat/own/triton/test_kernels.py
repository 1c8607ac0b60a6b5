"""Triton's kernels, compiled ahead for compute capability 8.0, against NumPy."""

import kernels
import numpy as np
import pytest
import triton
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, launch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def run(function, signature, constants, grid, arrays, *numbers):
    """Compiles and launches; returns what the last array then has."""
    source = ASTSource(fn=function, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32))
    device = Device()
    device.set_current()
    stream = device.create_stream()
    buffers = [device.allocate(array.nbytes, stream=stream) for array in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        ok(driver.cuMemcpyHtoD(int(buffer.handle), array.ctypes.data, array.nbytes))
    shared = compiled.metadata.shared
    kernel = ObjectCode.from_ptx(compiled.asm["ptx"].encode()).get_kernel(compiled.metadata.name)
    if shared > 48 << 10:
        kernel.attributes.max_dynamic_shared_size_bytes = shared
    config = LaunchConfig(grid=grid, block=32 * compiled.metadata.num_warps, shmem_size=shared)
    # The last two are Triton's scratch memory, which these kernels do not use.
    launch(stream, config, kernel, *(int(b.handle) for b in buffers), *numbers, 0, 0)
    stream.sync()
    out = arrays[-1]
    ok(driver.cuMemcpyDtoH(out.ctypes.data, int(buffers[-1].handle), out.nbytes))
    for buffer in buffers:
        buffer.close(stream)
    return out


def ok(answer):
    assert int(answer[0]) == 0


def types(**named):
    return dict(named)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_add(rng):
    n = 5000
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    found = run(
        kernels.add,
        types(x="*fp32", y="*fp32", out="*fp32", n="i32", block="constexpr"),
        {"block": 1024},
        (-(-n // 1024),),
        [x, y, np.zeros_like(x)],
        np.int32(n),
    )
    np.testing.assert_array_equal(found, x + y)


@pytest.mark.parametrize("columns", [128, 781])
def test_softmax(rng, columns):
    x = rng.standard_normal((37, columns)).astype(np.float32)
    found = run(
        kernels.softmax,
        types(x="*fp32", out="*fp32", columns="i32", block="constexpr"),
        {"block": triton.next_power_of_2(columns)},
        (len(x),),
        [x, np.zeros_like(x)],
        np.int32(columns),
    )
    powers = np.exp(x.astype(float) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("columns", [256, 1000])
def test_layer_norm(rng, columns):
    x = rng.standard_normal((21, columns)).astype(np.float32)
    weight, bias = rng.standard_normal((2, columns)).astype(np.float32)
    found = run(
        kernels.layer_norm,
        types(
            x="*fp32",
            weight="*fp32",
            bias="*fp32",
            out="*fp32",
            columns="i32",
            epsilon="fp32",
            block="constexpr",
        ),
        {"block": triton.next_power_of_2(columns)},
        (len(x),),
        [x, weight, bias, np.zeros_like(x)],
        np.int32(columns),
        np.float32(1e-5),
    )
    wide = x.astype(float)
    scale = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    expected = (wide - wide.mean(1, keepdims=True)) / scale * weight + bias
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["fp16", "fp32"])
def test_matmul(rng, kind):
    m, n, k = 96, 128, 160
    dtype = {"fp16": np.float16, "fp32": np.float32}[kind]
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    found = run(
        kernels.matmul,
        types(
            a=f"*{kind}",
            b=f"*{kind}",
            out="*fp32",
            m="i32",
            n="i32",
            k="i32",
            bm="constexpr",
            bn="constexpr",
            bk="constexpr",
        ),
        {"bm": 32, "bn": 32, "bk": 32},
        (m // 32, n // 32),
        [a, b, np.zeros((m, n), np.float32)],
        *map(np.int32, (m, n, k)),
    )
    wide = [x.astype(float) for x in (a, b)]
    limit = 2.0**-9 if kind == "fp32" else 2.0**-20  # tf32 reads 10 bits of the fraction
    assert np.all(abs(found - wide[0] @ wide[1]) <= limit * (abs(wide[0]) @ abs(wide[1])))


def test_attention(rng):
    length, width = 128, 64
    q, k, v = rng.standard_normal((3, length, width)).astype(np.float16)
    scale = width**-0.5
    found = run(
        kernels.attention,
        types(
            q="*fp16",
            k="*fp16",
            v="*fp16",
            out="*fp32",
            length="i32",
            scale="fp32",
            bm="constexpr",
            bn="constexpr",
            width="constexpr",
        ),
        {"bm": 32, "bn": 32, "width": width},
        (length // 32,),
        [q, k, v, np.zeros((length, width), np.float32)],
        np.int32(length),
        np.float32(scale),
    )
    scores = q.astype(float) @ k.astype(float).T * scale
    powers = np.exp(scores - scores.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True) @ v.astype(float)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=2e-3)
