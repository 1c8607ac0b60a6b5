"""One case: draw it, run it, compare."""

from __future__ import annotations

import math
import random
import re
import struct
from typing import TYPE_CHECKING, Any, Final

from kernels.draw import EDGES, Drawing
from kernels.interpret import IllegalAddress, interpret
from kernels.program import IN_WORDS, OUT_BYTES, SAVED, Program, Writer
from kernels.values import encode

if TYPE_CHECKING:
    from kernels.device import Device

ILLEGAL_ADDRESS: Final = 700
# What a damaged kernel may end with: it runs; it is refused (no memory, no image, no code for this
# device, invalid, version, no such kernel, not supported); or it fails as kernels fail (illegal
# address, too long, misaligned, invalid place in the program, any other failure).  Anything else is
# a worker that died.
ALLOWED: Final = frozenset((0, 1, 2, 200, 209, 218, 222, 500, 700, 702, 715, 716, 718, 719, 801))
_TOKEN: Final = re.compile(r"[%\w.:]+|[^\s]")
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


def damaged(rng: random.Random, text: str) -> str:
    """The text with a few of its words changed, gone or doubled."""
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


def check_damaged(device: Device, seed: int) -> str:
    """A damaged program; any outcome but a dead worker is right."""
    rng = random.Random(seed)
    program, given = Drawing(rng).program(), words(rng)
    text = damaged(rng, Writer(program).text())
    packed = struct.pack(f"<{IN_WORDS}Q", *given)
    answer = device.run(text, packed, program.out_bytes(), program.grid, program.block)
    if answer["result"] not in ALLOWED:
        raise DifferenceError(f"seed {seed}, damaged: {_said(answer)}\n{text}")
    return "damaged, ran" if answer["result"] == 0 else "damaged, refused or failed"
