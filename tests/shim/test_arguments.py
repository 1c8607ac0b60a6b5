"""Every implemented function, called with bad arguments alone and in pairs, returns the CUresult
that `argument_codes.txt` has. RGPU_UPDATE_GOLDENS=1 writes that file.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

from helpers import argument_codes, arguments, clients
from helpers.server import Server

CODES = Path(__file__).parent / "argument_codes.txt"


def test_every_bad_argument_gets_its_code() -> None:
    with Server(device="emulated:1GiB") as server:
        code, output, errors = clients.run(
            server.address("unix"), "from helpers import arguments\narguments.main()"
        )
    assert code == 0, errors
    found: dict[str, list[int]] = {}
    for line in output.splitlines():
        found |= json.loads(line)
    argument_codes.compare(CODES, found)


def test_before_init_every_function_says_so() -> None:
    source = "from helpers import arguments\nprint(arguments.before_init(cuda))"
    code, output, errors = clients.run(None, source)
    assert code == 0, errors
    answers = ast.literal_eval(output)
    early = {name for name, call in arguments.functions().items() if call.row.early}
    assert {name for name, answer in answers.items() if answer != 3} == early - {"cuInit"}
