"""Kernels as Triton's tutorials have them."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.jit
def softmax(x, out, columns, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    values = tl.load(x + row * columns + at, at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), at < columns)


@triton.jit
def layer_norm(x, weight, bias, out, columns, epsilon, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    there = at < columns
    values = tl.load(x + row * columns + at, there, other=0.0)
    mean = tl.sum(values, 0) / columns
    centred = tl.where(there, values - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    result = centred * scale * tl.load(weight + at, there) + tl.load(bias + at, there)
    tl.store(out + row * columns + at, result, there)


@triton.jit
def matmul(a, b, out, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    inner = tl.arange(0, bk)
    total = tl.zeros((bm, bn), tl.float32)
    for start in range(0, k, bk):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * n + columns[None, :])
        total += tl.dot(left, right)
    tl.store(out + rows[:, None] * n + columns[None, :], total)


@triton.jit
def attention(q, k, v, out, length, scale, bm: tl.constexpr, bn: tl.constexpr, width: tl.constexpr):
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    across = tl.arange(0, width)
    query = tl.load(q + rows[:, None] * width + across[None, :])
    largest = tl.full((bm,), -float("inf"), tl.float32)
    weight = tl.zeros((bm,), tl.float32)
    total = tl.zeros((bm, width), tl.float32)
    for start in range(0, length, bn):
        keys = start + tl.arange(0, bn)
        key = tl.load(k + keys[:, None] * width + across[None, :])
        scores = tl.dot(query, tl.trans(key)) * scale
        now = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp(scores - now[:, None])
        shrink = tl.exp(largest - now)
        weight = weight * shrink + tl.sum(powers, 1)
        value = tl.load(v + keys[:, None] * width + across[None, :])
        total = total * shrink[:, None] + tl.dot(powers.to(tl.float16), value)
        largest = now
    tl.store(out + rows[:, None] * width + across[None, :], total / weight[:, None])
