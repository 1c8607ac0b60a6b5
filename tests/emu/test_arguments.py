"""Every implemented function, called with bad arguments alone and in pairs, returns the CUresult
that `argument_codes.txt` has. RGPU_UPDATE_GOLDENS=1 writes that file.
"""

from __future__ import annotations

from pathlib import Path

from helpers import argument_codes, arguments
from helpers.driver import Driver

from emu.device import Device, library_path, on_device

CODES = Path(__file__).parent / "argument_codes.txt"


@on_device()
def test_every_bad_argument_gets_its_code(cuda: Device) -> None:
    argument_codes.compare(CODES, dict(arguments.codes(Driver(library_path()))))


@on_device()
def test_before_init_every_function_says_so(cuda: Device) -> None:
    answers = arguments.before_init(Driver(library_path()))
    early = {name for name, call in arguments.functions().items() if call.row.early}
    said = {name for name, answer in answers.items() if answer != 3}
    assert said == early - {"cuInit"}, sorted(said)
