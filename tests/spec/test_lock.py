"""opcodes.lock: it is up to date, append-only, and agrees with the generated code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cudaspec import lock, rows


def test_lock_is_fresh(spec: rows.Spec) -> None:
    """Every command is in the lock with its layout: `python -m cudaspec --lock` appends."""
    locked = lock.read()
    for opcode, command in spec.opcodes.items():
        assert locked.get(opcode) == (command.name, command.layout_hash)


def test_append_adds_only_what_is_new(toy: Callable[..., rows.Spec], tmp_path: Path) -> None:
    path = tmp_path / "opcodes.lock"
    toy_spec = toy()
    assert len(lock.append(toy_spec, path)) == len(toy_spec.commands)
    text = path.read_text()
    assert lock.append(toy_spec, path) == []
    assert path.read_text() == text


def test_a_number_that_is_gone_stays_taken(toy: Callable[..., rows.Spec], tmp_path: Path) -> None:
    path = tmp_path / "opcodes.lock"
    path.write_text("0x0999 rgpuGone 12345678\n")
    lock.append(toy(), path)
    assert lock.read(path)[0x0999] == ("rgpuGone", 0x12345678)
