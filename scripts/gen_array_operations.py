"""Writes rgpu_common/arrays/cupy_operations.json: which functions of CuPy a node executes.

    python scripts/gen_array_operations.py

It needs an installed CuPy (`pip install cupy-cuda13x`), and no GPU. What it finds in CuPy's public
modules goes into the list unless `array_exclusions.py` names it with a reason. A person reads the
difference before it is committed: a name that is new there becomes something a client can ask for.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from array_exclusions import CHANGES, EXCLUDED, MORE_KEYWORDS, OWN, TEXTS  # noqa: E402

TARGET = HERE.parent / "rgpu_common" / "arrays" / "cupy_operations.json"
# CuPy's module, and the prefix of its functions' names in the list.
MODULES = {
    "cupy": "",
    "cupy.linalg": "linalg.",
    "cupy.fft": "fft.",
    "cupy.random": "random.",
    "cupyx": "cupyx.",
    "cupyx.scipy.special": "cupyx.scipy.special.",
    "cupyx.scipy.ndimage": "cupyx.scipy.ndimage.",
    "cupyx.scipy.signal": "cupyx.scipy.signal.",
    "cupyx.scipy.signal.windows": "cupyx.scipy.signal.windows.",
    "cupyx.scipy.linalg": "cupyx.scipy.linalg.",
    "cupyx.scipy.fft": "cupyx.scipy.fft.",
    "cupyx.scipy.stats": "cupyx.scipy.stats.",
    "cupyx.scipy.sparse": "cupyx.scipy.sparse.",
    "cupyx.scipy.sparse.linalg": "cupyx.scipy.sparse.linalg.",
    "cupyx.scipy.spatial.distance": "cupyx.scipy.spatial.distance.",
}
# Functions whose signature cannot be read.
SIGNATURES = {"size": "a axis"}


def main() -> None:
    """Writes the file."""
    warnings.simplefilter("ignore")
    cupy = importlib.import_module("cupy")
    operations: dict[str, Any] = {}
    for module, prefix in MODULES.items():
        operations.update(_module(importlib.import_module(module), prefix))
    operations.update(OWN)
    text = {"library": f"cupy {cupy.__version__}", "texts": TEXTS}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in text.items()]
    rows = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(operations[name])}" for name in sorted(operations)
    )
    TARGET.write_text("{\n" + ",\n".join(lines) + ',\n  "operations": {\n' + rows + "\n  }\n}\n")
    print(f"{TARGET.name}: {len(operations)} operations of CuPy {cupy.__version__}")


def _module(module: Any, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(value) or inspect.isclass(value):
            continue
        if callable(value) and prefix + name not in EXCLUDED:
            found[prefix + name] = _row(module.__name__, prefix + name, name, value)
    return found


def _row(module: str, public: str, name: str, value: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"module": module, "name": name}
    if type(value).__name__ == "ufunc":
        row["inputs"], row["outputs"] = value.nin, value.nout
        row["parameters"] = " ".join(f"x{n + 1}" for n in range(value.nin))
        row["keywords"] = "out where dtype casting"
        row["changes"] = "out"
        return row
    positional, keywords, rest = _parameters(public, value)
    row["parameters"] = " ".join(positional)
    if keywords:
        row["keywords"] = " ".join(keywords)
    if rest:
        row["rest"] = True
    changes = CHANGES.get(public, "out" if "out" in (*positional, *keywords) else "")
    if changes:
        row["changes"] = changes
    return row


def _parameters(public: str, value: Any) -> tuple[list[str], list[str], bool]:
    """Returns the names of positional parameters and of keywords, and whether more may follow."""
    if public in SIGNATURES:
        return SIGNATURES[public].split(), [], False
    positional, keywords, rest = [], [], False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.name in ("stream", "blocking", "subok", "plan", "callback"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = True
        elif parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append(parameter.name)
        elif parameter.kind is not parameter.VAR_KEYWORD:
            positional.append(parameter.name)
    return positional, [*keywords, *MORE_KEYWORDS.get(public, "").split()], rest


if __name__ == "__main__":
    main()
