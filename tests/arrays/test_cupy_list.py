"""The list of what a node executes: data that a person can check."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from rgpu_server.arrays import cupy_rows
from rgpu_server.arrays.cupy_calls import Calls
from rgpu_server.arrays.library import NotOfferedError

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "array_exclusions.py"
# Functions of CuPy for which NumPy and SciPy have nothing, or have other parameters.
WITHOUT_STAND_IN = {
    "corrcoef", "cupyx.scipy.signal.firwin2", "cupyx.scipy.signal.morlet", "cupyx.scipy.signal.morlet2",
    "cupyx.scipy.signal.ricker", "cupyx.scipy.sparse.linalg.minres", "cupyx.scipy.sparse.matrix_transpose",
    "cupyx.scipy.spatial.distance.distance_matrix", "cupyx.scipy.spatial.distance.hellinger",
    "cupyx.scipy.spatial.distance.kl_divergence", "cupyx.scipy.special.btdtr", "cupyx.scipy.special.btdtri",
    "cupyx.scipy.special.sph_harm",
    # Another part executes these.
    "kernel.compile", "kernel.launch",
}  # fmt: skip


def exclusions() -> Any:
    spec = importlib.util.spec_from_file_location("array_exclusions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(calls: Calls, row: cupy_rows.Row) -> bool:
    try:
        calls.find(row, row.parameters, ())
    except NotOfferedError:
        return False
    return True


def test_what_is_excluded_is_not_on_the_list_and_has_a_reason() -> None:
    kept = exclusions()
    assert not set(kept.EXCLUDED) & set(cupy_rows.rows())
    assert all(len(reason) > 10 for reason in kept.EXCLUDED.values())
    assert set(kept.CHANGES) <= set(cupy_rows.rows())
    assert set(kept.OWN) <= set(cupy_rows.rows())


def test_every_row_is_a_function_of_cupy_or_of_ours() -> None:
    for public, row in cupy_rows.rows().items():
        assert row.module == "rgpu" or row.module.split(".")[0] in ("cupy", "cupyx")
        assert not any(part.startswith("_") for part in (*public.split("."), row.name))
        assert set(row.changes) <= {*row.parameters, *row.keywords}


def test_every_row_has_a_stand_in_except_those_that_are_named() -> None:
    calls = Calls()
    without = {public for public, row in cupy_rows.rows().items() if not found(calls, row)}
    assert without == WITHOUT_STAND_IN
    with pytest.raises(NotOfferedError, match="is not executed on a GPU node"):
        cupy_rows.find("os.system")
