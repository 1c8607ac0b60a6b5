"""The specification of NVML: what the library exports, what the page says, and rows that are wrong."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import re
import subprocess
from pathlib import Path

import pytest
from helpers.needs import needs, program

import rgpu_client
from cudaspec import load_nvml
from cudaspec.gen import nvml
from cudaspec.nvml_model import Function, Needs, Refused
from cudaspec.rows import SpecError

ROWS = load_nvml.load()
NAME = "nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)"


def test_the_page_is_fresh() -> None:
    """`make gen` writes it."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "nvml.md"
    assert page.read_text(encoding="utf-8") == nvml.page_md(ROWS)


def test_the_page_has_every_function() -> None:
    page = nvml.page_md(ROWS)
    assert [name for name in ROWS.exported if f"| `{name}` |" not in page] == []


@needs("binutils")
def test_the_library_exports_every_row_and_nothing_else() -> None:
    path = rgpu_client.library_path() / "libnvidia-ml.so.1"
    done = subprocess.run(
        [program("binutils", "nm"), "-D", "--defined-only", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {line.split()[-1] for line in done.stdout.splitlines()}
    assert found == {*ROWS.exported, *load_nvml.EXTRA}


@needs("nvidia-ml-py")
def test_every_function_of_nvidia_ml_py_is_there() -> None:
    module = importlib.import_module("pynvml")
    names = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', inspect.getsource(module)))
    assert len(names) > 300
    assert sorted(names - set(ROWS.exported)) == []


@needs("nvidia-ml-py")
def test_structures_have_the_size_that_nvidia_ml_py_gives() -> None:
    module = importlib.import_module("pynvml")
    sizes = {
        "c_nvmlMemory_t": 24, "c_nvmlMemory_v2_t": 40, "c_nvmlUtilization_t": 8,
        "nvmlPciInfo_t": 68, "c_nvmlProcessInfo_v3_t": 24, "c_nvmlFieldValue_t": 40,
        "c_nvmlProcessUtilizationSample_t": 32,
    }  # fmt: skip
    assert {name: ctypes.sizeof(getattr(module, name)) for name in sizes} == sizes


@pytest.mark.parametrize(
    ("functions", "refused", "sentence"),
    [
        ((Function(NAME, Needs.KNOWN, ""), Function(NAME, Needs.KNOWN, "")), (), "2 rows"),
        ((Function(NAME, Needs.KNOWN, ""),), (Refused("NVML_ERROR_UNKNOWN", "", "nvmlDeviceGetName"),), "2 rows"),
        ((Function(NAME, Needs.DEVICES, ""),), (), "needs a device"),
        ((Function("nvmlReturn_t nvmlShutdown(void)", Needs.NOW, ""),), (), "needs a device"),
        ((Function(NAME, Needs.KNOWN, "", body="nvmlNone"),), (), "no body nvmlNone"),
        ((Function(NAME, Needs.NOW, "", reading="SPIN"),), (), "SPIN is no reading"),
        ((Function(NAME, Needs.NOW, "", reading="POWER_MW"),), (), "one result"),
        ((Function(NAME, Needs.KNOWN, "", nullable=("length",)),), (), "not all pointers"),
        ((Function("int nvmlX()", Needs.NOTHING, ""),), (), "is not a declaration"),
        ((), (Refused("NVML_ERROR_MINE", "", "nvmlX"),), "no error NVML_ERROR_MINE"),
    ],
)  # fmt: skip
def test_wrong_rows_are_refused(
    functions: tuple[Function, ...], refused: tuple[Refused, ...], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        load_nvml.checked(
            functions, refused, ROWS.types, ROWS.constants, ROWS.errors, frozenset({"POWER_MW"})
        )
