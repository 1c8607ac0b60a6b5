"""Operations of a warp, from the manual's pseudo code."""

from __future__ import annotations


def resolve(
    name: str, lane: int, values: dict[int, int], state: tuple[int, int, int, int, int]
) -> int:
    """Returns the result of a warp operation for one lane.

    values: lane -> its source value. state: the lane's own state; its third and fourth word are the
    operands b and c of a shuffle.
    """
    family, _, mode = name.partition(".")
    if family == "shfl":
        return _shuffle(mode, lane, values, state[2], state[3])
    if family == "vote":
        bits = {n: v & 1 for n, v in values.items()}
        return {
            "all": int(all(bits.values())),
            "any": int(any(bits.values())),
            "uni": int(len(set(bits.values())) == 1),
            "ballot": sum(b << n for n, b in bits.items()),
        }[mode]
    if family == "match":
        if mode == "any":
            return sum(1 << n for n, v in values.items() if v == values[lane])
        same = len(set(values.values())) == 1
        return (sum(1 << n for n in values) | 1 << 32) if same else 0
    if family == "redux":
        return _redux(mode, [v & 0xFFFFFFFF for v in values.values()])
    return 0


def _shuffle(mode: str, lane: int, values: dict[int, int], b: int, c: int) -> int:
    segment, clamp = c >> 8 & 31, c & 31
    b &= 31
    top = lane & segment | clamp & ~segment & 31
    low = lane & segment
    if mode == "up":
        source, ok = lane - b, lane - b >= top
    elif mode == "down":
        source, ok = lane + b, lane + b <= top
    elif mode == "bfly":
        source, ok = lane ^ b, lane ^ b <= top
    else:
        source = low | b & ~segment & 31
        ok = source <= top
    value = values.get(source if ok else lane, 0) & 0xFFFFFFFF
    return value | int(ok) << 32


def _redux(mode: str, values: list[int]) -> int:
    signed = [v - (1 << 32) if v >> 31 else v for v in values]
    total = {
        "add": sum(values),
        "min.s": min(signed),
        "max.s": max(signed),
        "min.u": min(values),
        "max.u": max(values),
    }
    if mode in total:
        return total[mode] & 0xFFFFFFFF
    out = values[0]
    for v in values[1:]:
        out = {"and": out & v, "or": out | v, "xor": out ^ v}[mode]
    return out
