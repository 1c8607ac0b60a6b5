"""One case: draw it, run it, compare."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import struct
from typing import TYPE_CHECKING, Any, Final

from kernels.draw import EDGES, Drawing
from kernels.interpret import IllegalAddress, interpret
from kernels.program import IN_WORDS, OUT_BYTES, SAVED, Program, Writer
from kernels.values import encode
from rgpu_emu.lower.codegen import OPTIMISE_BELOW

if TYPE_CHECKING:
    from kernels.device import Device

OUT_OF_MEMORY: Final = 2
ILLEGAL_ADDRESS: Final = 700
LAUNCH_TIMEOUT: Final = 702
MISALIGNED_ADDRESS: Final = 716
# What a damaged kernel may end with: it runs; it is refused (no memory, no image, no code for this
# device, invalid, version, no such kernel, not supported); or it fails as kernels fail (illegal
# address, too long, misaligned, invalid place in the program, any other failure).  Anything else is
# a worker that died.
ALLOWED: Final = frozenset((0, 1, 2, 200, 209, 218, 222, 500, 700, 702, 715, 716, 718, 719, 801))
_WAITS: Final = re.compile(r"\bbar\.sync\b|\bactivemask\b")
_TOKEN: Final = re.compile(r"[%\w.:]+|[^\s]")
_STATEMENT: Final = re.compile(r"(?<=[;:\n])(?:@!?%p\d )?[a-z][\w.]+ [^;{}]*;")
_REGISTER: Final = re.compile(r"%[hrqfdp]\d\b")
_NUMBER: Final = re.compile(r"(?<=[ +])\d+\b")
_LABEL: Final = re.compile(r"\bL\d+(?=;)")
_STRANGE: Final = ("0", "-1", "99999999999999999999", "{", "}", "[", ";", ",", "%r0", "%p0", "%q0")


class DifferenceError(AssertionError):
    """The device did something else than the interpreter, or nothing that it may do."""


def words(rng: random.Random) -> list[int]:
    """The 64-bit words that threads begin with: edges, numbers of both formats, random bits."""
    found = []
    for _ in range(IN_WORDS):
        pick = rng.random()
        number = rng.choice(
            (0.0, 1.0, rng.gauss(0, 1), math.ldexp(rng.gauss(0, 1), rng.randrange(-40, 40)))
        )
        if pick < 0.25:
            found.append(rng.choice(EDGES) * rng.choice((1, -1)) & (1 << 64) - 1)
        elif pick < 0.5:
            single = struct.unpack("<f", struct.pack("<f", number))[0]
            found.append(encode(single, "f32") | rng.getrandbits(32) << 32)
        elif pick < 0.75:
            found.append(encode(number, "f64"))
        else:
            found.append(rng.getrandbits(64))
    return found


def check_valid(device: Device, seed: int) -> str:
    """A program that is valid; "ran" or "illegal address"."""
    rng = random.Random(seed)
    program, given = Drawing(rng).program(), words(rng)
    text = Writer(program).text()
    try:
        expected = interpret(program, given)
    except IllegalAddress:
        expected = b""
    packed = struct.pack(f"<{IN_WORDS}Q", *given)
    answer = device.run(text, packed, program.out_bytes(), program.grid, program.block)
    wanted = 0 if expected else ILLEGAL_ADDRESS
    if answer["result"] != wanted:
        raise DifferenceError(f"seed {seed}: {_said(answer)}, not CUresult {wanted}\n{text}")
    if expected and bytes.fromhex(answer["out"]) != expected:
        raise DifferenceError(
            _difference(seed, program, expected, bytes.fromhex(answer["out"]), text)
        )
    return "ran" if expected else "illegal address"


def _said(answer: dict[str, Any]) -> str:
    return (
        f"CUresult {answer['result']} of {answer['call'] or 'the launch'} {answer.get('log', '')}"
    )


def _difference(seed: int, program: Program, wanted: bytes, have: bytes, text: str) -> str:
    lines = [f"seed {seed}:"]
    for at in range(0, program.grid * program.block * OUT_BYTES, 4):
        a, b = wanted[at : at + 4], have[at : at + 4]
        if a != b and len(lines) < 12:
            thread, inside = divmod(at, OUT_BYTES)
            name = SAVED[inside // 8] if inside < 8 * len(SAVED) else "own"
            lines.append(
                f"thread {thread}, {name} (byte {inside}): {b[::-1].hex()}, not {a[::-1].hex()}"
            )
    return "\n".join([*lines, text])


def altered(rng: random.Random, text: str) -> str:
    """The text with a few statements gone, doubled or exchanged, and registers, numbers and labels
    in each other's places: most such texts are still PTX."""
    for _ in range(rng.choice((1, 2, 4, 8))):
        pattern = rng.choice((_STATEMENT, _REGISTER, _NUMBER, _LABEL))
        found = list(pattern.finditer(text))
        if len(found) < 2:
            continue
        first, second = sorted(rng.sample(found, 2), key=lambda match: match.start())
        one, two = first.group(), second.group()
        if pattern is _REGISTER and one[1] != two[1]:
            continue
        before, between, after = (
            text[: first.start()],
            text[first.end() : second.start()],
            text[second.end() :],
        )
        one, two = rng.choice(((two, one), (two, two), (one, one), (one + two, "")))
        if pattern is not _STATEMENT and not (one and two):
            continue
        text = f"{before}{one}{between}{two}{after}"
    return text


