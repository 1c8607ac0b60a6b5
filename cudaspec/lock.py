"""The file opcodes.lock: opcode, name and CRC-32 of the canonical text of every command ever
released.

It is append-only. When a command is removed, its line stays, so that its number is never used
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cudaspec.rows import Spec, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = Path(__file__).parent / "opcodes.lock"


def read(path: Path = PATH) -> dict[int, tuple[str, int]]:
    """Returns opcode -> (name, layout hash); raises SpecError for an invalid line."""
    locked: dict[int, tuple[str, int]] = {}
    if not path.is_file():
        return locked
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3:
            raise SpecError(f"{path.name}:{number}: a line is 'OPCODE NAME CRC-32', not '{line}'.")
        opcode = int(words[0], 16)
        if opcode in locked:
            raise SpecError(f"{path.name}:{number}: the opcode 0x{opcode:04x} appears twice.")
        locked[opcode] = (words[1], int(words[2], 16))
    return locked


def check(spec: Spec, locked: Mapping[int, tuple[str, int]]) -> None:
    """Raises SpecError unless every command is in the lock, unchanged."""
    for opcode, command in spec.opcodes.items():
        if opcode not in locked:
            raise SpecError(
                f"{command.name}: the opcode 0x{opcode:04x} is not in opcodes.lock: "
                "run 'python -m cudaspec --lock'."
            )
        name, crc = locked[opcode]
        if name != command.name:
            raise SpecError(
                f"{command.name}: the opcode 0x{opcode:04x} is {name}'s for ever; take a new one."
            )
        if crc != command.layout_hash:
            raise SpecError(
                f"{command.name}: its layout is not the one that opcodes.lock has for "
                f"0x{opcode:04x}: take a new opcode, because releases that are out use this one."
            )


def append(spec: Spec, path: Path = PATH) -> list[str]:
    """Appends the new commands; returns the appended lines."""
    locked = read(path)
    lines = [
        f"0x{opcode:04x} {command.name} {command.layout_hash:08x}"
        for opcode, command in spec.opcodes.items()
        if opcode not in locked
    ]
    if lines:
        with path.open("a", encoding="ascii") as file:
            file.write("".join(line + "\n" for line in lines))
    return lines
