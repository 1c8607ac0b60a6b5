"""Runs kernels that it is told of, each a line of JSON, until one ends its context.

`python -m kernels.client` in a client's environment; the answer to each is a line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys

from helpers.driver import CudaError, Driver


def load(cuda: Driver, text: str) -> tuple[int, int, str]:
    """(CUresult, module, error log)."""
    log = ctypes.create_string_buffer(4096)
    options = (ctypes.c_int * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    module = ctypes.c_void_p()
    result = cuda.result(
        "cuModuleLoadDataEx", ctypes.byref(module), text.encode(), 2, options, values
    )
    return result, module.value or 0, log.value.decode("utf-8", "replace")


def run(cuda: Driver, task: dict[str, object]) -> dict[str, object]:
    """Loads and launches one kernel; what it left in `out`."""
    result, module, log = load(cuda, str(task["ptx"]))
    if result != 0:
        return {"result": result, "call": "load", "log": log}
    given, size = bytes.fromhex(str(task["in"])), int(str(task["out"]))
    places = (cuda.alloc(len(given)), cuda.alloc(size))
    try:
        cuda.upload(places[0], given)
        cuda.upload(places[1], bytes(size))
        function = cuda.function(module, "k")
        cuda.launch(function, int(str(task["grid"])), int(str(task["block"])), *places)
        cuda.synchronize()
        return {"result": 0, "call": "", "out": cuda.download(places[1], size).hex()}
    except CudaError as error:
        return {"result": error.result, "call": str(error), "log": ""}
    finally:
        # After a sticky error nothing can be freed, and the process ends with it.
        with contextlib.suppress(CudaError):
            for place in places:
                cuda.free(place)
            cuda("cuModuleUnload", ctypes.c_void_p(module))


def main() -> None:
    cuda = Driver()
    cuda.open()
    for line in sys.stdin:
        answer = run(cuda, json.loads(line))
        answer["usable"] = cuda.result("cuCtxSynchronize") == 0
        print(json.dumps(answer), flush=True)
        if not answer["usable"]:
            return


if __name__ == "__main__":
    main()