def damaged(rng: random.Random, text: str) -> str:
    """The text with a few of its words changed, gone or doubled: few such texts are PTX."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        found = list(_TOKEN.finditer(text))
        start, end = rng.choice(found).span()
        kind = rng.randrange(4)
        put = {
            0: "",
            1: rng.choice(found).group(),
            2: rng.choice(_STRANGE),
            3: text[start:end] + " " + text[start:end],
        }[kind]
        text = text[:start] + put + text[end:]
    return text


def unoptimised(text: str) -> str:
    """The same module behind so many more instructions, which no thread reaches, that the device
    compiles it without optimisation: its second lowering."""
    end = text.rstrip()
    if not end.endswith("}"):
        return text
    idle = "mov.u32 %idle, %idle; " * OPTIMISE_BELOW
    return f"{end[:-1]} ret; {{ .reg .b32 %idle; {idle}}} }}\n"


def check_damaged(device: Device, seed: int) -> str:
    """A damaged program: it is refused, or both of its lowerings do the same.

    One block runs, whose threads are coroutines: what they do to each other then has one order, in
    whatever way a damaged program shares its memory.
    """
    rng = random.Random(seed)
    program, given = dataclasses.replace(Drawing(rng).program(), grid=1, together=True), words(rng)
    harm = altered if rng.random() < 0.8 else damaged
    text = harm(rng, Writer(program).text())
    packed = struct.pack(f"<{IN_WORDS}Q", *given)
    size, block = program.out_bytes(), program.block
    answer = device.run(text, packed, size, 1, block)
    if answer["result"] not in ALLOWED:
        raise DifferenceError(f"seed {seed}, damaged: {_said(answer)}\n{text}")
    if answer["call"] == "load" or not _WAITS.search(text):
        return "damaged, refused" if answer["call"] else "damaged, ran once"
    second = device.run(unoptimised(text), packed, size, 1, block)
    if not _agree(answer, second):
        said = f"{_said(answer)}; without optimisation {_said(second)}"
        raise DifferenceError(f"seed {seed}, damaged: {said}\n{text}")
    return "damaged, ran" if answer["result"] == 0 else "damaged, failed"


def _agree(first: dict[str, Any], second: dict[str, Any]) -> bool:
    results = (first["result"], second["result"])
    if LAUNCH_TIMEOUT in results or OUT_OF_MEMORY in results:
        return True
    # Optimised code makes no load whose value nobody wants.
    if results in ((0, ILLEGAL_ADDRESS), (0, MISALIGNED_ADDRESS)):
        return True
    if results != (0, 0):
        return results[0] == results[1]
    one, two = (bytes.fromhex(answer["out"]) for answer in (first, second))
    return all(
        one[at : at + 8] == two[at : at + 8] or _both_nan(one[at : at + 8], two[at : at + 8])
        for at in range(0, len(one), 8)
    )


def _both_nan(one: bytes, two: bytes) -> bool:
    """Whether words differ in what is in a NaN only, which no lowering has to keep."""
    for code in "<d", "<ff":
        pairs = zip(struct.unpack(code, one), struct.unpack(code, two), strict=True)
        if all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs):
            return True
    return False
